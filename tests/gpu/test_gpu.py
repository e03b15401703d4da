"""The real thing: every operation, the model, its training and its search on a GPU against NumPy; and products."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_kernels import KERNELS, needs_gpu, registered
from draws import Draw
from op_cases import CASES as EVERY_OPERATION
from op_cases import OpCase

from autograd import RandomStream, Segments, Tensor, backward, to_device, to_host
from autograd.array import Device, device_of, namespace_of_device
from autograd.graphs import GraphStream
from autograd.kernels.cuda.check import CHILD, check_results
from autograd.kernels.cuda.products import multiplied, product
from autograd.op import operations
from autograd.optim import Adam
from autograd.precision import rounded, upcast
from autograd.random import StreamId, random_words
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.inference.beam import beam_search
from minitransformer.inference.beam_steps import BeamSearch
from minitransformer.inference.search import SearchConfig
from minitransformer.model.masks import causal_mask, encoder_decoder_mask, self_attention_mask

CHILD_ON_STAND_IN = Path(__file__).parents[1] / "support" / "checking_child.py"
RELATIVE = {"float32": 1e-5, "float64": 1e-13}
STREAM_ID = StreamId(seed=5, stream=1, update=3, micro_batch=2)
DROPOUT = {"rate": 0.3, "stream_id": STREAM_ID}
NOT_GIVEN: Any = None  # the operation on the CPU computes what is expected
SOURCE, TARGET = Segments.of_lengths([7, 1, 30, 4]), Segments.of_lengths([3, 9, 1, 33])
SIZES = {"B": 2, "T": 70, "S": 20, "D": 33, "H": 4, "K": 8, "V": 5, "W": 30}  # more than a block of threads


def case_of(op: str, name: str, *shapes: tuple[int, ...], **static: Any) -> OpCase:
    return OpCase(op, lambda draw: tuple(draw(*shape) for shape in shapes), NOT_GIVEN, lambda draw: static, name)


def attention_case(name: str, mask: Any, **static: Any) -> OpCase:
    n_queries, n_keys = mask.queries.n_tokens, mask.keys.n_tokens
    return case_of("attention", name, (n_queries, 2, 8), (n_keys, 2, 8), (n_keys, 2, 5), mask=mask, **static)


CASES = [
    *EVERY_OPERATION,
    OpCase("embedding", lambda draw: (draw(11, 33), draw.integers(11, 300)), NOT_GIVEN, name="with repeated ids"),
    case_of("layer_norm", "of a width that has a kernel", (70, 128), (128,), (128,)),
    case_of("add_norm", "of a width that has a kernel", (70, 128), (70, 128), (128,), (128,), **DROPOUT),
    attention_case("of the encoder", self_attention_mask(SOURCE)),
    attention_case("of the decoder", causal_mask(TARGET)),
    attention_case("to the source", encoder_decoder_mask(TARGET, SOURCE), **DROPOUT),
    attention_case("of neighbours", self_attention_mask(SOURCE, 2)),
]


@pytest.fixture(params=["references", "kernels"])
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    """The reference operations on CuPy's arrays, and our own CUDA kernels."""
    if request.param == "references":
        yield
    else:
        with registered():
            assert "cuda" in {kernel.device for kernel in operations["layer_norm"].kernels}
            yield


def on(device: Device, x: Any, dtype: str) -> Any:
    """A float64 array as a leaf of ``dtype`` on the device, integers bare; None stays None."""
    if x is None:
        return None
    return Tensor(to_device(x.astype(dtype), device)) if x.dtype == np.float64 else to_device(x, device)


def run(case: OpCase, device: Device, dtype: str) -> list[Any]:
    """The value, then the gradients of all differentiable arguments along one direction."""
    draw = Draw(np.random.default_rng(8), SIZES)
    arguments = [on(device, x, dtype) for x in case.arguments(draw)]
    static = {name: to_device(x, device) if isinstance(x, np.ndarray) else x for name, x in case.static(draw).items()}
    result = operations[case.op](*arguments, **static)
    direction = np.random.default_rng(9).standard_normal(result.shape)
    backward(result, to_device(np.asarray(direction, dtype), device))
    return [result.value, *(x.grad for x in arguments if isinstance(x, Tensor))]


def assert_near(on_gpu: Any, expected: Any, relative: float, *, least: float = 0.0) -> None:
    """By the Euclidean norm, relative to that of what is expected, or to ``least`` if that is smaller."""
    assert device_of(on_gpu) == "cuda"
    assert on_gpu.shape == expected.shape
    assert np.linalg.norm(to_host(on_gpu) - expected) <= relative * max(np.linalg.norm(expected), least)


@needs_gpu
def test_every_kernel_passes_the_check_at_first_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    is_stand_in = namespace_of_device("cuda").__version__ == "stand-in"
    results = check_results((sys.executable, str(CHILD_ON_STAND_IN), "{}") if is_stand_in else CHILD)
    assert results.warnings() == []
    assert set(results.right()) == KERNELS.keys()


@needs_gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_value_and_gradients_of_each_op_equal_numpy_in_float64(implementation: None, case: OpCase, dtype: str) -> None:
    for got, expected in zip(run(case, "cuda", dtype), run(case, "cpu", "float64"), strict=True):
        assert got.dtype == dtype
        assert_near(got, expected, RELATIVE[dtype], least=1e-2)


@needs_gpu
@pytest.mark.parametrize("count", [1, 4, 5, 100_003])
def test_random_bits_equal_those_of_numpy(implementation: None, count: int) -> None:
    like = to_device(np.empty(0), "cuda")
    expected = random_words(np.empty(0), stream_id=STREAM_ID, count=count)
    assert np.array_equal(to_host(random_words(like, stream_id=STREAM_ID, count=count)), expected)


VARIATIONS = {
    "paper": {},
    "all kinds of dropout": {"p_drop": 0.3, "p_drop_attention": 0.2, "p_drop_relu": 0.1},
    "pre norm, nothing tied": {"norm": "pre", "tied": "none"},
    "learned positions, neighbourhood": {"positions": "learned", "max_positions": 100, "neighbourhood": 2},
    "biases, from position 1": {
        "attention_bias": True,
        "softmax_bias": True,
        "first_position": 1,
        "layer_norm_eps": 1e-5,
    },
    "swish, fewer decoder layers": {"activation": "swish", "n_decoder_layers": 1},
    "gelu": {"activation": "gelu"},
    "gelu by tanh": {"activation": "gelu_tanh"},
    "smoothing over V-2": {"label_smoothing_over": "V-2"},
    "heads that have a kernel": {"d_k": 32, "d_v": 32},
}


def model_on(device: Device, variation: str, dtype: str = "float32") -> Transformer:
    fields = {"vocabulary_size": 61, "n_layers": 2, "d_model": 128, "d_ff": 64, "n_heads": 4, "d_k": 8, "d_v": 6}
    return Transformer(
        ModelConfig.from_mapping({**fields, **VARIATIONS[variation]}), seed=3, dtype=dtype, device=device
    )


def sentences(*lengths: int) -> list[list[int]]:
    random = np.random.default_rng(4)
    return [random.integers(3, 61, length).tolist() for length in lengths]


SOURCES, TARGETS = sentences(12, 0, 1, 30, 7), sentences(1, 25, 0, 9, 8)


def with_gradients(device: Device, variation: str, dtype: str) -> tuple[Transformer, Any]:
    """Return a model after the backward pass, and the loss."""
    model = model_on(device, variation, dtype)
    loss = model.loss(Batch.from_token_ids(SOURCES, TARGETS), RandomStream(1, update=2))
    backward(loss)
    return model, loss.value


@needs_gpu
@pytest.mark.parametrize(("dtype", "relative"), [("float32", 1e-4), ("float64", 1e-11)])
@pytest.mark.parametrize("variation", VARIATIONS)
def test_the_model_equals_numpy_in_float64(implementation: None, variation: str, dtype: str, relative: float) -> None:
    expected, right_loss = with_gradients("cpu", variation, "float64")
    got, loss = with_gradients("cuda", variation, dtype)
    assert_near(loss, right_loss, relative)
    of_all = float(np.linalg.norm(expected.parameters.gradients))
    for (name, parameter), (_, twin) in zip(expected.named_parameters(), got.named_parameters(), strict=True):
        is_rounding = name.endswith("key.bias")  # softmax takes no notice of it: the gradient is 0
        assert_near(twin.grad, parameter.grad, relative, least=of_all if is_rounding else 0.0)


@needs_gpu
@pytest.mark.parametrize("variation", VARIATIONS)
def test_loss_and_gradients_in_bfloat16_equal_numpy_but_for_rounding(implementation: None, variation: str) -> None:
    """A tenth: what changes sides at the kinks of ReLU, as in the same test on the CPU.  An update rounds copies."""
    expected, right_loss = with_gradients("cpu", variation, "float64")
    got, loss = with_gradients("cuda", variation, "bfloat16")
    assert_near(loss, right_loss, 2e-3)
    assert got.parameters.gradients.dtype == np.float32
    assert_near(got.parameters.gradients, expected.parameters.gradients, 0.1)
    Adam(got.parameters).step(1e-3, 1)
    values, low_precision = to_host(got.parameters.values), to_host(got.parameters.low_precision)
    assert np.array_equal(upcast(low_precision), upcast(rounded(values)))


@needs_gpu
def test_the_loss_of_two_runs_is_the_same(implementation: None) -> None:
    batch = Batch.from_token_ids(SOURCES, TARGETS)
    losses = [float(model_on("cuda", "all kinds of dropout").loss(batch, RandomStream(1))) for _ in range(2)]
    assert losses[0] == losses[1]


@needs_gpu
def test_ten_updates_equal_numpy(implementation: None) -> None:
    batch, trained = Batch.from_token_ids(SOURCES, TARGETS), []
    for device in ("cpu", "cuda"):
        model = model_on(device, "all kinds of dropout", "float64")
        adam = Adam(model.parameters)
        for step in range(1, 11):
            backward(model.loss(batch, RandomStream(1, step)))
            adam.step(1e-3, step)
        trained.append(model.parameters.values)
    assert_near(trained[1], trained[0], 1e-9)


@needs_gpu
@pytest.mark.parametrize("beam", [1, 4])
def test_beam_search_finds_what_numpy_finds(implementation: None, beam: int) -> None:
    search = SearchConfig(beam=beam, n_best=beam, max_extra_tokens=20)
    here, there = (beam_search(model_on(device, "paper", "float64"), SOURCES, search) for device in ("cpu", "cuda"))
    assert [[hypothesis.ids for hypothesis in best] for best in there] == [[h.ids for h in best] for best in here]


@needs_gpu
@pytest.mark.parametrize("variation", ["paper", "learned positions, neighbourhood"])
def test_steps_as_graphs_leave_the_translations_of_launches(variation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, graphs, capture = model_on("cuda", variation).for_search(), list[Any](), GraphStream.capture
    monkeypatch.setattr(GraphStream, "capture", lambda *some: (graphs.append(capture(*some)), graphs[-1])[1])
    search = SearchConfig(beam=4, n_best=4, max_extra_tokens=60)
    with registered():
        by_graphs = beam_search(model, SOURCES, search)
        assert graphs
        monkeypatch.setattr(GraphStream, "capture", no_graph)
        monkeypatch.setattr(BeamSearch, "restart", lambda *some: False)
        assert beam_search(model, SOURCES, search) == by_graphs


@needs_gpu
def test_sentences_in_a_few_slots_have_the_translations_of_each_alone() -> None:
    model, search = model_on("cuda", "paper").for_search(), SearchConfig(beam=4, n_best=4, max_extra_tokens=20)
    with registered():
        alone = [beam_search(model, [source], search)[0] for source in SOURCES]
        found = beam_search(model, SOURCES, search, n_at_once=2)
    assert [[each.ids for each in best] for best in found] == [[each.ids for each in best] for best in alone]


@needs_gpu
def test_a_graph_of_one_sentence_finds_the_translations_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    model, search = model_on("cuda", "paper").for_search(), SearchConfig(beam=4, n_best=4, max_extra_tokens=20)
    sources = [source for source in SOURCES if source]
    with registered():
        expected = [beam_search(model_on("cuda", "paper").for_search(), [source], search) for source in sources]
        beam_search(model, sources[-1:], search)
        monkeypatch.setattr(GraphStream, "capture", no_graph)
        monkeypatch.setattr(BeamSearch, "_step", no_graph)
        assert [beam_search(model, [source], search) for source in sources] == expected


def no_graph(*arguments: Any) -> None:
    raise RuntimeError("this search is to launch its kernels one by one")


# Products by cuBLASLt: the base model's shapes, the same bits twice, and in a graph.

OFF = {"float32": 2e-5, "bfloat16": 4e-3}  # a sum of 37,000 products, one after the other in float32, is off by 3e-6
PRODUCTS = {"attention": (3_001, 512, 512), "hidden": (3_001, 512, 2_048), "vocabulary": (3_001, 512, 37_000)}
RANDOM = np.random.default_rng(3)


def drawn(dtype: str, *shape: int) -> Any:
    values = to_device(RANDOM.standard_normal(shape, np.float32), "cuda")
    return rounded(values) if dtype == "bfloat16" else values


def assert_product(got: Any, left: Any, right: Any, relative: float) -> None:
    xp = namespace_of_device("cuda")
    exact = left.astype("float64") @ right.astype("float64")
    assert float(xp.linalg.norm(got.astype("float64") - exact) / xp.linalg.norm(exact)) < relative


@needs_gpu
@pytest.mark.parametrize("dtype", OFF)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_the_model(name: str, dtype: str) -> None:
    n_tokens, d_in, d_out = PRODUCTS[name]
    x, weight, dy = drawn(dtype, n_tokens, d_in), drawn(dtype, d_in, d_out), drawn(dtype, n_tokens, d_out)
    assert_product(multiplied(x, weight), x, weight, OFF[dtype])
    assert_product(multiplied(dy, weight.T), dy, weight.T, OFF[dtype])
    gradient = drawn("float32", d_in, d_out)
    product(x.T, dy, gradient)
    assert_product(gradient, x.T, dy, OFF["float32"])
    once = gradient.copy()
    product(x.T, dy, gradient)
    assert (gradient == once).all()


@needs_gpu
def test_a_captured_product_computes_with_what_is_there_when_it_is_launched() -> None:
    cuda = namespace_of_device("cuda").cuda
    stream, before = cuda.Stream(non_blocking=True), cuda.get_current_stream().record()
    with stream:
        stream.wait_event(before)
        x, weight, bias = drawn("bfloat16", 300, 64), drawn("bfloat16", 64, 128), drawn("bfloat16", 128)
        y, gradient = drawn("bfloat16", 300, 128), drawn("float32", 64, 128)

        def compute() -> None:
            product(x, weight, y, epilogue="relu_bias", bias=bias)
            product(x.T, y, gradient, add=True)

        compute()
        stream.begin_capture()
        compute()
        graph = stream.end_capture()
        x[...], gradient[...] = drawn("bfloat16", 300, 64), 0
        graph.launch(stream)
        replayed = y.copy(), gradient.copy()
        gradient[...] = 0
        compute()
        for of_graph, x in zip(replayed, (y, gradient), strict=True):
            assert bool((upcast(of_graph) == upcast(x)).all())
