"""The FLOPs of a training against the paper's and those of its products, and the cost of an update in counts."""

import dataclasses
import inspect
from pathlib import Path
from traceback import walk_tb
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from metered import Meter, flops, watched
from threadpoolctl import threadpool_info, threadpool_limits

from autograd import RandomStream, backward, no_tape
from autograd.optim import Adam
from minitransformer import Batch, ModelConfig, RunConfig, Transformer, presets
from minitransformer.config import TrainingConfig
from minitransformer.data.store import TokenStore, write_store
from minitransformer.training import run
from minitransformer.training.callbacks import Callback
from minitransformer.training.flops import Cost, flops_of_pairs, sustained_flops_per_second
from minitransformer.training.loop import Trainer
from minitransformer.training.state import TrainingState
from minitransformer.training.update import GradientAccumulator, TrainingStep
from parallel.communicator import SerialCommunicator
from parallel.reducer import LocalReducer
from tests.minitransformer.training.test_trainer import trainer_of
from tests.support.training import TINY, peak_of

CONFIG = ModelConfig(vocabulary_size=50, n_layers=2, d_model=24, d_ff=40, n_heads=3, d_k=8, d_v=8)
SOURCE, TARGET, N_PAIRS = 14, 18, 5  # tokens of every sentence, with its end: no padding


def metered(config: ModelConfig = CONFIG) -> tuple[Transformer, Batch]:
    random = np.random.default_rng(1)
    ids = [random.integers(3, config.vocabulary_size, (N_PAIRS, n - 1)).tolist() for n in (SOURCE, TARGET)]
    return watched(Transformer(config)), Batch.from_token_ids(*ids)


def update(model: Transformer, batch: Batch) -> None:
    backward(model.loss(batch, RandomStream(1)))


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"d_k": 5, "d_v": 11, "n_heads": 2, "d_ff": 13, "n_layers": 1},
        {"n_decoder_layers": 1, "activation": "gelu"},
        {"n_layers": 4, "d_ff": 300, "vocabulary_size": 200},
    ],
)
def test_matrix_products_are_those_of_the_paper_and_twice_as_many_backward(meter: Meter, sizes: dict[str, Any]) -> None:
    """So nothing is computed twice, or for nothing."""
    model, batch = metered(config := dataclasses.replace(CONFIG, **sizes))
    counted = flops_of_pairs(config, np.stack([batch.source.lengths, batch.target.lengths], axis=1)).sum()
    loss = model.loss(batch, RandomStream(1))
    assert 3 * flops(meter) == counted
    backward(loss)
    assert flops(meter) == counted


def test_a_batch_costs_what_its_sentences_cost() -> None:
    lengths = np.random.default_rng(1).integers(1, 30, (7, 2))
    separately = [flops_of_pairs(CONFIG, lengths[i : i + 1]).item() for i in range(7)]
    assert flops_of_pairs(CONFIG, lengths).tolist() == separately


def test_the_number_of_products_depends_on_layers_alone_and_none_is_of_float64(meter: Meter) -> None:
    """6 linear maps and 2 products of attention in an encoder layer, 10 and 4 in a decoder layer, one projection."""
    update(*metered())
    assert len(meter.products) == 3 * (CONFIG.n_layers * (6 + 2 + 10 + 4) + 1)
    assert "float32" in meter.dtypes
    assert "float64" not in meter.dtypes


def test_of_arrays_of_the_size_of_the_vocabulary_there_is_one() -> None:
    """Logits become their own gradient; beside them there is room for the gradient of the matrix, and small things."""
    config = dataclasses.replace(CONFIG, vocabulary_size=40_000, d_model=4, d_ff=8, n_heads=1, d_k=4, d_v=4)
    _, batch = metered(config)
    update(model := Transformer(config), batch)  # what is made once is made
    logits, matrix = 4 * config.vocabulary_size * len(batch.labels), 4 * config.vocabulary_size * config.d_model
    assert logits < peak_of(lambda: update(model, batch)) < 1.2 * logits + 3 * matrix
    with no_tape():
        assert logits < peak_of(lambda: model.loss(batch)) < 1.2 * logits + 3 * matrix


@pytest.mark.parametrize("n_micro_batches", [1, 4])
def test_flops_are_those_computed_also_after_resuming(tmp_path: Path, meter: Meter, n_micro_batches: int) -> None:
    """The sentences have one length, so attention's reference computes no padding."""
    write_store(tmp_path, "train", np.random.default_rng(1).integers(3, 12, (40, 2, 6)).tolist(), 12)
    changes: dict[str, Any] = {"store": TokenStore(tmp_path, "train"), "n_micro_batches": n_micro_batches}
    for max_updates in (3, 8):
        trainer = trainer_of(tmp_path, max_updates=max_updates, **changes)
        trainer.resume()
        watched(trainer.model)
        trainer.train(Callback())
        assert trainer.state.flops == flops(meter) > 0


def test_device_time_is_that_of_all_devices_that_there_were() -> None:
    """One device for 3 seconds; then four for 1.5."""
    state = TrainingState().with_time(3, n_devices=1).with_new_interval().with_time(1.5, n_devices=4)
    assert (state.device_seconds, state.seconds, state.unlogged_seconds) == (3 + 4 * 1.5, 4.5, 1.5)


P100_FLOPS = 9.5e12  # single-precision FLOP/s that the paper assumed of the GPU it trained on (footnote 5)


def test_the_papers_figures_are_its_time_devices_and_rate_and_a_cost_says_them_beside_both_counts() -> None:
    """Table 2: 12 hours and 3.5 days on 8 P100 are 3.3·10^18 and 2.3·10^19."""
    assert Cost(0, 8 * 3.5 * 86_400, P100_FLOPS).flops_by_time == pytest.approx(2.3e19, rel=0.01)
    cost = Cost(9 * 10**17, 8 * 12 * 3600, P100_FLOPS)
    assert cost.flops_by_time == pytest.approx(3.3e18, rel=0.01)
    assert str(cost) == (
        "9e+17 FLOPs counted; as the paper estimates them 3.28e+18: 345,600 s of a device at 9.5e+12 FLOP/s"
        " (the paper's base model 3.3e+18, big 2.3e+19)"
    )


def test_an_update_of_the_papers_size_and_its_hundred_thousand() -> None:
    """25,000 tokens a side in sentences of 28: 9.5 TFLOP; 100,000 of these are 0.29 of what the paper estimated."""
    update = flops_of_pairs(presets.base(37_000), np.full((25_000 // 28, 2), 28)).sum()
    assert update == pytest.approx(9.5e12, rel=0.02)
    assert 100_000 * update == pytest.approx(3.3e18 * 0.29, rel=0.02)


def test_the_rate_is_that_of_the_best_later_time_and_counts_additions(monkeypatch: pytest.MonkeyPatch) -> None:
    """8³ of either, in 2 seconds at best; the first product, of 1 second, does not count."""
    times = iter([0.0, 1.0, 10.0, 14.0, 20.0, 22.0, 30.0, 33.0])
    monkeypatch.setattr("minitransformer.training.flops.time.perf_counter", lambda: next(times))
    assert sustained_flops_per_second("cpu", 1, size=8, repeats=3) == 2 * 8**3 / 2


@pytest.mark.parametrize("n_threads", [1, 2])
def test_the_rate_is_that_of_the_threads_that_trained(n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []

    def noted() -> float:
        used.extend(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        return float(len(used))

    monkeypatch.setattr("minitransformer.training.flops.time.perf_counter", noted)
    with threadpool_limits(3 - n_threads, user_api="blas"):
        sustained_flops_per_second("cpu", n_threads, repeats=2, size=8)
    assert set(used) == {n_threads}


@pytest.mark.parametrize(("seconds", "repeats"), [(0.5, 1), (3.2, 4), (1e5, 10)])
def test_a_short_training_is_measured_briefly(seconds: float, repeats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(run, "sustained_flops_per_second", lambda *_, repeats: asked.append(repeats) or 1e9)
    trainer = SimpleNamespace(state=TrainingState(seconds=seconds), gradient=SimpleNamespace(n_threads=1))
    opened: Any = SimpleNamespace(trainer=trainer, config=RunConfig(), world=SerialCommunicator())
    assert run._cost(opened).device_flops_per_second == 1e9
    assert asked == [repeats]


# The frames, the files and the types from an update to its first matrix product

OUTER_FRAMES = ("train", "train_to_end", "Trainer.train", "Trainer.step")  # up to TrainingStep.__call__
OUTER_TYPES = {"Trainer"}
MOST_FRAMES, MOST_TYPES, MOST_FILES = 16, 8, 7
TREE = {"compute", "_sum"}  # the sum over micro-batches


class Reached(Exception):  # noqa: N818 (no error: the product that was looked for)
    """The first matrix product of the weights."""


class Watched(np.ndarray):
    """Weights whose first matrix product raises ``Reached``."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        if ufunc is np.matmul:
            raise Reached
        plain = [x.view(np.ndarray) if isinstance(x, Watched) else x for x in inputs]
        return getattr(ufunc, method)(*plain, **more)


def test_few_frames_files_and_types_lie_between_an_update_and_its_first_product() -> None:
    """In an update of one micro-batch, from ``TrainingStep.__call__`` on."""
    model, config = Transformer(TINY), TrainingConfig(n_micro_batches=1)
    step = TrainingStep(
        GradientAccumulator(model, n_threads=1), LocalReducer(), Adam(model.parameters), config, range(1)
    )
    for _, parameter in model.named_parameters():
        parameter.value = parameter.value.view(Watched)
    with pytest.raises(Reached) as reached:
        step([Batch.from_token_ids([[3, 4]], [[5, 6]])], 1, [np.array([[3, 3]])])
    _, *frames, _ = (frame for frame, _ in walk_tb(reached.tb))
    assert frames[0].f_code.co_qualname == "TrainingStep.__call__"
    chain = [frame for frame in frames if frame.f_code.co_name not in TREE]
    types = {type(frame.f_locals["self"]).__name__ for frame in chain if "self" in frame.f_locals}
    passed = " → ".join(frame.f_code.co_qualname for frame in chain)
    assert [Path(frame.f_code.co_filename).name for frame in chain[-2:]] == ["linear.py", "blas.py"], passed
    assert len(OUTER_FRAMES) + len(chain) <= MOST_FRAMES, passed
    paths = {Path(frame.f_code.co_filename) for frame in chain} | {Path(inspect.getfile(Trainer))}
    files = {path for path in paths if path.parent.name != "ops" and path.name != "blas.py"}
    assert len(files) <= MOST_FILES, f"{sorted(path.name for path in files)}: {passed}"
    assert len(types | OUTER_TYPES) <= MOST_TYPES, f"{sorted(types)}: {passed}"
