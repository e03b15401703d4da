"""Layers and positions: gradients and the words of the paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autograd import Blocks, Layer, ParameterBuffer, RandomStream, Tensor
from autograd.testing import check_gradients
from minitransformer import ModelConfig
from minitransformer.model.batch import Batch
from minitransformer.model.layers import Embedding, FeedForward, LayerNorm, Linear, MultiHeadAttention, Residual
from minitransformer.model.positions import positions_of
from minitransformer.model.spans import causal_spans, encoder_decoder_spans, self_attention_spans
from minitransformer.model.stacks import DecoderLayer, EncoderLayer

CONFIG = ModelConfig(vocabulary_size=9, d_model=4, d_ff=5, n_heads=2, d_k=3, d_v=2, p_drop=0.2)
LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def ready(layer: Any) -> Any:
    """A layer with random parameters in float64 (gains and biases too, which begin as ones and zeros)."""
    buffer = ParameterBuffer(layer, seed=1, dtype="float64")
    buffer.values += 0.1 * np.random.default_rng(1).standard_normal(len(buffer.values))
    layer.buffer = buffer
    return layer


def leaves_of(layer: Any) -> dict[str, Tensor]:
    return dict(layer.buffer.named)


def rows(n: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((n, CONFIG.d_model))


def run_encoder_layer(layer: Any, blocks: Blocks) -> Callable[[Tensor], Tensor]:
    return lambda x: layer(x, self_attention_spans(blocks), RandomStream(3))


def run_decoder_layer(layer: Any, blocks: Blocks) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, memory: layer(
        x, layer.source_attention.keys_values(memory), causal_spans(blocks), encoder_decoder_spans(blocks, blocks),
        RandomStream(3),
    )  # fmt: skip


LAYERS: dict[str, tuple[Callable[[], Layer], Callable[[Any, Blocks], Callable[..., Tensor]], int]] = {
    "Linear": (lambda: Linear(4, 3, bias=True), lambda layer, blocks: layer, 1),
    "LayerNorm": (lambda: LayerNorm(4), lambda layer, blocks: layer, 1),
    "FeedForward": (lambda: FeedForward(CONFIG), lambda layer, blocks: lambda x: layer(x, RandomStream(2)), 1),
    "MultiHeadAttention": (
        lambda: MultiHeadAttention(CONFIG),
        lambda layer, blocks: lambda x, m: layer(x, layer.keys_values(m), self_attention_spans(blocks)),
        2,
    ),
    "Residual, post": (
        lambda: Residual(CONFIG), lambda layer, blocks: lambda x: layer(x, lambda x: x * 2.0, RandomStream(1)), 1
    ),
    "Residual, pre": (
        lambda: Residual(dataclasses.replace(CONFIG, norm="pre")),
        lambda layer, blocks: lambda x: layer(x, lambda x: x * x, RandomStream(1)), 1,
    ),
    "EncoderLayer": (lambda: EncoderLayer(CONFIG), run_encoder_layer, 1),
    "EncoderLayer, pre": (lambda: EncoderLayer(dataclasses.replace(CONFIG, norm="pre")), run_encoder_layer, 1),
    "DecoderLayer": (lambda: DecoderLayer(CONFIG), run_decoder_layer, 2),
    "DecoderLayer, pre": (lambda: DecoderLayer(dataclasses.replace(CONFIG, norm="pre")), run_decoder_layer, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
@given(lengths=LENGTHS, seed=st.integers(0, 1000))
@settings(max_examples=4, deadline=None)
def test_gradients_of_layers(name: str, lengths: list[int], seed: int) -> None:
    make, bind, n_inputs = LAYERS[name]
    layer, blocks = ready(make()), Blocks.of_lengths(lengths)
    inputs = [rows(blocks.n_tokens, seed + i) for i in range(n_inputs)]
    check_gradients(bind(layer, blocks), *inputs, leaves=leaves_of(layer), name=name, seed=seed)


@pytest.mark.parametrize("positions", ["interleaved", "halves", "learned"])
def test_gradients_of_embedding_with_positions(positions: Any) -> None:
    class Embedded(Layer):
        def __init__(self) -> None:
            self.embedding = Embedding(9, 4)
            self.positions = positions_of(dataclasses.replace(CONFIG, positions=positions, max_positions=5))

    layer = ready(Embedded())
    ids, places = np.array([3, 3, 8, 1]), np.array([0, 1, 0, 1])
    check_gradients(lambda: layer.positions.add_to(layer.embedding(ids), places), leaves=leaves_of(layer))


def test_post_norm_normalises_the_sum_and_pre_norm_the_input() -> None:
    x = Tensor(rows(3))
    norm = LayerNorm(4)
    ParameterBuffer(norm, seed=1, dtype="float64")
    post, pre = (ready_plain(Residual(dataclasses.replace(CONFIG, norm=place))) for place in ("post", "pre"))
    np.testing.assert_allclose(post(x, lambda x: x * 3.0, None).value, norm(x * 4.0).value)
    np.testing.assert_allclose(pre(x, lambda x: x * 3.0, None).value, (x + norm(x) * 3.0).value)


def ready_plain(layer: Any) -> Any:
    ParameterBuffer(layer, seed=1, dtype="float64")
    return layer


def test_embeddings_are_scaled_by_the_root_of_the_width() -> None:
    embedding = ready_plain(Embedding(9, 4))
    np.testing.assert_allclose(embedding(np.array([2])).value[0], 2 * embedding.weight.value[2])


def test_batches_close_sources_and_shift_targets() -> None:
    batch = Batch.from_token_ids([[5, 6], []], [[7], [8, 9]])
    assert batch.source_ids.tolist() == [5, 6, 2, 2]
    assert batch.decoder_ids.tolist() == [1, 7, 1, 8, 9]
    assert batch.labels.tolist() == [7, 2, 8, 9, 2]
    assert (batch.n_source_tokens, batch.n_target_tokens, len(batch)) == (4, 5, 2)
