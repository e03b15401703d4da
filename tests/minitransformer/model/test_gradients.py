"""Every layer and the whole model, of any configuration: gradients against central differences."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from minitransformer.model.layers import (
    Embedding,
    FeedForward,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    Residual,
    keys_values_of_each,
)
from minitransformer.model.masks import causal_mask, encoder_decoder_mask, self_attention_mask
from minitransformer.model.positions import positions_of
from minitransformer.model.stacks import Decoder, DecoderLayer, Encoder, EncoderLayer
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


@contextmanager
def looking_at_relu() -> Iterator[list[Any]]:
    """Where what enters ReLU is above 0: seen by a kernel that looks at its arguments and supports none."""
    seen: list[Any] = []

    def look(x: Any, weight: Any, bias: Any) -> bool:
        seen.append(x @ weight + bias > 0)
        return False

    ops.linear_relu.kernel("cpu", supports=look)(ops.linear_relu.reference)
    try:
        yield seen
    finally:
        ops.linear_relu.kernels.pop(0)


def away_from_the_kink(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``function``; an example in which a step takes anything that enters ReLU across 0 is dropped."""
    first: list[Any] = []

    @functools.wraps(function)
    def watched(*arguments: Any) -> Tensor:
        with looking_at_relu() as signs:
            result = function(*arguments)
        first.extend(signs[len(first) :])
        if any((a != b).any() for a, b in zip(signs, first, strict=True)):
            reject()
        return result

    return watched


# Layers: each function gives one, what to compute with it, and the segments of tokens that go in.

Subject = tuple[Any, Callable[..., Tensor], list[Segments]]
stream = functools.partial(RandomStream, 3)


def linear(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    layer = Linear(config.d_model, config.d_ff, bias=config.attention_bias)
    return layer, layer, [target]


def layer_norm(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    layer = LayerNorm(config.d_model, eps=config.layer_norm_eps)
    return layer, layer, [target]


def embedding(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    layer = Embedding(W, config.d_model)
    return layer, lambda: layer(target.position_in_segment % W), []


def transposed_embedding(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    layer = Embedding(W, config.d_model)
    return layer, layer.logits, [target]


def positions(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    layer = positions_of(config)
    return layer, lambda x: layer.add_to(x, target.position_in_segment), [target]


def embedding_with_positions(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    class Embedded(Layer):
        def __init__(self) -> None:
            self.embedding, self.positions = Embedding(W, config.d_model), positions_of(config)

    layer, positions = Embedded(), target.position_in_segment
    return layer, lambda: layer.embedding.with_positions(positions % W, layer.positions, positions, 0.0, None), []


def self_attention(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    layer, mask = MultiHeadAttention(config), causal_mask(target, config.neighbourhood)
    return layer, lambda x: layer(*layer.queries_keys_values(x), mask, stream()), [target]


def cross_attention(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    layer, mask = MultiHeadAttention(config), encoder_decoder_mask(target, source)

    def run(x: Tensor, memory: Tensor) -> Tensor:
        return layer(layer.queries(x), *keys_values_of_each([layer], memory), mask, stream())

    return layer, run, [target, source]


def feed_forward(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    layer = FeedForward(config)
    return layer, lambda x: layer(x, stream()), [target]


def residual(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    layer = Residual(config)

    def run(x: Tensor) -> Tensor:
        y = layer.sublayer_input(x)
        return layer(x, y * y, stream())

    return layer, run, [target]


def encoder_layer(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    layer, mask = EncoderLayer(config), self_attention_mask(source, config.neighbourhood)
    return layer, lambda x: layer(x, mask, stream()), [source]


def decoder_layer(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    layer, mask = DecoderLayer(config), causal_mask(target, config.neighbourhood)
    to_source = encoder_decoder_mask(target, source)

    def run(x: Tensor, encoded: Tensor) -> Tensor:
        return layer(x, *keys_values_of_each([layer.source_attention], encoded), mask, to_source, stream())

    return layer, run, [target, source]


def encoder(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    layer, mask = Encoder(config), self_attention_mask(source, config.neighbourhood)
    return layer, lambda x: layer(x, mask, stream()), [source]


def decoder(config: ModelConfig, source: Segments, target: Segments) -> Subject:
    layer, mask = Decoder(config), causal_mask(target, config.neighbourhood)
    to_source = encoder_decoder_mask(target, source)
    return layer, lambda x, encoded: layer(x, layer.memory(encoded), mask, to_source, stream()), [target, source]


PARTS = [
    linear, layer_norm, embedding, transposed_embedding, positions, embedding_with_positions, self_attention,
    cross_attention, feed_forward,
]  # fmt: skip
FRAMED = [residual, encoder_layer, decoder_layer, encoder, decoder]  # by norms, before or behind the sublayers
LARGE = ModelConfig(
    vocabulary_size=W,
    n_layers=1,
    d_model=8,
    d_ff=9,
    n_heads=3,
    d_k=2,
    d_v=4,
    positions="learned",
    max_positions=LONGEST + 1,
    first_position=1,
    neighbourhood=1,
    p_drop=0.3,
    p_drop_attention=0.3,
    p_drop_relu=0.3,
)
SMALL = ModelConfig(vocabulary_size=W, n_layers=1, d_model=4, d_ff=3, n_heads=2, d_k=1, d_v=2)
drawn = given(config=configurations(), pairs=PAIRS, scale=SCALES, seed=SEEDS)
unequal = example(config=LARGE, pairs=UNEQUAL, scale=1.0, seed=1)
one_token = example(config=dataclasses.replace(LARGE, n_heads=1, d_ff=1), pairs=[(0, 0)], scale=1.0, seed=1)


def check_layer(build: Any, config: ModelConfig, pairs: Any, scale: float, seed: int) -> None:
    source, target = (Segments.of_lengths([pair[side] + 1 for pair in pairs]) for side in (0, 1))
    layer, function, segments = build(config, source, target)
    leaves = scatter(ParameterBuffer(layer, seed=1, dtype="float64"), scale, seed)
    random = np.random.default_rng(seed)
    inputs = [scale * random.standard_normal((b.n_tokens, config.d_model)) for b in segments]
    check_gradients(
        away_from_the_kink(function), *inputs, leaves=leaves, name=build.__name__, max_coordinates=12, seed=seed
    )


@pytest.mark.parametrize("build", PARTS)
@unequal
@one_token
@drawn
@settings(max_examples=8)
def test_gradients_of_layers(build: Any, config: ModelConfig, pairs: Any, scale: float, seed: int) -> None:
    check_layer(build, config, pairs, scale, seed)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("build", FRAMED)
@unequal
@one_token
@drawn
@settings(max_examples=3)
def test_gradients_of_stacks(build: Any, norm: Any, config: ModelConfig, pairs: Any, scale: float, seed: int) -> None:
    check_layer(build, dataclasses.replace(config, norm=norm), pairs, scale, seed)


# The whole model.


VARIANTS = [
    {"norm": norm, "tied": tied, "source_vocabulary_size": None if tied == "all" else SOURCE_W}
    for norm in ("post", "pre")
    for tied in ("all", "target", "none")
]
all_variants = pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: "{norm} {tied}".format(**variant))


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


@all_variants
@unequal
@drawn
@settings(max_examples=5)
def test_gradients_of_the_whole_model(variant: Any, config: ModelConfig, pairs: Any, scale: float, seed: int) -> None:
    check_model(dataclasses.replace(config, **variant), pairs, scale, seed)


@all_variants
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
