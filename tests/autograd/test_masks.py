"""Segments and attention masks of packed tokens."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograd import KeyIndices, KeyRanges, Segments, Tensor, backward, ops
from autograd.masks import pad, unpad


@st.composite
def segments_with_gaps(draw: Any, n: int) -> Segments:
    """Draw segments in any order with gaps; sometimes of one length, without gaps, or at equal distances."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=n, max_size=n) | st.integers(1, 5).map(lambda x: [x] * n))
    if draw(st.booleans()):
        return Segments(5 * np.arange(n), np.array(lengths))
    gaps = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n) | st.just([0] * n))
    order = draw(st.permutations(range(n)) | st.just(range(n)))
    starts, end = np.empty(n, np.int64), 0
    for b, gap in zip(order, gaps, strict=True):
        starts[b] = end + gap
        end += gap + lengths[b]
    return Segments(starts, np.array(lengths))


@st.composite
def key_ranges(draw: Any) -> KeyRanges:
    """Draw key ranges of packed queries over segments of keys that may have gaps, as in a cache."""
    n = draw(st.integers(1, 4))
    queries, keys = (
        Segments.of_lengths(draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))),
        draw(segments_with_gaps(n)),
    )
    whole = draw(st.booleans())
    mask = []
    for n_queries, start, n_keys in zip(queries.lengths, keys.starts, keys.lengths, strict=True):
        for _ in range(n_queries):
            first = 0 if whole else draw(st.integers(0, int(n_keys) - 1))
            last = n_keys if whole else draw(st.integers(first + 1, int(n_keys)))
            mask.append((start + first, start + last))
    first, last = np.array(mask).T
    return KeyRanges(first, last, queries, keys)


@given(st.integers(1, 5).flatmap(segments_with_gaps))
def test_tokens_are_counted_through_the_segments(segments: Segments) -> None:
    counted = [
        (b, position, start + position, b * max(segments.lengths) + position)
        for b, (start, length) in enumerate(zip(segments.starts, segments.lengths, strict=True))
        for position in range(length)
    ]
    got = zip(segments.segment_of_token, segments.position_in_segment, segments.tokens, segments.rows, strict=True)
    assert list(got) == counted
    assert (len(segments), segments.n_tokens, segments.longest) == (
        len(segments.lengths),
        len(counted),
        max(segments.lengths),
    )
    assert segments.end == max(segments.starts + segments.lengths)
    for n_tokens in (len(counted), len(counted) + 1):
        assert segments.fill(n_tokens) == (segments.tokens.tolist() == list(range(n_tokens)))


@given(st.integers(1, 5).flatmap(segments_with_gaps), st.integers(0, 3))
def test_side_by_side_and_back(segments: Segments, behind: int) -> None:
    x = 1.0 + np.arange((segments.end + behind) * 2).reshape(-1, 2)
    rows, back = pad(x, segments), np.zeros_like(x)
    assert rows.shape == (len(segments), segments.longest, 2)
    for b, (start, length) in enumerate(zip(segments.starts, segments.lengths, strict=True)):
        np.testing.assert_array_equal(rows[b, :length], x[start : start + length])
        assert not rows[b, length:].any()
        back[start : start + length] = x[start : start + length]
    np.testing.assert_array_equal(unpad(rows, segments, len(x)), back)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 3))
def test_uniform_segments_are_a_view(n_segments: int, length: int, gap: int) -> None:
    stride = length + gap
    segments = Segments(stride * np.arange(n_segments), np.full(n_segments, length))
    x = np.arange(n_segments * stride)
    rows = pad(x, segments)
    assert np.shares_memory(rows, x)
    np.testing.assert_array_equal(rows, x.reshape(n_segments, stride)[:, :length])


@given(key_ranges(), st.permutations([np.float32, np.float64, np.float32]))
def test_the_padded_mask_and_the_bias_are_the_mask_segment_by_segment(mask: KeyRanges, dtypes: Any) -> None:
    allowed, queries, keys = mask.matrix(), mask.queries, mask.keys
    for row, first, last in zip(allowed, mask.first, mask.last, strict=True):
        assert np.flatnonzero(row).tolist() == list(range(first, last))
    expected = np.ones((len(queries), max(queries.lengths), max(keys.lengths)), bool)
    for b, (start, n_keys) in enumerate(zip(keys.starts, keys.lengths, strict=True)):
        own = allowed[np.repeat(np.arange(len(queries)), queries.lengths) == b]
        expected[b, : len(own)] = False
        expected[b, : len(own), :n_keys] = own[:, start : start + n_keys]
        assert own.sum() == own[:, start : start + n_keys].sum()
    check_padded_mask(mask, expected, dtypes)


def check_padded_mask(mask: KeyRanges | KeyIndices, expected: Any, dtypes: Any) -> None:
    """The bias has the type that is asked for."""
    has_mask = isinstance(mask, KeyIndices) or not expected.all()
    assert (mask.padded_mask is not None) == has_mask
    for dtype in dtypes if has_mask else ():
        np.testing.assert_array_equal(mask.padded_mask, expected)
        bias = mask.bias(np, dtype)
        assert bias.dtype == dtype
        np.testing.assert_array_equal(bias, np.where(expected, 0, -np.inf)[:, None])
    assert has_mask or mask.bias(np, dtypes[0]) is None


@given(key_ranges(), st.integers(0, 4), st.integers(0, 1000))
def test_attention_looks_where_the_mask_says_and_never_between_segments(mask: KeyRanges, gap: int, seed: int) -> None:
    random, (n_queries, n_keys) = np.random.default_rng(seed), mask.matrix().shape
    q = random.standard_normal((n_queries, 1, 3))
    k, v = (np.full((n_keys + gap, 1, size), np.nan) for size in (3, 2))
    k[mask.keys.tokens], v[mask.keys.tokens] = (random.standard_normal((mask.keys.n_tokens, 1, n)) for n in (3, 2))
    leaves = [Tensor(x) for x in (q, k, v)]
    attended = ops.attention(*leaves, mask=mask)
    for i, seen in enumerate(mask.matrix()):
        weights = np.exp(k[:n_keys, 0][seen] @ q[i, 0] / np.sqrt(3))
        np.testing.assert_allclose(attended.value[i, 0], weights @ v[:n_keys, 0][seen] / weights.sum(), atol=1e-12)
    backward(attended, random.standard_normal(attended.shape))
    unseen = np.append(~mask.matrix().any(0), np.ones(gap, bool))
    for leaf in leaves[1:]:
        assert not leaf.grad[unseen].any()
    assert all(np.isfinite(leaf.grad).all() for leaf in leaves)


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        ([0, 1, 3], [2, 2, 3], r"query 2 must attend to at least one key.*\[3, 3\)"),
        ([0, 1, 1], [2, 2, 3], r"query 2 .* all in its segment \[2, 5\); got the range \[1, 3\)"),
        ([0, 0, 2], [3, 3, 6], r"query 0 .*\[0, 2\); got the range \[0, 3\)"),
        ([0, 0, 2], [2, 3, 5], r"query 1 .*\[0, 2\); got the range \[0, 3\)"),
        ([0, 0], [1, 1], "a range for each of 3 queries; got 2"),
    ],
)
def test_masks_that_are_none(first: list[int], last: list[int], message: str) -> None:
    queries, keys = Segments.of_lengths([2, 1]), Segments.of_lengths([2, 3])
    with pytest.raises(ValueError, match=message):
        KeyRanges(np.array(first), np.array(last), queries, keys)
    with pytest.raises(ValueError, match="1 segments of queries but 2 segments of keys"):
        KeyRanges(np.zeros(2, int), np.ones(2, int), Segments.of_lengths([2]), keys)


def test_segments_and_masks_do_not_change_and_are_what_they_are_not_what_they_hold() -> None:
    segments = Segments.of_lengths([1])
    mask = KeyRanges(np.zeros(1, int), np.ones(1, int), segments, segments)
    indices = KeyIndices(np.zeros((1, 1), int), segments, segments)
    for thing in (segments, mask, indices):
        with pytest.raises(dataclasses.FrozenInstanceError):
            thing.keys = segments  # type: ignore[union-attr]
        assert thing != dataclasses.replace(thing)
        assert thing in {thing}
        assert "_biases" not in repr(thing)


@st.composite
def key_indices(draw: Any) -> KeyIndices:
    """Draw equally many key indices for each query, over segments of keys with gaps."""
    query_lengths = draw(st.lists(st.integers(0, 3), max_size=4))
    n_indices = draw(st.integers(1, 3))
    lengths = [draw(st.integers(n_indices, 5)) for _ in query_lengths]
    keys = Segments(7 * np.arange(len(lengths)), np.array(lengths, int))
    rows = [
        7 * b + np.sort(draw(st.permutations(range(lengths[b])))[:n_indices])
        for b, n_queries in enumerate(query_lengths)
        for _ in range(n_queries)
    ]
    indices = np.array(rows, int).reshape(len(rows), n_indices if rows else 0)
    return KeyIndices(indices, Segments.of_lengths(query_lengths), keys)


@given(key_indices())
def test_the_padded_mask_of_key_indices_is_true_at_these_keys(mask: KeyIndices) -> None:
    expected = np.ones((len(mask.queries), mask.queries.longest, mask.keys.longest), bool)
    query = 0
    for b, n_queries in enumerate(mask.queries.lengths):
        for position in range(n_queries):
            allowed = set(mask.indices[query] - mask.keys.starts[b])
            expected[b, position] = [j in allowed for j in range(mask.keys.longest)]
            query += 1
    check_padded_mask(mask, expected, [np.float32])


@pytest.mark.parametrize(
    ("indices", "key_lengths", "message"),
    [
        ([0, 1, 3], [2, 2], r"expected indices \(3, n\) of queries in 2 segments; got \(3,\)"),
        ([[0], [1]], [2, 2], r"got \(2, 1\), and 2 segments of keys"),
        ([[0], [1], [2]], [2, 2, 2], "and 3 segments of keys"),
        ([[], [], []], [2, 2], "every query must attend to at least one key"),
        ([[0], [2], [3]], [2, 2], "all in its segment"),
        ([[0, 1], [0, 1], [1, 3]], [2, 2], "all in its segment"),
        ([[0, 1], [1, 0], [2, 3]], [2, 2], "in increasing order"),
        ([[0, 1], [0, 1], [2, 2]], [2, 2], "in increasing order"),
    ],
)
def test_key_indices_that_are_none(indices: list[Any], key_lengths: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KeyIndices(np.array(indices, int), Segments.of_lengths([2, 1]), Segments.of_lengths(key_lengths))
