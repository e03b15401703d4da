"""Attention: gaps between segments, empty segments, large scores, single keys, rejected arguments."""

from typing import Any

import numpy as np
import pytest
from draws import full_mask, normal
from op_cases import STREAM_ID, attention, results

from autograd import KeyIndices, KeyRanges, Segments, ShapeError, ops
from autograd.op import operations
from autograd.testing import check_gradients


@pytest.mark.parametrize(("query_lengths", "key_lengths"), [([], []), ([0], [3]), ([0, 2, 0], [0, 1, 4])])
@pytest.mark.parametrize("dropout", [{}, {"rate": 0.4, "stream_id": STREAM_ID}], ids=["", "dropout"])
def test_attention_without_queries(query_lengths: list[int], key_lengths: list[int], dropout: dict[str, Any]) -> None:
    mask = full_mask(query_lengths, key_lengths)
    n_queries, n_keys = sum(query_lengths), sum(key_lengths)
    arguments = normal(n_queries, 2, 3), normal(n_keys, 2, 3), normal(n_keys, 2, 2)
    result = ops.attention(*arguments, mask=mask, **dropout)
    np.testing.assert_allclose(result.value, attention(*arguments, mask, **dropout))
    check_gradients(lambda q, k, v: ops.attention(q, k, v, mask=mask, **dropout), *arguments)


@pytest.mark.parametrize("half", [{"rate": 0.5}, {"stream_id": STREAM_ID}], ids=["a rate", "a random stream id"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])  # the kernel, the reference
def test_attention_dropout_needs_both(dtype: str, half: dict[str, Any]) -> None:
    mask, arguments = full_mask([3], [5]), tuple(normal(n, 2, 4).astype(dtype) for n in (3, 5, 5))
    run = operations["attention"].choose(arguments, {"mask": mask, **half})
    assert (run is not operations["attention"].reference) == (dtype == "float32")
    plain, halved = (results(run, arguments, {"mask": mask, **static}, 1) for static in ({}, half))
    for got, expected in zip(halved, plain, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_segments_beyond_the_queries_are_an_error(dtype: str) -> None:
    queries, keys = Segments(np.array([0, 9]), np.array([2, 1])), Segments.of_lengths([2, 1])
    x = normal(3, 1, 4).astype(dtype)
    with pytest.raises(ShapeError, match=r"the mask reaches to query 10; got q \(3, 1, 4\)"):
        ops.attention(x, x, x, mask=KeyRanges(np.array([0, 0, 2]), np.array([2, 2, 3]), queries, keys))


@pytest.mark.parametrize("shift", [0.0, 300.0, -300.0])
@pytest.mark.parametrize("spread", [1.0, 100.0])
def test_attention_with_large_scores_neither_overflows_nor_vanishes(shift: float, spread: float) -> None:
    mask, random = full_mask([3, 20, 1], [5, 1, 30]), np.random.default_rng(1)
    q, k, v = (random.standard_normal((n, 2, 4)) for n in (24, 36, 36))
    q[..., 0], k[..., 0] = 1, 2 * shift  # the scores' common part
    k *= [1, spread, spread, spread]
    assert_near_reference(q, k, v, mask, 1e-3)


SEGMENTS = Segments.of_lengths([3, 1, 6, 1])
LONE = {
    "one key a segment": full_mask([3, 1, 6, 1], [1, 1, 1, 1]),
    "itself alone, among others": KeyRanges(SEGMENTS.tokens, SEGMENTS.tokens + 1, SEGMENTS, SEGMENTS),
    "segments of one, among longer ones": full_mask([3, 1, 6, 1], [3, 1, 6, 1]),
    "itself and those before": KeyRanges(
        np.repeat(SEGMENTS.starts, SEGMENTS.lengths), SEGMENTS.tokens + 1, SEGMENTS, SEGMENTS
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1.0, 30.0])  # of queries and keys; of the larger ones a score overflows exp
@pytest.mark.parametrize("rate", [0.0, 0.5])  # for which the reference runs
@pytest.mark.parametrize("name", LONE)
def test_a_lone_key_has_weight_1_and_its_score_no_gradient(name: str, rate: float, size: float, dtype: str) -> None:
    random, mask = np.random.default_rng(1), LONE[name]
    q, k, v = (random.standard_normal((n, 2, 4)) for n in (11, mask.keys.end, mask.keys.end))
    arguments = tuple(x.astype(dtype) for x in (q * size, k * size, v))
    static = {"mask": mask, "rate": rate, "stream_id": STREAM_ID}
    for run in (operations["attention"].choose(arguments, static), operations["attention"].reference):
        y, dq, dk, _ = results(run, arguments, static, 1)
        allowed = mask.matrix()
        is_lone = allowed.sum(1) == 1
        lone_values = arguments[2][allowed[is_lone].argmax(1)]
        assert is_lone.any()
        assert not dq[is_lone].any()
        assert not dk[~allowed[~is_lone].any(0)].any()
        assert rate or (y[is_lone] == lone_values).all()
        assert ((y[is_lone] == lone_values / (1 - rate)) | (y[is_lone] == 0)).all()


def windows(lengths: list[int], reach: int) -> KeyRanges:
    """Return the mask of tokens that attend to at most ``reach`` tokens before them, and to themselves."""
    segments = Segments.of_lengths(lengths)
    start = segments.starts[segments.segment_of_token]
    return KeyRanges(np.maximum(start, segments.tokens - reach), segments.tokens + 1, segments, segments)


def with_gaps(mask: KeyRanges, order: list[int]) -> KeyRanges:
    """Return the mask over keys whose segments are in another order, with two unused rows between them."""
    starts = np.empty(len(order), np.int64)
    starts[order] = np.cumsum([0, *(mask.keys.lengths[order][:-1] + 2)])
    moved = (starts - mask.keys.starts)[mask.queries.segment_of_token]
    return KeyRanges(mask.first + moved, mask.last + moved, mask.queries, Segments(starts, mask.keys.lengths))


RANGES = {
    "one token": full_mask([1], [1]),
    "whole sentences": full_mask([25, 1, 7, 32, 33], [25, 1, 7, 32, 33]),
    "earlier tokens": windows([1, 50, 31, 97, 2], 1000),
    "windows": windows([5, 70, 130], 3),
    "other lengths": full_mask([3, 0, 100, 1], [40, 5, 1, 64]),
    "gaps": with_gaps(full_mask([3, 6, 1], [33, 2, 32]), [2, 0, 1]),
}


def assert_near_reference(q: Any, k: Any, v: Any, mask: KeyRanges | KeyIndices, tolerance: float = 3e-6) -> Any:
    """Compare a kernel's results in float32 with the reference's in float64; return the value."""
    single, operation, static = tuple(x.astype(np.float32) for x in (q, k, v)), operations["attention"], {"mask": mask}
    kernel = operation.choose(single, static)
    assert kernel is not operation.reference
    found = results(kernel, single, static, 1)
    exact = results(operation.reference, tuple(x.astype(np.float64) for x in single), static, 1)
    for x, y in zip(found, exact, strict=True):
        assert np.isfinite(x).all()
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * np.abs(y).max())
    return found[0]


@pytest.mark.parametrize("widths", [(32, 32), (1, 1), (33, 70)], ids=str)
@pytest.mark.parametrize("name", RANGES)
def test_the_kernel_computes_what_the_reference_computes(name: str, widths: tuple[int, int]) -> None:
    mask, random = RANGES[name], np.random.default_rng(1)
    q = random.standard_normal((mask.queries.n_tokens, 3, widths[0]))
    k, v = (np.full((mask.keys.end + 2, 3, width), np.nan) for width in widths)  # NaN in no segment
    for x in (k, v):
        x[mask.keys.tokens] = random.standard_normal((mask.keys.n_tokens, *x.shape[1:]))
    assert_near_reference(q, k, v, mask)


@pytest.mark.parametrize("widths", [(64, 64), (5, 31)], ids=str)
@pytest.mark.parametrize("n_keys", [1, 30, 32, 70])
def test_attention_over_key_indices_is_attention_over_their_keys(n_keys: int, widths: tuple[int, int]) -> None:
    random, lengths = np.random.default_rng(1), np.array([80, 70, 90])
    queries, keys = Segments.of_lengths([4, 0, 2]), Segments.of_lengths(lengths)
    rows = [keys.starts[b] + np.sort(random.permutation(lengths[b])[:n_keys]) for b in (0, 0, 0, 0, 2, 2)]
    mask = KeyIndices(np.array(rows), queries, keys)
    q, k, v = (random.standard_normal((n, 3, d)) for n, d in zip((6, 240, 240), (widths[0], *widths), strict=True))
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    y = assert_near_reference(q, k, v, mask)
    alone = [attention(q[[i]], k[row], v[row], full_mask([1], [n_keys])) for i, row in enumerate(rows)]
    np.testing.assert_allclose(y, np.concatenate(alone), atol=1e-5)


def test_keys_to_which_no_query_attends_are_not_read() -> None:
    q, k = np.ones((2, 1, 4), np.float32), np.full((6, 1, 4), np.nan, np.float32)
    k[[1, 2, 5]] = 1
    mask = KeyIndices(np.array([[1, 2], [2, 5]]), Segments.of_lengths([2]), Segments.of_lengths([6]))
    np.testing.assert_array_equal(ops.attention(q, k, k, mask=mask).value, np.ones((2, 1, 4)))
