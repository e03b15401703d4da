"""Dropout in layers and in whole models: a mask depends on its stream id and on nothing computed before."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from masks import DTYPES, STREAM_ID, bits, mask_of

from autograd import ParameterBuffer, RandomStream, Tensor, backward, ops
from autograd.random import StreamId
from minitransformer.config import ModelConfig
from minitransformer.model.batch import Batch
from minitransformer.model.layers import FeedForward, Residual
from minitransformer.model.transformer import Transformer
from tests.support.training import TINY


@DTYPES
def test_the_feed_forward_network_drops_behind_the_relu_with_one_mask_forward_and_backward(dtype: str) -> None:
    """Both matrices are the identity, so that ones come out as the mask, and their gradient is the mask."""
    n_tokens, width = 30, 16
    layer = FeedForward(ModelConfig(d_model=width, d_ff=width, p_drop_relu=0.3, p_drop=0.0))
    ParameterBuffer(layer, seed=None, dtype=dtype)
    for matrix in (layer.hidden.weight, layer.output.weight):
        matrix.value[...] = np.eye(width)
    x = Tensor(np.ones((n_tokens, width), dtype))
    y = layer(x, RandomStream(STREAM_ID.seed))
    backward(ops.sum(y))
    assert bits(y.value) == bits(mask_of(0.3, STREAM_ID, n_tokens, width, dtype=dtype))
    assert bits(x.grad) == bits(y.value)


def test_a_residual_frame_drops_its_sublayer_alone_with_one_mask_forward_and_backward() -> None:
    layer = Residual(ModelConfig(d_model=16, norm="pre", p_drop=0.3))
    ParameterBuffer(layer, seed=1, dtype="float64")
    x, sublayer_output = Tensor(np.zeros((30, 16))), Tensor(np.ones((30, 16)))
    y = layer(x, sublayer_output, RandomStream(STREAM_ID.seed))
    backward(ops.sum(y))
    assert bits(y.value) == bits(mask_of(0.3, STREAM_ID, 30, 16))
    assert bits(sublayer_output.grad) == bits(y.value)
    np.testing.assert_array_equal(x.grad, 1)


MODEL = dataclasses.replace(TINY, n_layers=2, p_drop=0.3, p_drop_attention=0.2, p_drop_relu=0.25)
MICRO_BATCHES = [
    Batch.from_token_ids([[3, 4, 5], [6]], [[7, 8], [9, 10, 3]]),
    Batch.from_token_ids([[8, 9, 3, 4, 4, 5]], [[5, 6, 7]]),
    Batch.from_token_ids([[], [10], [3, 3]], [[4], [], [6, 6, 6, 6]]),
]


def test_every_dropout_of_a_model_has_a_stream_id_of_its_own() -> None:
    """Two sums of embeddings and positions, then in each layer the weights and the result of every sublayer."""
    drawn: list[StreamId] = []

    class NotedStream(RandomStream):
        def next_id(self) -> StreamId:
            drawn.append(super().next_id())
            return drawn[-1]

    Transformer(MODEL).loss(MICRO_BATCHES[0], NotedStream(1, 2, 3))
    in_encoder_layer, in_decoder_layer = 2 + 2, 2 + 2 + 2
    assert len(set(drawn)) == len(drawn) == 2 + MODEL.n_layers * (in_encoder_layer + in_decoder_layer)


def micro_batch_result(model: Transformer, micro_batch: int) -> tuple[Any, ...]:
    """Loss and gradients of a micro-batch, which its masks decide."""
    gradients = np.zeros_like(model.parameters.gradients)
    loss = model.loss(MICRO_BATCHES[micro_batch], RandomStream(1, 2, micro_batch))
    backward(loss, into=gradients)
    return bits(loss.value), bits(gradients)


@pytest.mark.parametrize("n_threads", [1, 4])
def test_micro_batches_have_the_same_masks_whatever_is_computed_before_and_beside_them(n_threads: int) -> None:
    model, order = Transformer(MODEL), [2, 1, 0, 1, 2, 0] * 4
    alone = [micro_batch_result(Transformer(MODEL), micro_batch) for micro_batch in range(3)]
    with ThreadPoolExecutor(n_threads) as threads:
        results: list[Any] = list(threads.map(lambda micro_batch: micro_batch_result(model, micro_batch), order))
    assert results == [alone[micro_batch] for micro_batch in order]


def test_sentences_behind_it_in_the_batch_leave_a_sentence_its_masks() -> None:
    """True of all dropouts but that of attention weights, whose mask goes by the position in the padded batch."""
    model = Transformer(dataclasses.replace(MODEL, p_drop_attention=0.0), dtype="float64")
    pairs = [([3, 4, 5], [7, 8]), ([6, 9, 9, 3], [9, 10, 3, 4])]

    def logits(n_pairs: int) -> Any:
        sources, targets = zip(*pairs[:n_pairs], strict=True)
        return model.logits(Batch.from_token_ids(sources, targets), RandomStream(1)).value

    alone = logits(1)
    np.testing.assert_allclose(logits(2)[: len(alone)], alone, rtol=0, atol=1e-12)
