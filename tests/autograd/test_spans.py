"""Segments and attention masks of packed tokens."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograd import Blocks, KeySets, KeySpans, Tensor, backward, ops
from autograd.spans import pack, place_side_by_side

LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@st.composite
def blocks_lying_apart(draw: Any, n: int) -> Blocks:
    """Draw blocks in any order with gaps; sometimes of one length, without gaps, or at equal distances."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=n, max_size=n) | st.integers(1, 5).map(lambda x: [x] * n))
    if draw(st.booleans()):
        return Blocks(5 * np.arange(n), np.array(lengths))
    rooms = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n) | st.just([0] * n))
    order = draw(st.permutations(range(n)) | st.just(range(n)))
    starts, end = np.empty(n, np.int64), 0
    for b, room in zip(order, rooms, strict=True):
        starts[b] = end + room
        end += room + lengths[b]
    return Blocks(starts, np.array(lengths))


@st.composite
def spans_of_keys(draw: Any) -> KeySpans:
    """Draw key ranges of packed queries over blocks of keys that may have gaps, as in a cache."""
    n = draw(st.integers(1, 4))
    queries, keys = (
        Blocks.of_lengths(draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))),
        draw(blocks_lying_apart(n)),
    )
    whole = draw(st.booleans())
    spans = []
    for n_queries, start, n_keys in zip(queries.lengths, keys.starts, keys.lengths, strict=True):
        for _ in range(n_queries):
            first = 0 if whole else draw(st.integers(0, int(n_keys) - 1))
            last = n_keys if whole else draw(st.integers(first + 1, int(n_keys)))
            spans.append((start + first, start + last))
    first, last = np.array(spans).T
    return KeySpans(first, last, queries, keys)


@given(st.integers(1, 5).flatmap(blocks_lying_apart))
def test_tokens_are_counted_through_the_blocks(blocks: Blocks) -> None:
    counted = [
        (b, place, start + place, b * max(blocks.lengths) + place)
        for b, (start, length) in enumerate(zip(blocks.starts, blocks.lengths, strict=True))
        for place in range(length)
    ]
    got = zip(blocks.block_of_token, blocks.place_in_block, blocks.tokens, blocks.rows, strict=True)
    assert list(got) == counted
    assert (len(blocks), blocks.n_tokens, blocks.longest) == (len(blocks.lengths), len(counted), max(blocks.lengths))
    for n_tokens in (len(counted), len(counted) + 1):
        assert blocks.fill(n_tokens) == (blocks.tokens.tolist() == list(range(n_tokens)))


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
    """⟨pad(x), y⟩ = ⟨x, unpad(y)⟩ for blocks in any order with gaps."""
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


@given(spans_of_keys())
def test_a_mask_is_true_from_the_first_key_to_the_one_before_last(spans: KeySpans) -> None:
    for row, first, last in zip(spans.mask(), spans.first, spans.last, strict=True):
        assert np.flatnonzero(row).tolist() == list(range(first, last))


@given(spans_of_keys())
def test_the_block_mask_is_the_mask_block_by_block(spans: KeySpans) -> None:
    mask, queries, keys = spans.mask(), spans.queries, spans.keys
    expected = np.ones((len(queries), max(queries.lengths), max(keys.lengths)), bool)
    for b, (start, n_keys) in enumerate(zip(keys.starts, keys.lengths, strict=True)):
        own = mask[np.repeat(np.arange(len(queries)), queries.lengths) == b]
        expected[b, : len(own)] = False
        expected[b, : len(own), :n_keys] = own[:, start : start + n_keys]
        assert own.sum() == own[:, start : start + n_keys].sum()
    assert (spans.block_mask is None) == expected.all()
    if spans.block_mask is not None:
        np.testing.assert_array_equal(spans.block_mask, expected)


@given(spans_of_keys())
def test_lone_queries_are_those_that_see_one_key(spans: KeySpans) -> None:
    mask, (block, place) = spans.mask(), spans.lone
    is_lone = np.zeros((len(spans.queries), spans.queries.longest), bool)
    is_lone[block, place] = True
    expected = mask.sum(1) == 1
    np.testing.assert_array_equal(is_lone[spans.queries.block_of_token, spans.queries.place_in_block], expected)
    assert is_lone.sum() == expected.sum()


def test_lone_queries_of_sets_are_those_that_see_one_key() -> None:
    mask = np.array([[[1, 0, 1], [0, 0, 1]], [[0, 1, 0], [1, 1, 1]]], bool)
    sets = KeySets(Blocks.of_lengths([2, 2]), Blocks.of_lengths([3, 3]), mask)
    assert np.transpose(sets.lone).tolist() == [[0, 1], [1, 0]]


@given(spans_of_keys(), st.permutations([np.float32, np.float64, np.float32]))
def test_the_bias_is_the_block_mask_in_numbers_of_the_type_asked_for(spans: KeySpans, dtypes: Any) -> None:
    for dtype in dtypes:
        bias = spans.bias(np, dtype)
        assert (bias is None) == (spans.block_mask is None)
        if bias is not None:
            assert bias.dtype == dtype
            np.testing.assert_array_equal(bias, np.where(spans.block_mask, 0, -np.inf)[:, None])


@given(spans_of_keys(), st.integers(0, 4), st.integers(0, 1000))
def test_attention_looks_where_the_mask_says_and_never_between_blocks(spans: KeySpans, room: int, seed: int) -> None:
    random, (n_queries, n_keys) = np.random.default_rng(seed), spans.mask().shape
    q = random.standard_normal((n_queries, 1, 3))
    k, v = (np.full((n_keys + room, 1, size), np.nan) for size in (3, 2))
    k[spans.keys.tokens], v[spans.keys.tokens] = (random.standard_normal((spans.keys.n_tokens, 1, n)) for n in (3, 2))
    leaves = [Tensor(x) for x in (q, k, v)]
    attended = ops.attention(*leaves, spans=spans)
    for i, seen in enumerate(spans.mask()):
        weights = np.exp(k[:n_keys, 0][seen] @ q[i, 0] / np.sqrt(3))
        np.testing.assert_allclose(attended.value[i, 0], weights @ v[:n_keys, 0][seen] / weights.sum(), atol=1e-12)
    backward(attended, random.standard_normal(attended.shape))
    unseen = np.append(~spans.mask().any(0), np.ones(room, bool))
    for leaf in leaves[1:]:
        assert not leaf.grad[unseen].any()
    assert all(np.isfinite(leaf.grad).all() for leaf in leaves)


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        ([0, 1, 3], [2, 2, 3], r"query 2 must attend to at least one key.*\[3, 3\)"),
        ([0, 1, 1], [2, 2, 3], r"query 2 .* all in its block \[2, 5\); got the span \[1, 3\)"),
        ([0, 0, 2], [3, 3, 6], r"query 0 .*\[0, 2\); got the span \[0, 3\)"),
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


def test_the_end_of_blocks_is_behind_the_last_of_them() -> None:
    assert (Blocks.of_lengths([]).end, Blocks.of_lengths([]).longest) == (0, 0)
    assert Blocks.of_lengths([2, 3]).end == 5
    assert Blocks(np.array([7, 0]), np.array([1, 2])).end == 8


def test_blocks_and_spans_do_not_change_and_are_what_they_are_not_what_they_hold() -> None:
    blocks = Blocks.of_lengths([1])
    spans = KeySpans(np.zeros(1, int), np.ones(1, int), blocks, blocks)
    sets = KeySets(blocks, blocks, np.ones((1, 1, 1), bool))
    for thing in (blocks, spans, sets, blocks.head_index(2)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            thing.keys = blocks  # type: ignore[union-attr]
        assert thing != dataclasses.replace(thing)
        assert thing in {thing}
        assert "_biases" not in repr(thing)


@pytest.mark.parametrize("only", [False, True], ids=["beside others", "alone"])
def test_sets_name_no_key_behind_the_end_of_its_block(only: bool) -> None:
    queries, keys = Blocks.of_lengths([1, 1]), Blocks.of_lengths([1, 2])
    mask = np.array([[[True, False]], [[True, True]]])
    KeySets(queries, keys, mask)
    mask = mask.copy()
    mask[0, 0] = [not only, True]
    with pytest.raises(ValueError, match="every query must attend to at least one key, all in its block"):
        KeySets(queries, keys, mask)


def test_what_stands_behind_the_last_query_of_a_block_needs_no_key() -> None:
    KeySets(Blocks.of_lengths([1, 2]), Blocks.of_lengths([1, 1]), np.array([[[True], [False]], [[True], [True]]]))


def test_sets_of_keys_bias_what_they_do_not_name() -> None:
    queries, keys = Blocks.of_lengths([2, 2]), Blocks.of_lengths([3, 3])
    mask = np.random.default_rng(1).random((2, 2, 3)) < 0.5
    mask[:, :, 0] = True
    bias = KeySets(queries, keys, mask).bias(np, "float32")
    assert bias.dtype == np.float32
    np.testing.assert_array_equal(bias[:, 0] == 0, mask)
    np.testing.assert_array_equal(np.isneginf(bias[:, 0]), ~mask)


@pytest.mark.parametrize(
    ("shape", "key_lengths", "message"),
    [
        ((2, 2, 4), [3, 3], r"expected a mask \(2, 2, 3\) for 2 blocks of keys; got \(2, 2, 4\)"),
        ((2, 2, 3), [3, 3, 3], "for 3 blocks of keys"),
        ((2, 2, 0), [0, 0], "every query must attend to at least one key"),
    ],
)
def test_sets_that_are_none(shape: tuple[int, ...], key_lengths: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KeySets(Blocks.of_lengths([2, 2]), Blocks.of_lengths(key_lengths), np.ones(shape, bool))
