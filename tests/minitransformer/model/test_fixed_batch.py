"""Batches that are filled up to a fixed capacity are the batch alone."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from autograd import RandomStream, backward
from autograd.tiles import tiles_of
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.model.fixed_batch import BufferLayout, Capacity, FixedBatch, fill

CONFIG = ModelConfig(19, n_layers=2, d_model=16, d_ff=16, n_heads=2, d_k=4, d_v=4, p_drop=0.3)
BATCH = Batch.from_token_ids([[5, 6, 7, 8], [], [4]], [[7], [4, 5, 6], []])
EMPTY = Batch.from_token_ids([], [])
FULL = Batch.from_token_ids([[5] * 14, []], [[6] * 9, [7] * 5])  # 16 tokens a side: no room in 16 for another source
LONG = Batch.from_token_ids([[5] * 70, [6] * 3, [5] * 9], [[7] * 130, [4], [4] * 80])
ONE = Batch.from_token_ids([[3] * 40], [[]])
MANY_SHORT = Batch.from_token_ids([[]] * 15, [[]] * 15)


def capacity_of(batches: list[Batch], step: int) -> Capacity:
    return Capacity.of([np.stack([batch.source.lengths, batch.target.lengths], 1) for batch in batches], step)


def fixed(batch: Batch, capacity: Capacity, neighbourhood: int | None = None) -> FixedBatch:
    """In arrays on the host that were full of something else; each begins where a GPU reads fast."""
    layout = BufferLayout(capacity.shapes())
    memory = np.full(layout.n_bytes, 0x7F, np.uint8)
    arrays = layout.views(memory)
    assert all((array.ctypes.data - memory.ctypes.data) % 256 == 0 for array in arrays.values())
    return FixedBatch.of(arrays, fill(arrays, batch, neighbourhood))


def results(model: Transformer, batch: Any) -> tuple[float, Any]:
    loss = model.loss(batch, RandomStream(1, update=2))
    backward(loss)
    return float(loss), model.parameters.gradients.copy()


@pytest.mark.parametrize("neighbourhood", [None, 1])
@pytest.mark.parametrize("batch", [BATCH, FULL, ONE, LONG, MANY_SHORT], ids=["small", "full", "one", "long", "many"])
@pytest.mark.parametrize(("step", "others"), [(16, [MANY_SHORT]), (48, [])])
def test_loss_and_gradient_are_those_of_the_batch_alone(
    step: int, others: list[Batch], batch: Batch, neighbourhood: int | None
) -> None:
    """Batches that differ fit into one capacity."""
    model = Transformer(dataclasses.replace(CONFIG, neighbourhood=neighbourhood), seed=2, dtype="float64")
    capacity = capacity_of([batch, *others], step)
    loss, gradient = results(model, batch)
    fixed_loss, fixed_gradient = results(model, fixed(batch, capacity, neighbourhood))
    assert fixed_loss == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(fixed_gradient, gradient, atol=1e-12 * np.abs(gradient).max())
    assert capacity.source % step == capacity.target % step == 0
    assert capacity.source > batch.n_source_tokens
    assert fixed(batch, capacity, neighbourhood).n_target_tokens == batch.n_target_tokens
    assert capacity_of([batch, *others, batch], step) == capacity


def test_a_batch_without_sentences_has_no_loss_and_no_gradient() -> None:
    loss, gradient = results(Transformer(CONFIG, dtype="float64"), fixed(EMPTY, capacity_of([EMPTY, BATCH], 16)))
    assert loss == 0
    assert not gradient.any()


@pytest.mark.parametrize("batch", [BATCH, LONG], ids=["small", "long"])
def test_blocks_are_those_of_the_mask_where_something_counts_and_empty_elsewhere(batch: Batch) -> None:
    """Filler tokens are short segments, which may fill up the last block."""
    capacity = capacity_of([batch, FULL, ONE], 16)
    masks, alone = fixed(batch, capacity).model_masks, batch.masks(None)
    for name in ("encoder", "decoder", "source"):
        got, expected = (tiles_of(getattr(of, name), np.empty(0)) for of in (masks, alone))
        there = got.short[: len(expected.short)]
        np.testing.assert_array_equal(there[expected.short > 0], expected.short[expected.short > 0])
        for part in ("long_queries", "long_keys"):
            blocks, expected_blocks = getattr(got, part), getattr(expected, part)
            np.testing.assert_array_equal(blocks[: len(expected_blocks)], expected_blocks)
            assert not blocks[len(expected_blocks) :].any()
            assert bool(len(blocks)) == (batch is LONG)
        np.testing.assert_array_equal(got.ranges[: len(expected.ranges)], expected.ranges)
        np.testing.assert_array_equal(got.weight_rows[: len(expected.ranges)], expected.weight_rows)
        np.testing.assert_array_equal(got.weights_of_head, expected.weights_of_head)
        first, last = got.ranges[len(expected.ranges) :].T
        assert (alone.source.keys.end if name == "source" else len(expected.ranges)) <= first.min()
        assert (first < last).all()


@pytest.mark.parametrize("batch", [BATCH, EMPTY, ONE], ids=["small", "empty", "one"])
def test_orders_are_those_of_the_batch_alone_and_end_in_minus_one(batch: Batch) -> None:
    got = fixed(batch, capacity_of([BATCH, ONE], 16))
    for name in ("source_orders", "target_orders"):
        for order, expected in zip(getattr(got, name), getattr(batch, name), strict=True):
            assert len(expected) < len(order)
            np.testing.assert_array_equal(order[: len(expected)], expected)
            assert (order[len(expected) :] == -1).all()
    ids, positions = batch.decoder_ids, batch.target_positions
    assert (np.diff(ids[got.target_orders.ids[: len(ids)]]) >= 0).all()
    assert (np.diff(positions[got.target_orders.positions[: len(ids)]]) >= 0).all()
