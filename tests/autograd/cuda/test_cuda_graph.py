"""Updates as CUDA graphs, on the stand-in for CuPy: captured and launched updates give the same bits."""

import dataclasses
import gc
import math
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fake_cuda
import fake_streams
import numpy as np
import pytest
from cublaslt_on_cpu import Recorder
from cuda_kernels import DISPATCHERS
from page_optimizers import optimizers

from autograd import RandomStream, Tensor, backward, to_host
from autograd.array import persistent_pool
from autograd.kernels.cuda import attention, layer_norm, products, side_stream
from autograd.kernels.cuda.products import _prepare
from autograd.optim import Adam, Optimizer
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.config import RunConfig, TrainingConfig
from minitransformer.config.checks import with_changes
from minitransformer.data.store import TokenStore, write_store
from minitransformer.training import divergence, graph
from minitransformer.training.callbacks import Callback
from minitransformer.training.graph import CapturedStep, captured_step, why_no_rank_captures, why_not_captured
from minitransformer.training.loop import Trainer
from minitransformer.training.memory import OutOfMemoryError, try_largest_batch
from minitransformer.training.update import GradientAccumulator, StepResult, TrainingStep
from parallel.communicator import SerialCommunicator
from parallel.reducer import LocalReducer

RECIPES = Path(__file__).parents[3] / "recipes"
CONFIG = ModelConfig(vocabulary_size=19, n_layers=1, d_model=32, d_ff=16, n_heads=1, d_k=32, d_v=32, p_drop=0.25)
TRAINING = TrainingConfig(max_updates=1, batch_tokens=128, n_micro_batches=1, seed=5, clip_norm=2.0, warmup_steps=4)
WAITING = {"read", "synchronize", "wait"}


@pytest.fixture(autouse=True)
def small_capacities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let these small batches have several capacities."""
    monkeypatch.setattr(graph, "SPLIT_TERMS", 16)


def batch_of(seed: int, n: int, longest: int) -> Batch:
    random = np.random.default_rng(seed)
    sides = [[random.integers(3, 19, random.integers(0, longest)).tolist() for _ in range(n)] for _ in range(2)]
    return Batch.from_token_ids(*sides)


EMPTY = Batch.from_token_ids([], [])
SMALL = [[batch_of(i, 2 + i % 2, 4)] for i in range(4)]  # of one capacity, other lengths and numbers of sentences
MICRO_BATCHES = [
    [batch_of(1, 2, 4), batch_of(2, 3, 4)],
    [batch_of(3, 3, 4), EMPTY],
    [batch_of(4, 2, 4), batch_of(5, 2, 4)],
]
LARGE, LARGER = [batch_of(9, 3, 12)], [batch_of(10, 3, 12)]
LARGEST = [batch_of(9, 5, 16)]


class LaunchedStep(CapturedStep):
    """The same step without graphs."""

    def enqueue(self, buffers: Any) -> Any:
        return buffers.compute(self.step)


def model_on_gpu(**changes: Any) -> Transformer:
    return Transformer(dataclasses.replace(CONFIG, **changes), seed=3, dtype="bfloat16", device="cuda")


def step_of(
    model: Transformer, kind: type[CapturedStep] = CapturedStep, n_micro_batches: int = 1, ema: float = 0.0
) -> CapturedStep:
    config = dataclasses.replace(TRAINING, n_micro_batches=n_micro_batches)
    gradient, adam = GradientAccumulator(model, n_threads=1), Adam(model.parameters)
    if ema:
        adam.begin_average(ema)
    return kind(TrainingStep(gradient, LocalReducer(), adam, config, range(n_micro_batches)))


def begin(step: CapturedStep, number: int, micro_batches: Sequence[Batch]) -> StepResult:
    lengths = [np.stack([of.source.lengths, of.target.lengths], 1) for of in micro_batches]
    return step(step.prepare(micro_batches, lengths), number, lengths)


def numbers(result: StepResult) -> tuple[float, float]:
    return result.loss, result.norm


def run(step: CapturedStep, batches: Sequence[Sequence[Batch]]) -> list[tuple[float, float]]:
    """Make updates, one after the other."""
    return [numbers(begin(step, number, micro_batches)) for number, micro_batches in enumerate(batches, 1)]


def bits(step: CapturedStep) -> list[bytes]:
    adam = step.step.optimizer
    return [to_host(x).tobytes() for x in (adam.buffer.values, adam.buffer.low_precision, *adam.state.values())]


def check_against_launches(
    batches: Sequence[Sequence[Batch]], n_micro_batches: int = 1, **changes: Any
) -> CapturedStep:
    """Compare results and bits of updates by graphs and by launches; return the step with the graphs."""
    graphed, one_by_one = (
        step_of(model_on_gpu(**changes), kind, n_micro_batches) for kind in (CapturedStep, LaunchedStep)
    )
    expected = run(one_by_one, batches)
    fake_cuda.CALLS.clear()
    assert run(graphed, batches) == expected
    assert bits(graphed) == bits(one_by_one)
    assert len({loss for loss, _ in expected}) == len(batches)
    return graphed


def test_graphs_leave_the_bits_of_launches(launched: list[str]) -> None:
    """A table of positions of the second capacity outlives launches of the first graph."""
    check_against_launches(MICRO_BATCHES, 2)
    graphed = check_against_launches([LARGE, SMALL[0], LARGER, SMALL[1]])
    assert [name for name, *_ in fake_cuda.CALLS].count("graph") == 2
    assert graphed.n_graphs == 2
    large, small = (capacity.source for capacity in graphed._buffers)
    assert small < large
    assert large % graphed._capacity_step == 0


def test_a_moving_average_is_part_of_the_graph(launched: list[str]) -> None:
    graphed, one_by_one = (step_of(model_on_gpu(), kind, ema=0.7) for kind in (CapturedStep, LaunchedStep))
    assert run(graphed, SMALL) == run(one_by_one, SMALL)
    assert graphed.n_graphs == 1
    assert bits(graphed) == bits(one_by_one)
    alone = step_of(model_on_gpu())
    average = to_host(alone.step.optimizer.buffer.values)
    for number, micro_batches in enumerate(SMALL, 1):
        begin(alone, number, micro_batches).norm  # noqa: B018  (waits)
        d = min(0.7, (1 + number) / (10 + number))
        average = d * average + (1 - d) * to_host(alone.step.optimizer.buffer.values)
    np.testing.assert_allclose(to_host(graphed.step.optimizer.ema), average, rtol=1e-5, atol=1e-7)


def test_algorithms_are_chosen_before_the_first_bucket_is_summed(
    launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a later capacity; the sums of other ranks would run beside the products that are timed."""
    events = list[str]()

    class InBuckets(LocalReducer):
        def begin_sum(self, bucket: slice, wait: Any) -> None:
            events.append("sum")

    def noted(*arguments: Any) -> Any:
        events.append("choice")
        return choose(*arguments)

    choose = products.choose
    monkeypatch.setattr(products, "choose", noted)
    step, alone = step_of(model_on_gpu()), step_of(model_on_gpu())
    step.step.reducer = InBuckets()
    step.step.reducer.buckets = [slice(0, 512), slice(512, len(step.step.parameters.values))]
    got = []
    for number, batches in enumerate([SMALL[0], LARGE, SMALL[1]], 1):
        events.clear()
        got.append(numbers(begin(step, number, batches)))
        n_sums = 2 * 2 if number < 3 else 0  # by launches, and in the capture
        assert [event for event in events if event == "sum"] == ["sum"] * n_sums
        assert (number == 3) == ("choice" not in events)
        assert "choice" not in events[events.index("sum") :] if n_sums else True
    assert got == run(alone, [SMALL[0], LARGE, SMALL[1]])


def test_a_second_stream_leaves_the_bits_of_one(
    launched: list[str], products_on_cpu: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In separate launches and in a graph; the embedding's gradient is added to that of the projection."""

    def second_streams() -> set[int]:
        return {arguments[-1] for arguments in products_on_cpu.of("Matmul")} & set(fake_streams._second)

    on_two, on_one = (step_of(model_on_gpu()) for _ in range(2))
    found = run(on_two, SMALL[:2])
    assert len(second_streams()) == 1
    with monkeypatch.context() as alone:
        alone.setattr(side_stream, "run", lambda work: work())
        products_on_cpu.calls.clear()
        assert run(on_one, SMALL[:2]) == found
        assert not second_streams()
    assert bits(on_two) == bits(on_one)


def test_graphs_of_longer_sentences_have_their_kernels_and_others_do_not(launched: list[str]) -> None:
    long = [Batch.from_token_ids([[5] * 70, [6]], [[7] * 3, [8] * 66])]
    graphed = check_against_launches([long, SMALL[0]], p_drop_attention=0.2)
    for micro_batches, expected in ((long, 3), (SMALL[1], 0)):
        launched.clear()
        begin(graphed, 5, micro_batches)
        assert launched.count("attention_backward_of_keys_dropped_32") == expected


def fill_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no memory but what pools have taken."""
    gc.collect()  # what other tests have left
    monkeypatch.setattr(fake_cuda, "LIMIT", fake_cuda.Memory.used)


def test_without_memory_the_pool_frees_unused(launched: list[str], cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill the default pool, as the trial of the largest batch and validation do."""
    batches = [SMALL[0], LARGE, SMALL[1], LARGE]
    expected, updates = run(step_of(model_on_gpu(), LaunchedStep), batches), step_of(model_on_gpu())
    assert numbers(begin(updates, 1, batches[0])) == expected[0]
    with persistent_pool("cuda"):
        cupy.zeros(2**20)  # is freed at once
    fill_gpu(monkeypatch)
    assert [numbers(begin(updates, i, batches[i - 1])) for i in (2, 3, 4)] == expected[1:]


def test_memory_reserved_for_the_largest_batch_is_enough_for_all_graphs(launched: list[str]) -> None:
    batches, (reserved, grown) = [SMALL[0], LARGE, LARGEST], (step_of(model_on_gpu()) for _ in range(2))
    reserved.reserve_memory(np.array([[LARGEST[0].n_source_tokens, LARGEST[0].n_target_tokens]]), 1)
    n_bytes = reserved.pool.total_bytes()
    assert run(reserved, batches) == run(grown, batches)
    assert reserved.pool.total_bytes() == n_bytes < grown.pool.total_bytes()


def test_a_lack_of_memory_takes_none_from_graphs(launched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    expected, updates = run(step_of(model_on_gpu(), LaunchedStep), [*SMALL[:2], LARGE]), step_of(model_on_gpu())
    assert numbers(begin(updates, 1, SMALL[0])) == expected[0]
    n_bytes = updates.pool.total_bytes()
    with monkeypatch.context() as full:
        fill_gpu(full)
        with pytest.raises(MemoryError, match="no .* bytes left for CUDA graphs"):
            begin(updates, 2, LARGE)
    assert updates.pool.total_bytes() == n_bytes
    assert numbers(begin(updates, 2, SMALL[1])) == expected[1]


@pytest.mark.parametrize("kind", [CapturedStep, LaunchedStep])
def test_an_update_copies_and_launches_once_and_never_waits(kind: type[CapturedStep], launched: list[str]) -> None:
    """After the algorithms of products have been chosen."""
    updates = step_of(model_on_gpu(), kind)
    run(updates, SMALL[:2])
    fake_cuda.CALLS.clear()
    begin(updates, 3, SMALL[2])
    begin(updates, 4, SMALL[3])
    names = [name for name, *_ in fake_cuda.CALLS]
    assert not WAITING & set(names)
    assert (names.count("upload"), names.count("graph")) == (2, 2 * (kind is CapturedStep))


def test_a_capacitys_first_update_captures_its_graph(launched: list[str], products_on_cpu: Recorder) -> None:
    """Forget all prepared products between two updates, as validation may: a graph needs none."""
    graphed, one_by_one = step_of(model_on_gpu()), step_of(model_on_gpu(), LaunchedStep)
    expected = run(one_by_one, SMALL[:2])
    first = numbers(begin(graphed, 1, SMALL[0]))
    assert graphed.n_graphs == 1
    _prepare.cache_clear()
    products_on_cpu.calls.clear()
    assert [first, numbers(begin(graphed, 2, SMALL[1]))] == expected
    assert products_on_cpu.calls == []
    assert bits(graphed) == bits(one_by_one)


def test_a_result_waits_for_its_own_update_only(launched: list[str]) -> None:
    updates = step_of(model_on_gpu())
    expected = run(step_of(model_on_gpu(), LaunchedStep), SMALL[:4])
    results = [begin(updates, 1, SMALL[0])]
    n_calls_of_first = len(fake_cuda.CALLS)
    results.append(begin(updates, 2, SMALL[1]))
    n_calls = len(fake_cuda.CALLS)
    assert numbers(results[0]) == expected[0]
    ((name, of_event),) = fake_cuda.CALLS[n_calls:]
    assert name == "wait"
    assert of_event == n_calls_of_first - 1
    results += [begin(updates, number, SMALL[number - 1]) for number in (3, 4)]  # waits for the second, as it must
    assert [numbers(result) for result in results] == expected


@pytest.mark.parametrize("changes", [{}, {"p_drop_attention": 0.4}], ids=str)
def test_the_gradient_is_that_of_the_batch_alone_but_for_rounding(changes: dict[str, Any], launched: list[str]) -> None:
    """Nor does padding change which elements and attention weights are dropped."""
    updates, alone = step_of(model_on_gpu(**changes), LaunchedStep), model_on_gpu(**changes)
    loss = alone.loss(SMALL[0][0], RandomStream(TRAINING.seed, update=1))
    backward(loss)
    ((found_loss, norm),) = run(updates, SMALL[:1])
    got, expected = (to_host(x) for x in (updates.step.parameters.gradients, alone.parameters.gradients))
    assert found_loss == pytest.approx(float(loss), rel=1e-3)
    assert np.linalg.norm(got - expected) < 0.01 * np.linalg.norm(expected)
    assert norm == pytest.approx(np.linalg.norm(got) / SMALL[0][0].n_target_tokens, rel=1e-6)


def test_what_fills_a_batch_up_changes_nothing(launched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    plain, other, fill = step_of(model_on_gpu()), step_of(model_on_gpu()), graph.fill
    results = run(plain, SMALL[:3])

    def fill_otherwise(arrays: Any, batch: Batch, neighbourhood: int | None) -> Any:
        masks = fill(arrays, batch, neighbourhood)
        for name, n, value in (
            ("source_ids", batch.n_source_tokens, 17),
            ("decoder_ids", batch.n_target_tokens, 18),
            ("source_positions", batch.n_source_tokens, 5),
        ):
            assert n < len(arrays[name])
            arrays[name][n:] = value
        return masks

    monkeypatch.setattr(graph, "fill", fill_otherwise)
    assert run(other, SMALL[:3]) == results
    assert bits(other) == bits(plain)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_update_that_is_not_finite_changes_nothing(value: float, launched: list[str]) -> None:
    """The first is launched, the third is a graph; a weight is made not finite, and restored."""
    updates = step_of(model_on_gpu())
    parameters = updates.step.parameters
    spoilt = parameters.low_precision[parameters.named["source_embedding.weight"].offset :][:1]
    for step, micro_batches in enumerate(SMALL, 1):
        before, kept = bits(updates), spoilt.copy()
        if step % 2:
            spoilt[...] = value
        is_finite = begin(updates, step, micro_batches).is_finite
        if step % 2:
            spoilt[...] = kept
        assert is_finite == (bits(updates) != before) == (step % 2 == 0)


def test_no_more_graphs_are_kept_than_may_be(launched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The capacity that was used least recently is forgotten, and captured again."""
    monkeypatch.setattr(graph, "MOST_GRAPHS", 2)
    batches = [SMALL[0], LARGE, SMALL[1], LARGEST, SMALL[2], LARGE]
    graphed, one_by_one = step_of(model_on_gpu()), step_of(model_on_gpu(), LaunchedStep)
    kept: list[list[int]] = []
    expected = run(one_by_one, batches)
    for number, micro_batches in enumerate(batches, 1):
        assert numbers(begin(graphed, number, micro_batches)) == expected[number - 1]
        kept.append([capacity.source for capacity in graphed._buffers])
    assert bits(graphed) == bits(one_by_one)
    assert kept == [[16], [16, 32], [32, 16], [16, 64], [64, 16], [16, 32]]
    graphed.free()
    assert graphed.n_graphs == 0


def test_before_a_new_capacity_all_earlier_results_are_read(launched: list[str]) -> None:
    """The host then waits for the GPU in calls that have no time limit."""
    updates = step_of(model_on_gpu())
    run(updates, SMALL[:1])
    begin(updates, 2, SMALL[1])
    fake_cuda.CALLS.clear()
    begin(updates, 3, LARGE)
    names = [name for name, *_ in fake_cuda.CALLS]
    assert names.index("wait") < names.index("upload")


def test_if_one_rank_captures_nothing_none_does() -> None:
    class World(SerialCommunicator):
        def allgather(self, value: Any) -> list[Any]:
            return [value, None, "it has no kernel", None]

    assert why_no_rank_captures(SerialCommunicator(), None) is None
    assert why_no_rank_captures(SerialCommunicator(), "reason") == "reason"
    assert why_no_rank_captures(World(), None) == "it has no kernel (on rank 2)"
    assert why_no_rank_captures(World(), "reason") == "reason (on rank 0)"


def lacking(*operations: str) -> str:
    *others, last = attention.WIDTHS
    d_k = f"d_k = d_v of {', '.join(map(str, others))} or {last}"
    d_model = f"a d_model that is a multiple of {layer_norm.MULTIPLE}, at most {layer_norm.WIDTHS[-1]}"
    return f"no CUDA kernel computes {', '.join(operations)} for this model; kernels need {d_model}, and {d_k}"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"d_k": 24, "d_v": 24}, lacking("attention")), ({"d_model": 72}, lacking("add_norm", "layer_norm")),
     ({"positions": "learned"}, None), ({"p_drop_attention": 0.1}, None)],
    ids=str,
)  # fmt: skip
def test_what_can_be_captured(changes: dict[str, Any], reason: str | None, launched: list[str]) -> None:
    assert why_not_captured(model_on_gpu(**changes)) == reason


@pytest.mark.parametrize("name", [path.name for path in RECIPES.glob("*.toml") if "-fr" not in path.name])
def test_recipes_are_captured(name: str, launched: list[str]) -> None:
    changes = tomllib.loads((RECIPES / name).read_text("utf-8"))
    config = with_changes(RunConfig.of_preset(changes.pop("preset")), changes).model
    config = dataclasses.replace(config, vocabulary_size=19, n_layers=1, n_decoder_layers=1, d_ff=16, n_heads=1)
    assert why_not_captured(Transformer(config, dtype="bfloat16", device="cuda")) is None


@pytest.mark.parametrize("kind", [optimizers.AdamW, optimizers.Lion, optimizers.Muon])
def test_an_optimizer_of_a_user_is_not_captured_and_updates_as_on_the_cpu(
    kind: type[Optimizer], launched: list[str]
) -> None:
    here, there = (Transformer(CONFIG, seed=3, device=device) for device in ("cpu", "cuda"))
    for model in (here, there):
        backward(model.loss(SMALL[0][0]))
        optimizer = kind(model.parameters)
        optimizer.step(1e-3, 1)
        gradient = GradientAccumulator(model, n_threads=1)
        step = TrainingStep(gradient, LocalReducer(), optimizer, TRAINING, range(1))
    np.testing.assert_allclose(to_host(there.parameters.values), here.parameters.values, atol=2e-4)
    step.gradient.model = model_on_gpu()
    found, why = captured_step(step, SerialCommunicator())
    assert found is step
    assert why == f"no CUDA kernel computes optimizers:{kind.__qualname__} (training.optimizer)"


def test_a_penalty_is_in_the_graph_or_a_reason_against_it(launched: list[str]) -> None:
    class Penalised(Transformer):
        def penalty(self) -> Tensor:
            weight = self.encoder.layers[0].feed_forward.hidden.weight
            return (weight * weight).sum() * 0.3

    assert why_not_captured(Penalised(CONFIG, dtype="bfloat16", device="cuda")) == lacking("sum")


def test_nothing_is_captured_in_float32_or_on_a_cpu(launched: list[str]) -> None:
    assert why_not_captured(Transformer(CONFIG, device="cuda")) == "its kernels need bfloat16"
    assert why_not_captured(Transformer(CONFIG, dtype="bfloat16")) == "the model is not on a GPU"


@pytest.mark.parametrize(
    "name",
    ["adam_update", "add_norm", "attention", "clip", "dropout", "embedding", "embedding_with_positions", "layer_norm",
     "linear", "linear_cross_entropy", "linear_relu", "sum_squares"],
)  # fmt: skip
def test_no_capture_without_the_kernel_of(name: str, launched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"layer_norm": {"norm": "pre"}, "dropout": {"start": "zero"}, "embedding": {"start": "zero"}}
    model = model_on_gpu(**others.get(name, {}))
    assert not why_not_captured(model)
    with monkeypatch.context() as without:
        without.setattr(DISPATCHERS[name], "kernels", [])
        assert name in why_not_captured(model)


@pytest.mark.parametrize(
    "changes",
    [{"start": "zero", "activation": "gelu"}, {"p_drop_attention": 0.3, "activation": "gelu_tanh"},
     {"start": "end", "norm": "pre", "softmax_bias": True}, {"activation": "swish", "n_decoder_layers": 1},
     {"positions": "learned", "max_positions": 8}],  # fewer than a batch is filled up with
    ids=str,
)  # fmt: skip
def test_models_of_other_kinds(changes: dict[str, Any], launched: list[str]) -> None:
    check_against_launches(SMALL[:2], **changes)


# The trainer.


@pytest.fixture
def store(tmp_path: Path) -> Path:
    random = np.random.default_rng(2)
    sentences = [random.integers(3, 19, random.integers(0, 7)).tolist() for _ in range(36)]
    write_store(tmp_path, "train", zip(sentences[:18], sentences[18:], strict=True), 19)
    return tmp_path


def trainer_of(folder: Path, run: str, n_updates: int, **changes: Any) -> Trainer:
    config = TrainingConfig(
        **{"max_updates": n_updates, "batch_tokens": 32, "n_micro_batches": 1} | changes,
        warmup_steps=4,
        log_every=2,
        checkpoint_every=3,
        precision="bfloat16",
    )
    trainer = Trainer(
        model_on_gpu(), TokenStore(folder, "train"), None, config, folder / run, SerialCommunicator(), n_threads=1
    )
    assert isinstance(trainer.training_step, CapturedStep)
    return trainer


def test_the_trial_of_the_largest_batch_reserves_the_memory_of_graphs(launched: list[str], store: Path) -> None:
    trainer = trainer_of(store, "run", 4)
    try_largest_batch(trainer)
    pool, sizes = trainer.training_step.pool, []
    n_bytes = pool.total_bytes()

    class Measuring(Callback):
        def report(self, report: Any) -> None:
            sizes.append(pool.total_bytes())

    assert trainer.train(Measuring())
    assert sizes == [n_bytes, n_bytes]


def test_lack_of_gpu_memory_names_what_fits(launched: list[str], store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card of 6 GB, whose graphs may have 32 tokens in a micro-batch."""
    trainer, reserve = trainer_of(store, "run", 1, batch_tokens=128), CapturedStep.reserve_memory

    def limited(step: CapturedStep, lengths: Any, n_micro_batches: int) -> None:
        if lengths.max() > 32:
            raise MemoryError
        reserve(step, lengths, n_micro_batches)

    monkeypatch.setattr(CapturedStep, "reserve_memory", limited)
    monkeypatch.setattr(fake_cuda.runtime, "memGetInfo", lambda: (5_900_000_000, 6_000_000_000))
    with pytest.raises(OutOfMemoryError) as caught:
        try_largest_batch(trainer)
    assert re.fullmatch(
        r"out of memory \(trying the largest batch\): 128 tokens in 1 micro-batches need more than the 5\.90 GB of the"
        r" GPU that are free\. training\.n_micro_batches = 4 fits: the same batch in smaller pieces",
        str(caught.value),
    )


def test_a_gpu_without_memory_is_too_small(launched: list[str], store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitransformer.training.memory.MAX_MICRO_BATCHES", 2)
    trainer = trainer_of(store, "run", 1)
    fill_gpu(monkeypatch)
    with pytest.raises(OutOfMemoryError, match="No number of micro-batches fits"):
        try_largest_batch(trainer)


@pytest.mark.slow
def test_a_run_of_graphs_goes_back_from_updates_that_are_not_finite(
    launched: list[str], store: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    """The result of the second in a row is read while the third runs."""
    bad, scalars = {5, 6}, Adam.scalars

    def sometimes_bad(adam: Adam, rate: float, step: int, n_tokens: int) -> Any:
        is_bad = step in bad
        bad.discard(step)
        return np.full(3, math.nan) if is_bad else scalars(adam, rate, step, n_tokens)

    monkeypatch.setattr(Adam, "scalars", sometimes_bad)
    monkeypatch.setattr(divergence, "PATIENCE", 2)
    trainer, losses = trainer_of(store, "run", 8), list[float]()

    class Listening(Callback):
        def report(self, report: Any) -> None:
            losses.append(report.loss)

    trainer.resume()
    assert trainer.train(Listening())
    assert [line.split(" (at")[0] for line in logged if "update" in line] == [
        "warning: update 5: the gradient's norm is nan; it is skipped, 1 in a row",
        "warning: update 6: the gradient's norm is nan; it is skipped, 2 in a row",
        "going on from update 3, without 2 batches",
    ]
    assert trainer.state.step == 8
    assert len(trainer.state.avoided) == 2
    assert np.isfinite(losses).all()
    assert np.isfinite(to_host(trainer.model.parameters.values)).all()
