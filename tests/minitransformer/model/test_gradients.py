"""Layers, stacks and the whole model, of any configuration: gradients against central differences."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption
from planting import planted

from autograd import Layer, ParameterBuffer, RandomStream, Segments, Tensor, ops
from autograd.op import operations
from autograd.tensor import nodes_in_order
from autograd.testing import STEP, GradientError, check_gradients
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.model.layers import Embedding, FeedForward, MultiHeadAttention, Residual, keys_values_of_each
from minitransformer.model.masks import causal_mask, encoder_decoder_mask, self_attention_mask
from minitransformer.model.positions import positions_of
from minitransformer.model.stacks import Decoder, Encoder
from minitransformer.model.symbols import END

W, SOURCE_W = 7, 5  # words of the target, and of the source where it has a vocabulary of its own
LONGEST = 10
RATES = st.sampled_from([0.0, 0.3])
SEEDS = st.integers(0, 2**32 - 1)
SCALES = st.sampled_from([0.1, 0.3, 1.0, 2.0, 3.0])
LENGTHS = st.tuples(st.integers(0, 4), st.integers(0, 4))  # of a source and its target, without end symbols
PAIRS = st.lists(LENGTHS, min_size=1, max_size=3)
UNEQUAL = [(0, LONGEST - 1), (LONGEST - 1, 0), (1, 2)]


@st.composite
def configurations(draw: st.DrawFn) -> ModelConfig:
    """Sizes that have nothing to do with one another; every switch either way."""
    sizes = {"n_heads": (1, 3), "d_k": (1, 4), "d_v": (1, 4), "d_ff": (1, 9), "n_layers": (1, 2)}
    choices = {
        "norm": ["post", "pre"], "tied": ["all", "target", "none"], "positions": ["interleaved", "halves", "learned"],
        "neighbourhood": [None, 0, 1], "first_position": [0, 1], "label_smoothing": [0.1, 0.0],
        "label_smoothing_over": ["V-1", "V", "V-2"], "layer_norm_eps": [1e-6, 1e-5],
        "attention_bias": [False, True], "softmax_bias": [False, True], "start": ["symbol", "zero", "end"],
        "activation": ["relu", "swish", "gelu", "gelu_tanh"], "n_decoder_layers": [None, 1, 2],
    }  # fmt: skip
    fields = {name: draw(st.integers(*limits)) for name, limits in sizes.items()}
    fields |= {name: draw(st.sampled_from(values)) for name, values in choices.items()}
    fields |= {name: draw(RATES) for name in ("p_drop", "p_drop_attention", "p_drop_relu")}
    return ModelConfig(
        vocabulary_size=W,
        source_vocabulary_size=None if fields["tied"] == "all" else SOURCE_W,
        d_model=2 * draw(st.integers(1, 4)),
        max_positions=LONGEST + 1,
        **fields,
    )


def scatter(parameters: ParameterBuffer, scale: float, seed: int) -> dict[str, Any]:
    """Give all parameters random values, those too that begin as zeros and ones; returns them by name."""
    noise = np.random.default_rng(seed).standard_normal(len(parameters.values))
    parameters.values[:] = scale * (parameters.values + 0.2 * noise)
    return dict(parameters.named)


def away_from_the_kink(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``function``; an example in which a step takes anything that enters ReLU across 0 is dropped.

    What enters it is seen by a kernel that looks at its arguments and supports none.
    """
    first: list[Any] = []

    @functools.wraps(function)
    def watched(*arguments: Any) -> Tensor:
        signs: list[Any] = []

        def look(x: Any, weight: Any, bias: Any) -> bool:
            signs.append(x @ weight + bias > 0)
            return False

        ops.linear_relu.kernel("cpu", supports=look)(ops.linear_relu.reference)
        try:
            result = function(*arguments)
        finally:
            ops.linear_relu.kernels.pop(0)
        first.extend(signs[len(first) :])
        if any((a != b).any() for a, b in zip(signs, first, strict=True)):
            reject()
        return result

    return watched


# Layers and stacks, each with what to compute with it, and the segments of tokens that go in.

Subject = tuple[Any, Callable[..., Tensor], list[Segments]]
stream = functools.partial(RandomStream, 3)
LAYERS = [
    "embedding with positions", "self-attention", "cross-attention", "feed-forward", "residual", "encoder", "decoder",
]  # fmt: skip


def subject_of(name: str, config: ModelConfig, source: Segments, target: Segments) -> Subject:
    """Linear maps, norms and tables are parts of these; a stack may have one layer."""
    layer: Any
    positions, r = target.position_in_segment, config.neighbourhood
    causal, across = causal_mask(target, r), encoder_decoder_mask(target, source)
    match name:
        case "embedding with positions":
            layer = Layer()
            layer.embedding, layer.positions = Embedding(W, config.d_model), positions_of(config)
            add = layer.embedding.with_positions
            return layer, lambda: add(positions % W, layer.positions, positions, 0.0, None), []
        case "self-attention":
            layer = MultiHeadAttention(config)
            return layer, lambda x: layer(*layer.queries_keys_values(x), causal, stream()), [target]
        case "cross-attention":
            layer = MultiHeadAttention(config)

            def attend(x: Tensor, memory: Tensor) -> Tensor:
                return layer(layer.queries(x), *keys_values_of_each([layer], memory), across, stream())

            return layer, attend, [target, source]
        case "feed-forward":
            layer = FeedForward(config)
            return layer, lambda x: layer(x, stream()), [target]
        case "residual":
            layer = Residual(config)

            def square(x: Tensor) -> Tensor:
                y = layer.sublayer_input(x)
                return layer(x, y * y, stream())

            return layer, square, [target]
        case "encoder":
            layer, mask = Encoder(config), self_attention_mask(source, r)
            return layer, lambda x: layer(x, mask, stream()), [source]
    layer = Decoder(config)
    return layer, lambda x, encoded: layer(x, layer.memory(encoded), causal, across, stream()), [target, source]


SMALL = ModelConfig(vocabulary_size=W, n_layers=1, d_model=4, d_ff=3, n_heads=2, d_k=1, d_v=2)
DROPOUT = dict.fromkeys(("p_drop", "p_drop_attention", "p_drop_relu"), 0.3)
LEARNED: dict[str, Any] = {"positions": "learned", "max_positions": LONGEST + 1, "first_position": 1}
LARGE = dataclasses.replace(SMALL, d_model=8, d_ff=9, n_heads=3, d_k=2, d_v=4, neighbourhood=1, **LEARNED, **DROPOUT)
drawn = given(config=configurations(), pairs=PAIRS, scale=SCALES, seed=SEEDS)
unequal = example(config=LARGE, pairs=UNEQUAL, scale=1.0, seed=1)
one_token = example(config=dataclasses.replace(LARGE, n_heads=1, d_ff=1), pairs=[(0, 0)], scale=1.0, seed=1)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("name", LAYERS)
@unequal
@one_token
@drawn
@settings(max_examples=4)
def test_gradients_of_layers(name: str, norm: Any, config: ModelConfig, pairs: Any, scale: float, seed: int) -> None:
    """A stack has many parameters; the random direction in each of them meets all its coordinates."""
    source, target = (Segments.of_lengths([pair[side] + 1 for pair in pairs]) for side in (0, 1))
    layer, function, segments = subject_of(name, dataclasses.replace(config, norm=norm), source, target)
    leaves = scatter(ParameterBuffer(layer, seed=1, dtype="float64"), scale, seed)
    random = np.random.default_rng(seed)
    inputs = [scale * random.standard_normal((b.n_tokens, config.d_model)) for b in segments]
    n = 4 if name in ("encoder", "decoder") else 12
    check_gradients(away_from_the_kink(function), *inputs, leaves=leaves, name=name, max_coordinates=n, seed=seed)


# The whole model.


VARIANTS = [
    {"norm": norm, "tied": tied, "source_vocabulary_size": None if tied == "all" else SOURCE_W}
    for norm in ("post", "pre")
    for tied in ("all", "target", "none")
]
name_of = "{0[norm]} {0[tied]}".format


def check_model(config: ModelConfig, pairs: Any, scale: float = 1, seed: int = 1, max_coordinates: int = 0) -> None:
    model, random = Transformer(config, dtype="float64"), np.random.default_rng(seed)
    leaves = scatter(model.parameters, scale, seed)
    batch = Batch.from_token_ids(
        [random.integers(END + 1, config.n_source_words, n) for n, _ in pairs],
        [random.integers(END + 1, W, n) for _, n in pairs],
    )
    check_gradients(
        away_from_the_kink(lambda: model.loss(batch, RandomStream(seed))),
        leaves=leaves,
        name="loss",
        max_coordinates=max_coordinates,
        seed=seed,
    )


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
@unequal
@drawn
@settings(max_examples=5)
def test_gradients_of_the_whole_model(variant: Any, config: ModelConfig, pairs: Any, scale: float, seed: int) -> None:
    check_model(dataclasses.replace(config, **variant), pairs, scale, seed)


@pytest.mark.parametrize("variant", VARIANTS[::2], ids=name_of)  # each norm, each way of tying
def test_gradients_of_the_whole_model_at_every_single_coordinate(variant: Any) -> None:
    check_model(dataclasses.replace(SMALL, **variant), [(1, 2)], max_coordinates=100)


OF_THE_MODEL = [
    "embedding_with_positions", "dropout", "linear", "reshape", "attention", "linear_relu", "add_norm",
    "linear_cross_entropy",
]  # fmt: skip


@pytest.mark.parametrize("name", [*OF_THE_MODEL, "embedding", "scale", "add", "layer_norm"])
def test_an_operation_that_is_wrong_by_a_two_thousandth_is_noticed(name: str) -> None:
    def spoil(gradients: Any, dy: Any, *arguments: Any) -> Any:
        return [dx if dx is None else 1.0005 * dx for dx in gradients]

    operations[name].kernel("cpu")(planted(name, spoil).reference)
    try:
        with pytest.raises(GradientError, match=r"^loss: gradient of [\w.]+ at \([\d, ]+\)"):
            check_model(LARGE, [(1, 2)])
    finally:
        operations[name].kernels.pop(0)


def test_the_model_has_no_other_operations() -> None:
    loss = Transformer(LARGE).loss(Batch.from_token_ids([[3]], [[4]]), stream())
    assert {node.name for node in nodes_in_order(loss.node)} == set(OF_THE_MODEL)


@given(st.floats(0, 0.9 * STEP, exclude_min=True))
def test_an_example_that_crosses_the_kink_is_dropped(x: float) -> None:
    config, n_kernels = dataclasses.replace(SMALL, d_model=2, d_ff=2, p_drop_relu=0.0), len(ops.linear_relu.kernels)
    layer = FeedForward(config)
    leaves = dict(ParameterBuffer(layer, seed=1, dtype="float64").named)
    layer.hidden.weight.value[...] = np.eye(2)
    check_gradients(away_from_the_kink(layer), np.array([[-1e-3, 1e-3]]), leaves=leaves)
    with pytest.raises(UnsatisfiedAssumption):
        check_gradients(away_from_the_kink(layer), np.array([[1.0, x]]), leaves=leaves)
    assert len(ops.linear_relu.kernels) == n_kernels
