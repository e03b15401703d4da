"""Blocks and spans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograd import Blocks, KeySpans
from autograd.spans import pack, place_side_by_side

LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@given(LENGTHS)
def test_side_by_side_and_back(lengths: list[int]) -> None:
    blocks = Blocks.of_lengths(lengths)
    x = 1.0 + np.arange(sum(lengths) * 2).reshape(-1, 2)
    rows = place_side_by_side(x, blocks)
    assert rows.shape == (len(lengths), max(lengths), 2)
    for b, (start, length) in enumerate(zip(blocks.starts, lengths, strict=True)):
        np.testing.assert_array_equal(rows[b, :length], x[start : start + length])
        assert (rows[b, length:] == 0).all()
    np.testing.assert_array_equal(pack(rows, blocks, len(x)), x)


@given(LENGTHS, st.randoms(use_true_random=False), st.integers(0, 3))
def test_packing_is_the_transpose_of_placing(lengths: list[int], random: Any, room: int) -> None:
    """⟨place(x), y⟩ = ⟨x, pack(y)⟩ for blocks in any order with room between them."""
    order = list(range(len(lengths)))
    random.shuffle(order)
    starts = np.empty(len(lengths), np.int64)
    starts[order] = np.cumsum([0, *(lengths[i] + room for i in order)])[:-1]
    blocks, n_tokens = Blocks(starts, np.array(lengths)), sum(lengths) + room * len(lengths)
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal(n_tokens), generator.standard_normal((len(lengths), max(lengths)))
    y[np.arange(max(lengths)) >= np.array(lengths)[:, None]] = 0
    np.testing.assert_allclose((place_side_by_side(x, blocks) * y).sum(), x @ pack(y, blocks, n_tokens), atol=1e-12)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 3))
def test_uniform_blocks_are_a_view(n_blocks: int, length: int, room: int) -> None:
    stride = length + room
    blocks = Blocks(stride * np.arange(n_blocks), np.full(n_blocks, length))
    x = np.arange(n_blocks * stride)
    rows = place_side_by_side(x, blocks)
    assert np.shares_memory(rows, x)
    np.testing.assert_array_equal(rows, x.reshape(n_blocks, stride)[:, :length])


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        ([0, 1, 3], [2, 2, 3], r"query 2 must attend to at least one key.*\[3, 3\)"),
        ([0, 1, 1], [2, 2, 3], r"query 2 .* all in its block \[2, 5\); got the span \[1, 3\)"),
        ([0, 0, 2], [2, 3, 5], r"query 1 .*\[0, 2\); got the span \[0, 3\)"),
        ([0, 0], [1, 1], "a span for each of 3 queries; got 2"),
    ],
)
def test_spans_that_are_none(first: list[int], last: list[int], message: str) -> None:
    queries, keys = Blocks.of_lengths([2, 1]), Blocks.of_lengths([2, 3])
    with pytest.raises(ValueError, match=message):
        KeySpans(np.array(first), np.array(last), queries, keys)


def test_blocks_of_queries_and_keys_must_correspond() -> None:
    with pytest.raises(ValueError, match="1 blocks of queries but 2 blocks of keys"):
        KeySpans(np.zeros(2, int), np.ones(2, int), Blocks.of_lengths([2]), Blocks.of_lengths([1, 1]))
