"""Steps of a search as CUDA graphs, without a GPU: kernels run on the CPU, and a stand-in records what is captured."""

import gc
from collections import Counter
from typing import Any, NamedTuple
from weakref import ref

import fake_cuda
import numpy as np
import pytest
from cublaslt_on_cpu import Recorder

from autograd import Tensor, graphs, to_device, to_host
from autograd.graphs import GraphStream
from autograd.kernel_registry import references_only
from autograd.kernels.cuda import beam as beam_kernel
from autograd.kernels.cuda.cublaslt import TYPES
from autograd.kernels.cuda.driver import STORAGE
from autograd.ops.linear import linear
from autograd.ops.linear_maps import joint_linear_maps
from autograd.ops.top_k import top
from autograd.precision import rounded, upcast
from minitransformer import ModelConfig, Transformer
from minitransformer.config import ConfigError
from minitransformer.extras.sampling import Sampling
from minitransformer.inference import beam_steps, line_search, predictor
from minitransformer.inference.attention import source_attention_weights
from minitransformer.inference.beam import beam_search
from minitransformer.inference.beam_steps import BeamSearch
from minitransformer.inference.line_search import LineSearch, bytes_of_search
from minitransformer.inference.prefix import NO_PREFIX, Prefix, PrefixConstraint
from minitransformer.inference.scoring import score_pairs
from minitransformer.inference.search import Hypothesis, SearchConfig

SIZES: dict[str, Any] = {"n_layers": 1, "d_model": 32, "d_ff": 24, "n_heads": 2, "d_k": 8, "d_v": 6}
SOURCES = [[5, 6, 7, 8], [4], [12, 11]]
VARIANTS: list[dict[str, Any]] = [
    {"n_decoder_layers": 2, "neighbourhood": 2}, {"norm": "pre", "activation": "swish", "attention_bias": True},
    {"positions": "learned", "start": "zero", "softmax_bias": True, "tied": "none"},
]  # fmt: skip


class OwnModel(Transformer):
    """A model whose layers might read what stands behind a sentence."""


def model_of(dtype: str = "float32", model_class: type[Transformer] = Transformer, **changes: Any) -> Transformer:
    model = model_class(ModelConfig(vocabulary_size=19, **{**SIZES, **changes}), seed=3, dtype=dtype, device="cuda")
    model.parameters.values *= 1.5
    return model.for_search()


def array_operations(graph: Any) -> list[str]:
    """Return the names of CuPy's own operations in a captured graph."""
    own = [work.__qualname__ for work in graph.work if getattr(work, "__module__", "").startswith("fake_")]
    return [name for name in own if "poisoned" not in name]  # memory that is not written, which is no operation


class Step(NamedTuple):
    """A step: how it was enqueued, in how many slots, and what was asked of the stand-in until the next one."""

    how: str
    n_slots: int
    calls: set[str]


def search(models: Any, sources: list[list[int]] = SOURCES, **more: Any) -> tuple[list[list[Hypothesis]], list[Step]]:
    steps: list[Step] = []
    enqueue = BeamSearch._enqueue

    def observe(self: BeamSearch, length: int) -> None:
        fake_cuda.CALLS.clear()
        enqueue(self, length)
        names = [name for name, *_ in fake_cuda.CALLS]  # the choice of algorithms launches graphs, too
        steps.append(Step("graph" if names == ["graph"] else "launches", len(self.sentences), set()))

    def update_wanted(self: BeamSearch) -> None:
        steps[-1].calls.update(name for name, *_ in fake_cuda.CALLS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BeamSearch, "_enqueue", observe)
        patch.setattr(BeamSearch, "update_wanted", update_wanted)
        found = beam_search(models, sources, SearchConfig(beam=2, max_extra_tokens=12, n_best=2), **more)
    return found, steps


def search_by_launches(models: Any, *sources: list[list[int]]) -> tuple[list[list[Hypothesis]], list[Step]]:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("no graph")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphStream, "capture", fail)
        patch.setattr(BeamSearch, "restart", lambda *arguments: False)
        return search(models, *sources)


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_graphs_equal_launches(changes: dict[str, Any], launched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a new graph for each capacity of the cache; the first step is launched."""
    monkeypatch.setitem(predictor.FIRST_CAPACITY, "cuda", 8)
    model = model_of(**changes)
    expected, steps_of_launches = search_by_launches(model)
    found, steps = search(model)
    assert found == expected
    assert {step.how for step in steps_of_launches} == {"launches"}
    assert {step.n_slots for step in steps} == {4}
    assert len(steps) > 10
    assert [step.how for step in steps] == ["launches" if i in (0, 8) else "graph" for i in range(len(steps))]
    assert all(step.calls <= {"graph", "pinned", "event", "wait"} for step in steps if step.how == "graph")
    assert "cached_attention_float" in launched
    assert [len(streams) for streams in graphs._idle.values()] == [1]  # of both searches


@pytest.mark.parametrize("beam", [1, 4])
def test_nearly_all_of_a_graph_are_kernels_and_products(
    beam: int, launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CuPy computes which sentences are at their last step, and the rows of their positions."""
    captured, capture = list[Any](), GraphStream.capture
    monkeypatch.setattr(GraphStream, "capture", lambda *some: (captured.append(capture(*some)), captured[-1])[1])
    beam_search(model_of(n_decoder_layers=3), SOURCES, SearchConfig(beam=beam, max_extra_tokens=12))
    (graph,) = captured
    assert len(array_operations(graph)) == 4
    del launched[:]
    graph.launch()
    assert Counter(launched) == {
        "embed_float": 1, "add_norm_forward_float_below_128": 9, "cached_attention_float": 6,
        "append_32_bits_to_cache": 3, "log_softmax_top": 1, "extend_beams": 1,
    }  # fmt: skip


@pytest.mark.slow
def test_the_graph_of_few_sentences_is_launched_for_the_next(
    launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step of it is computed in Python; another model or number of slots, or references alone, need new steps."""
    monkeypatch.setitem(predictor.FIRST_CAPACITY, "cuda", 6)
    model, other = model_of(n_decoder_layers=2), model_of(norm="pre", start="end")
    for models, sources, is_known in [
        (model, [[4, 5]], False), (model, [[5, 6, 7, 8, 9]], True), (model, SOURCES, False),
        (model, SOURCES[::-1], True), (model, [*SOURCES, [9, 8]], True),
        (model, [[9, 4]], False), (model, [[4, 8]], True),
        ([model, other], [[4, 5]], False), ([model, other], [[4, 5, 7]], True), (other, [[5, 6, 7]], False),
    ]:  # fmt: skip
        expected, _ = search_by_launches(models, sources)
        found, steps = search(models, sources)
        assert found == expected
        assert len(steps) > 6
        assert ({step.how for step in steps[:6]} == {"graph"}) == is_known
    with references_only():
        assert {step.how for step in search(other, [[5, 6]])[1]} == {"launches"}
    known, gone = graphs._idle.values(), ref(other)
    assert any(stream.kept for streams in known for stream in streams)
    del models, other
    gc.collect()
    assert gone() is None, "the search that is kept keeps no model"
    variants: list[dict[str, Any]] = [{"model_class": OwnModel}, {"neighbourhood": 2}, {"positions": "learned"}]
    for changes in variants:
        model = model_of(**changes)
        expected, _ = search_by_launches(model, [[7, 4, 8]])
        search(model, [[5, 6]])
        found, steps = search(model, [[7, 4, 8]])
        assert found == expected
        assert {step.how for step in steps} == {"graph"}


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_one_graph_searches_all_sentences_in_a_few_slots(
    changes: dict[str, Any], launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots are filled again as sentences end; float32 rounds in another order than for each sentence alone."""
    monkeypatch.setattr(beam_steps, "REFILLED_AT_ONCE", 0.5)
    sources = np.random.default_rng(0).integers(4, 19, (9, 7))
    lines = [source[: 1 + i % 7].tolist() for i, source in enumerate(sources)]
    model = model_of(**changes)
    alone, filled, fill = [search_by_launches(model, [line]) for line in lines], list[list[int]](), BeamSearch._fill
    monkeypatch.setattr(BeamSearch, "_fill", lambda *some: (filled.append(some[1].tolist()), fill(*some)))
    found, steps = search(model, lines, n_at_once=4)
    for some, ((expected,), _) in zip(found, alone, strict=True):
        assert [each.ids for each in some] == [each.ids for each in expected]
        assert [each.score for each in some] == pytest.approx([each.score for each in expected], rel=1e-5)
    assert [step.how for step in steps] == ["launches"] + (len(steps) - 1) * ["graph"]
    assert {step.n_slots for step in steps} == {4}
    assert len(steps) < sum(len(its_steps) for _, its_steps in alone) / 2
    assert filled[0] == [0, 1, 2, 3]
    assert 2 <= len(filled) <= 4
    assert all(step.calls <= {"graph", "pinned", "event", "wait"} for step in steps[1:])


@pytest.mark.parametrize("kind", ["a constraint", "no kernel", "no top", "a wrong top"])
def test_steps_that_cannot_be_graphs_are_launched(
    kind: str, launched: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    model, more = model_of("float64" if kind == "no kernel" else "float32"), dict[str, Any]()
    if kind == "a constraint":
        more["constraint"] = PrefixConstraint([Prefix("", "", (5, 4))] * 3, [""] * 19)
    if kind == "no top":
        top.remove_kernels("cuda")
    if kind == "a wrong top":
        top.remove_kernels("cuda", "float64")
    _, steps = search(model, **more)
    assert {step.how for step in steps} == {"launches"}
    assert ("no CUDA graph of a step" in caplog.text) == (kind == "no kernel")


def test_steps_with_more_hypotheses_than_the_kernel_takes_are_graphs_of_references(
    launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beam_kernel, "MOST", 1)
    model = model_of()
    expected, _ = search_by_launches(model)
    del launched[:]
    found, steps = search(model)
    assert found == expected
    assert [step.how for step in steps] == ["launches"] + (len(steps) - 1) * ["graph"]
    assert {"top_k_double", "extend_beams"} & set(launched) == {"top_k_double"}


def test_steps_without_memory_for_a_graph_are_launched(
    launched: list[str], cupy: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    model = model_of()
    expected, _ = search_by_launches(model)
    free_unused_memory(cupy)  # of graphs of other tests
    monkeypatch.setattr(fake_cuda, "LIMIT", fake_cuda.Memory.used)  # only the pool of graphs takes such memory here
    found, steps = search(model)
    assert found == expected
    assert {step.how for step in steps} == {"launches"}
    assert caplog.text.count("no CUDA graph of a step of the search: the GPU has no ") == 1


def search_of_lines(model: Transformer, n: int) -> tuple[list[list[Hypothesis]], list[int]]:
    """Return the hypotheses of n lines of equal length, and the numbers of lines counted as finished."""
    sources = np.random.default_rng(0).integers(4, 19, (12, 9)).tolist()[:n]
    lines = LineSearch([model], Any, sources, [NO_PREFIX] * n, None, None, None, None)
    counted: list[int] = []
    return lines.run(SearchConfig(beam=2, max_extra_tokens=12), 1, counted.append), counted


def free_unused_memory(cupy: Any) -> None:
    gc.collect()
    for pool in (cupy.get_default_memory_pool(), *(stream.pool for some in graphs._idle.values() for stream in some)):
        pool.free_all_blocks()


def test_if_memory_does_not_suffice_fewer_lines_are_at_work(
    launched: list[str], cupy: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A number of slots that does not fit is halved; lines are counted once, and have the same translations.

    Other processes of the GPU take memory that was free when the batch was chosen.
    """
    caplog.set_level("INFO")
    monkeypatch.setattr(fake_cuda.runtime, "memGetInfo", lambda: (2 * 10**9, 8 * 10**9))
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
    model, at_once, run = model_of(), list[int](), BeamSearch.run
    monkeypatch.setattr(BeamSearch, "run", lambda self: (at_once.append(len(self.sentences)), run(self))[1])
    expected, _ = search_of_lines(model, 12)
    free_unused_memory(cupy)
    search_of_lines(model, 2)
    limit = fake_cuda.Memory.used
    free_unused_memory(cupy)
    at_once.clear()
    monkeypatch.setattr(fake_cuda, "LIMIT", limit)
    found, counted = search_of_lines(model, 12)
    assert at_once == [16, 6]
    assert found == expected
    assert sum(counted) == 12
    assert caplog.text.count("out of memory with 12 lines at once") == caplog.text.count("out of memory") == 1


def test_a_gpu_with_little_free_memory_searches_few_lines_at_once(
    launched: list[str], cupy: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Caches and logits of the longest lines take half of the free memory; without a failure, and in every search."""
    caplog.set_level("INFO")
    model, at_once, run = model_of(), list[int](), BeamSearch.run
    monkeypatch.setattr(BeamSearch, "run", lambda self: (at_once.append(len(self.sentences)), run(self))[1])
    expected, _ = search_of_lines(model, 12)
    one_line = bytes_of_search(model, 9, SearchConfig(beam=2, max_extra_tokens=12))
    free_unused_memory(cupy)
    monkeypatch.setattr(line_search, "free_gpu_memory", lambda: 2 * 5 * one_line + 1)
    for _ in range(2):
        at_once.clear()
        assert search_of_lines(model, 12)[0] == expected
        assert at_once == [5]
    assert "out of memory" not in caplog.text


def test_the_memory_of_a_search_is_that_of_its_caches_and_logits() -> None:
    """A source is counted twice; keys and values may have 16 bits, logits have 32."""
    config = SearchConfig(beam=4, max_extra_tokens=100, max_length_factor=None)
    for dtype, item_size in (("float32", 4), ("float16", 2)):
        caches = 2 * (8 + 6) * item_size  # bytes of a step of a hypothesis
        model = Transformer(ModelConfig(vocabulary_size=19, **SIZES), dtype=dtype)
        assert bytes_of_search(model, 28, config) == (2 * 28 + 4 * 128) * caches + 4 * 4 * 19


@pytest.mark.parametrize("samples", [False, True])
@pytest.mark.parametrize(
    ("weights", "passes", "compute"), [("automatic", True, 77), ("automatic", False, 68), ("float32", True, 68)]
)
def test_a_search_multiplies_by_tf32_unless_its_check_fails_or_weights_are_float32(
    weights: Any, passes: bool, compute: int, samples: bool, launched: list[str], products_on_cpu: Recorder
) -> None:
    if not passes:
        joint_linear_maps.remove_kernels("cuda", "tf32")
    model = model_of().for_search(dtype=weights)
    sampling = Sampling(seed=1) if samples else None
    LineSearch([model], Any, SOURCES, [NO_PREFIX] * 3, None, sampling, None, None).run(
        SearchConfig(beam=2, max_extra_tokens=12), 1, lambda n: None
    )
    assert {arguments[1] for arguments in products_on_cpu.of("MatmulDescCreate")} == {compute}
    score_pairs(model, [(SOURCES[0], SOURCES[0])])
    assert products_on_cpu.of("MatmulDescCreate")[-1][1] == 68, "scores are those of float32"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("changes", [{}, *VARIANTS], ids=str)
def test_a_search_in_sixteen_bits(
    changes: dict[str, Any], dtype: Any, launched: list[str], products_on_cpu: Recorder
) -> None:
    """It finds what the same model finds on a CPU, where each operation rounds its result; only logits are float32."""
    model, config = model_of(**changes), SearchConfig(beam=2, max_extra_tokens=12, n_best=2)
    on_cpu = Transformer(model.config, seed=3, dtype=dtype)
    on_cpu.parameters.values *= 1.5
    on_cpu.parameters.refresh_low_precision()
    found, steps = search(model.for_search(dtype=dtype))
    types = [type_ for _, type_, length, *_ in products_on_cpu.of("MatrixLayoutCreate") if length != 19]
    assert set(types) == {TYPES[dtype]}
    assert Counter(step.how for step in steps)["launches"] == 1
    for some, expected in zip(found, beam_search(on_cpu, SOURCES, config), strict=True):
        assert [each.ids for each in some] == [each.ids for each in expected]
        scores = [each.score for each in expected]
        assert [each.score for each in some] == pytest.approx(scores, rel={"bfloat16": 2e-2, "float16": 3e-3}[dtype])
    short = STORAGE[dtype]
    assert {f"cached_attention_{short}", "append_16_bits_to_cache", "log_softmax_top"} <= set(launched)
    assert not any(name.endswith(("_float", "append_32_bits_to_cache")) for name in launched)


def test_logits_and_attention_weights_are_float32_in_sixteen_bits_too(launched: list[str]) -> None:
    model = model_of().for_search(dtype="float16")
    logits = model.project(Tensor(to_device(np.ones((2, 32), np.float16), "cuda"))).value
    assert logits.dtype == np.float32
    assert (to_host(upcast(rounded(logits, "float16"))) != to_host(logits)).any()
    lines = LineSearch([model], Any, SOURCES, [NO_PREFIX] * 3, None, Sampling(seed=1), None, None)
    found = lines.run(SearchConfig(max_extra_tokens=12), 1, lambda n: None)
    assert all(each.ids for (each, *_) in found)
    weights = source_attention_weights(model, SOURCES[0], found[0][0].ids, 0)
    assert weights.dtype == np.float32
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "change", "message"),
    [
        ("int8", "", "one of .*'float16', 'bfloat16'. on \"cuda\"; got 'int8'"),
        ("bfloat16", "an old GPU", '"float32" here .the GPU has compute capability 7.5, and bfloat16 needs 8.0.'),
        ("float16", "no kernel", '"float32" here .no kernel of products in float16 has passed its check'),
        ("float16", "a wrong kernel", '"float32" here .no kernel of products in float16 has passed its check'),
        ("float16", "a great weight", '"bfloat16" or "float32", because a weight is 70000; got'),
    ],
)
def test_weights_in_which_a_gpu_cannot_compute_are_refused(
    dtype: Any, change: str, message: str, launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of()
    if change == "an old GPU":
        monkeypatch.setattr(fake_cuda.Device, "compute_capability", "75")
    if change == "a great weight":
        model.parameters.values[7] = 7e4
    if change == "a wrong kernel":
        linear.remove_kernels("cuda", "float16")
        model.for_search(dtype="bfloat16")
    with references_only(when=change == "no kernel"), pytest.raises(ConfigError, match=message):
        model.for_search(dtype=dtype)
