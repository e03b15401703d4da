"""The algebra of the CUDA kernels, in NumPy alone: tests/support/kernel_models against the reference operations.

A fault here is one of mathematics.  What only the tests of the sources find is that a source does not do what its model
does: a fault of CUDA.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any, NamedTuple

import kernel_models
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_models import attention, common, cross_entropy, embedding, philox

from autograd import KeyRanges, Segments
from autograd.kernels.cuda.nvrtc import SOURCES
from autograd.ops.attention import attention as attention_operation
from autograd.ops.cross_entropy import cross_entropy as cross_entropy_operation
from autograd.ops.cross_entropy import smoothed_masses
from autograd.ops.dropout import dropout_mask, threshold_and_scale
from autograd.ops.embedding import embedding as embedding_operation
from autograd.ops.embedding import embedding_with_positions, order_of
from autograd.ops.softmax import log_normaliser
from autograd.precision import rounded
from autograd.random import StreamId, random_uint16
from autograd.tiles import Tiles, count_blocks, tiles_on_host

SEEDS = st.integers(0, 2**32 - 1)
DTYPES = st.sampled_from(["float64", "float32"])
ROUNDINGS = 8  # how many units of the dtype a number may be off, for every unit of what is added up


def near(got: Any, expected: Any, size: float) -> None:
    """Compare within the rounding of ``got``'s dtype for sums of numbers of this size."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=ROUNDINGS * np.finfo(got.dtype).eps * size)


def test_every_source_is_modelled_or_said_to_be_the_references_formula() -> None:
    documented = " ".join(
        module.__doc__ for module in (kernel_models, attention, common, cross_entropy, embedding, philox)
    )
    assert {path.name for path in SOURCES.glob("*.cu*")} == set(re.findall(r"\w+\.cuh?\b", documented))


# Attention.

LENGTHS = st.sampled_from([1, 2, 15, 16, 17, 63, 64, 65, 250])
WIDTH = 16


@st.composite
def key_ranges(draw: Any) -> KeyRanges:
    """Draw one to three sentences over segments of keys with gaps; key ranges grow, move, jump, or have one key."""
    lengths = draw(st.lists(st.tuples(LENGTHS, LENGTHS, st.integers(0, 3)), min_size=1, max_size=3))
    n_queries, n_keys, gap = np.array(lengths).T
    queries, keys = Segments.of_lengths(n_queries), Segments(np.cumsum(n_keys + gap) - n_keys, n_keys)
    position, n = queries.position_in_segment, np.repeat(n_keys, n_queries)
    kind = draw(st.sampled_from(["whole", "causal", "neighbours", "any", "one key"]))
    if kind == "any":
        first, last = np.sort(np.random.default_rng(draw(SEEDS)).integers(0, n, (2, len(n))), axis=0)
    else:
        here = position % n
        first = {"neighbours": np.maximum(0, here - 20), "one key": here}.get(kind, np.zeros_like(n))
        last = {"whole": n - 1, "neighbours": np.minimum(n - 1, here + 3)}.get(kind, here)
    start = keys.starts[queries.segment_of_token]
    return KeyRanges(start + first, start + last + 1, queries, keys)


class Case(NamedTuple):
    """Mask, q, k, v and dy of one head, NaN in rows of no segment, and the greatest score there may be."""

    mask: KeyRanges
    arrays: tuple[Any, ...]
    greatest_score: float


@st.composite
def attention_cases(draw: Any) -> Case:
    mask, random, dtype = draw(key_ranges()), np.random.default_rng(draw(SEEDS)), draw(DTYPES)
    n_queries, n_keys = mask.queries.n_tokens, mask.keys.end + 2
    q, k, v, dy = (random.standard_normal((n, WIDTH)) for n in (n_queries, n_keys, n_keys, n_queries))
    of_no_segment = np.setdiff1d(np.arange(n_keys), mask.keys.tokens)
    k[of_no_segment] = v[of_no_segment] = 0
    greatest_score = draw(st.sampled_from([1e-3, 3.0, 100.0, 1e4]))
    q *= greatest_score / np.abs(q @ k.T / math.sqrt(WIDTH)).max()
    k[of_no_segment] = v[of_no_segment] = np.nan
    return Case(mask, tuple(x.astype(dtype) for x in (q, k, v, dy)), greatest_score)


def by_tiles(
    case: Case,
    tiles: Tiles,
    dropout: attention.Dropout | attention.NoDropout = attention.NO_DROPOUT,
    *,
    short_in_one_pass: bool = True,
) -> list[Any]:
    """Compute value and gradients by the model, in the order of the kernels' launches."""
    *qkv, dy = case.arrays
    of = attention.Arguments(*qkv, tiles, 1 / math.sqrt(WIDTH), dropout)
    y, log_normalisers = attention.attention_forward(of)
    dq, dk, dv = np.full_like(of.q, np.nan), np.zeros_like(of.k), np.zeros_like(of.v)
    passes = [(tiles.long_queries, tiles.long_keys)]
    if short_in_one_pass:
        attention.attention_backward(of, dy, log_normalisers, dq, dk, dv)
    else:
        passes.append((tiles.short, tiles.short))
    for queries, keys in passes:
        along = attention.attention_backward_of_queries(of, queries, y, dy, log_normalisers, dq)
        attention.attention_backward_of_keys(of, keys, dy, log_normalisers, along, dk, dv)
    return [y, dq, dk, dv]


def by_reference(case: Case, n_heads: int = 1, **dropout: Any) -> list[Any]:
    """Compute in float64; keys of no segment are set to 0, because the reference multiplies them by 0."""
    *qkv, dy = (np.nan_to_num(x.astype(float))[:, None].repeat(n_heads, 1) for x in case.arrays)
    y, backward = attention_operation.reference(*qkv, mask=case.mask, **dropout)
    return [x[:, -1] for x in (y, *backward(dy))]


def sizes_of_results(case: Case) -> list[float]:
    """Return the sizes of the terms of y, dq, dk and dv; exp turns rounding of scores into errors of weights."""
    q, k, v, dy = (float(np.nanmax(np.abs(x))) for x in case.arrays)
    score, n_queries = 1 + case.greatest_score, len(case.arrays[0])
    of_score = WIDTH * dy * v / math.sqrt(WIDTH)
    return [score * v, score * of_score * k, n_queries * score * of_score * q, n_queries * score * dy]


@settings(max_examples=100)
@given(attention_cases(), st.booleans())
def test_attention_by_tiles_is_the_references(case: Case, short_in_one_pass: bool) -> None:
    results = by_tiles(case, tiles_on_host(case.mask), short_in_one_pass=short_in_one_pass)
    for got, expected, size in zip(results, by_reference(case), sizes_of_results(case), strict=True):
        near(got, expected, size)


@settings(max_examples=10)
@given(attention_cases(), SEEDS, st.integers(1, 3), st.booleans())
def test_dropout_of_weights_is_the_references(case: Case, seed: int, n_heads: int, short_in_one_pass: bool) -> None:
    """The last head's: its draws depend on the number of heads."""
    rate, stream_id = 0.3, StreamId(seed, 2, 3, 4)
    dropout = attention.Dropout(stream_id, *threshold_and_scale(rate), n_heads - 1, n_heads)
    results = by_tiles(case, tiles_on_host(case.mask), dropout, short_in_one_pass=short_in_one_pass)
    expected = by_reference(case, n_heads, rate=rate, stream_id=stream_id)
    for got, exact, size in zip(results, expected, sizes_of_results(case), strict=True):
        near(got, exact, dropout.scale**2 * size)


@settings(max_examples=30)
@given(attention_cases())
def test_the_logarithm_that_is_kept_is_that_of_softmaxs_denominator(case: Case) -> None:
    q, k, v, _ = case.arrays
    _, log_normalisers = attention.attention_forward(attention.Arguments(q, k, v, tiles_on_host(case.mask), 0.25))
    scores = np.where(case.mask.matrix(), q.astype(float) @ k[: case.mask.keys.end].astype(float).T / 4, -np.inf)
    size = 1 + case.greatest_score + math.log(scores.shape[1])
    near(log_normalisers * math.log(2), np.add(*log_normaliser.reference(scores))[:, 0], size)


@settings(max_examples=30)
@given(attention_cases())
def test_the_score_of_a_lone_key_has_no_gradient_and_keys_that_nobody_sees_have_none(case: Case) -> None:
    _, dq, dk, dv = by_tiles(case, tiles_on_host(case.mask))
    is_lone = case.mask.last - case.mask.first == 1
    assert not dq[is_lone].any()
    unseen = np.ones(len(dk), bool)
    unseen[: case.mask.keys.end] = ~case.mask.matrix().any(0)
    only_lone = unseen.copy()
    only_lone[: case.mask.keys.end] |= ~case.mask.matrix()[~is_lone].any(0)
    assert not dv[unseen].any()
    assert not dk[only_lone].any()


@settings(max_examples=20)
@given(attention_cases(), st.integers(1, 3))
def test_empty_tiles_change_nothing(case: Case, n: int) -> None:
    """Empty blocks fill up an update of fixed capacity."""
    tiles, empty = tiles_on_host(case.mask), np.zeros((n, 16), np.int32)
    filled = Tiles(*(np.concatenate([empty, blocks, empty]) for blocks in tiles[:3]), *tiles[3:])
    for got, expected in zip(by_tiles(case, filled), by_tiles(case, tiles), strict=True):
        np.testing.assert_array_equal(got, expected)


# The inverse of ranges, which is NumPy itself.


@given(key_ranges())
def test_every_pair_is_met_once_from_either_side(mask: KeyRanges) -> None:
    tiles, matrix = tiles_on_host(mask), mask.matrix()
    fixed, moving = (lambda numbers: [attention.slots_of(numbers)]), attention.moving_slots
    for blocks, slots_of_queries, slots_of_keys in (
        (tiles.long_queries, fixed, moving),
        (tiles.long_keys, moving, fixed),
    ):
        times_met = np.zeros(matrix.shape, int)
        for of_queries, of_keys in attention.not_empty(tiles.short, blocks):
            for queries, keys in itertools.product(slots_of_queries(of_queries), slots_of_keys(of_keys)):
                times_met[np.ix_(queries.rows[queries.exist], keys.rows[keys.exist])] += 1
        assert (times_met[matrix] == 1).all()
        assert (times_met <= 1).all()


@given(key_ranges())
def test_slots_are_filled_from_one_segment_and_numbers_of_blocks_are_counted(mask: KeyRanges) -> None:
    tiles = tiles_on_host(mask)
    n_short, n_long = count_blocks(mask.queries.lengths, mask.keys.lengths)
    assert (n_short, n_long) == (len(tiles.short), max(len(tiles.long_queries), len(tiles.long_keys)))
    assert tiles.short.any(1).all()
    ends = np.append(mask.queries.starts + mask.queries.lengths, mask.keys.starts + mask.keys.lengths)
    for numbers in (numbers for block in attention.not_empty(tiles.short) for numbers in block):
        first, end = numbers.reshape(2, 4)
        assert set(end[end > 0]) <= set(ends)
        assert ((first < end) == (end > 0)).all()
    assert n_short <= (np.maximum(mask.queries.lengths, mask.keys.lengths) <= 64).sum()


# Cross-entropy.

SMOOTHINGS: list[dict[str, Any]] = [
    {},
    {"smoothing": 0.1},
    {"smoothing": 0.1, "over": "V"},
    {"smoothing": 0.1, "over": "V-2", "impossible": 1},
]


def logits_of(kind: str, random: np.random.Generator, shape: tuple[int, int]) -> Any:
    """Draw logits up to 1e4, ordered so that the running maximum changes always, never, or once."""
    normal = random.standard_normal(shape)
    return {
        "normal": 3 * normal,
        "extreme": np.where(normal > 0, 1e4, -1e4),
        "all low": normal - 1e4,
        "rising": np.sort(1e3 * normal),
        "falling": -np.sort(1e3 * normal),
        "equal": np.zeros(shape),
        "one high": np.where(np.arange(shape[1]) == shape[1] // 2, 1e4, normal),
    }[kind]


KINDS = ["normal", "extreme", "all low", "rising", "falling", "equal", "one high"]


@pytest.mark.parametrize("static", SMOOTHINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(
    seed=SEEDS,
    n_words=st.sampled_from([3, 31, 32, 33, 1000, 1025, 3001]),
    n_threads=st.sampled_from([32, 512]),
    first_and_words=st.sampled_from([(0, 4), (3, 4), (0, 8), (1, 8), (7, 8)]),
    dtype=DTYPES,
)
@example(seed=0, n_words=8193, n_threads=512, first_and_words=(0, 8), dtype="float32")
def test_cross_entropy_in_place_is_the_references(
    kind: str,
    static: dict[str, Any],
    seed: int,
    n_words: int,
    n_threads: int,
    first_and_words: tuple[int, int],
    dtype: str,
) -> None:
    random = np.random.default_rng(seed)
    logits = logits_of(kind, random, (4, n_words)).astype(dtype)
    targets = np.array([0, n_words - 1, -1, static.get("impossible", 2)])
    share, of_target = smoothed_masses(
        n_classes=n_words, **{"smoothing": 0.0, "over": "V-1", "impossible": None, **static}
    )
    gradient, size = logits.copy(), 1 + np.abs(logits).max()
    gradient[2] = np.nan  # whose target is −1
    losses = cross_entropy.cross_entropy_in_place(
        gradient, targets, share, of_target - share, static.get("impossible", -1), n_threads, *first_and_words
    )
    for row in range(len(logits)):
        one = slice(row, row + 1)
        loss, backward = cross_entropy_operation.reference(logits[one].astype(float), targets[one], **static)
        near(losses[one], loss[None], size * math.sqrt(n_words))
        near(gradient[one], backward(np.float64(1))[0], size)
    assert losses[2] == 0
    assert not gradient[2].any()


# Philox, and who draws what.

WORDS = st.integers(0, 2**64 - 1)
STREAM_IDS = st.builds(StreamId, seed=WORDS, stream=WORDS, update=WORDS, micro_batch=WORDS)


@given(STREAM_IDS, st.integers(0, 2**40))
def test_a_block_is_that_of_numpys_philox(stream_id: StreamId, block: int) -> None:
    """NumPy increments its counter before it draws; the kernel adds 1."""
    key, counter = [stream_id.seed, stream_id.stream], [block, stream_id.micro_batch, stream_id.update, 0]
    numpys = np.random.Philox(key=np.array(key, np.uint64), counter=np.array(counter, np.uint64))
    assert philox.philox_block(stream_id, block) == numpys.random_raw(4).tolist()


@settings(max_examples=25)
@given(STREAM_IDS, st.sampled_from([1, 16, 511, 512, 513, 1100]), st.sampled_from([0.0, 0.1, 0.9999999]))
def test_the_draw_of_every_element_is_the_references(stream_id: StreamId, n: int, rate: float) -> None:
    draws = np.array(philox.draws_of_dropout(stream_id, n))
    np.testing.assert_array_equal(draws, random_uint16(np.empty(0), stream_id=stream_id, count=n))
    threshold, scale = threshold_and_scale(rate)
    np.testing.assert_array_equal(np.where(draws >= threshold, scale, 0), dropout_mask(np.empty(n), rate, stream_id))


@settings(max_examples=10)
@given(STREAM_IDS, st.sampled_from([128, 256, 512]))
def test_the_draws_of_rows_are_those_of_their_elements(stream_id: StreamId, width: int) -> None:
    draws = [philox.draws_of_row(stream_id, row, width) for row in range(3)]
    np.testing.assert_array_equal(
        np.concatenate(draws), random_uint16(np.empty(0), stream_id=stream_id, count=3 * width)
    )


# Embeddings.


@settings(max_examples=20)
@given(SEEDS, STREAM_IDS, st.sampled_from([1, 3, 70]), st.sampled_from([(24, 8), (33, 1), (516, 4)]), DTYPES)
def test_neighbours_in_groups_are_the_references_rows(
    seed: int, stream_id: StreamId, n_tokens: int, width_and_n: tuple[int, int], dtype: str
) -> None:
    (width, n), random = width_and_n, np.random.default_rng(seed)
    table, encodings = (random.standard_normal((5, width)).astype(dtype) for _ in range(2))
    ids, positions = random.integers(0, 5, (2, n_tokens))
    threshold, scale_of_kept = threshold_and_scale(0.3)
    kept = embedding.kept_bits(stream_id, n_tokens * width, threshold)
    y = embedding.embed(table, ids, encodings, positions, kept, 3.0, scale_of_kept, n)
    expected, _ = embedding_with_positions.reference(
        table.astype(float), ids, encodings.astype(float), positions, scale=3.0, rate=0.3, stream_id=stream_id
    )
    near(y, expected, 20)


@settings(max_examples=40)
@given(SEEDS, st.sampled_from([1, 31, 32, 33, 64, 65, 100, 300]), st.sampled_from([1, 2, 5, 300]), DTYPES)
def test_rows_added_in_pieces_of_runs_are_the_references(seed: int, n: int, n_words: int, dtype: str) -> None:
    """Some tokens of the last ones are left out of the order."""
    random = np.random.default_rng(seed)
    n_counted, width = n - random.integers(0, n), 5
    ids, dy = random.integers(0, n_words, n), random.standard_normal((n, width)).astype(dtype)
    order = np.append(order_of(ids[:n_counted]), np.full(n - n_counted, -1))
    kept = embedding.kept_bits(StreamId(seed, 1), n * width, 2**15)
    before = random.standard_normal((n_words, width)).astype(dtype)
    table = before.copy()
    embedding.add_rows(dy, kept, ids, order, table, 3.0)
    dy = np.where(embedding.is_kept(kept, np.arange(n * width)).reshape(n, width), 3 * dy.astype(float), 0)
    _, backward = embedding_operation.reference(before.astype(float), ids[:n_counted])
    near(table, before + backward(dy[:n_counted])[0], 3 * n)


# Sixteen bits.

BITS = st.integers(0, 2**32 - 1) | st.integers(0, 2**16 - 1).flatmap(
    lambda high: st.sampled_from([0x7FFF, 0x8000, 0x8001]).map(lambda low: high << 16 | low)
)


@settings(max_examples=500)
@given(BITS)
@example(0x7F800001)  # a NaN whose upper half is that of infinity
@example(0xFFFFFFFF)  # a NaN that would carry
@example(0x7F7FFFFF)  # rounds to infinity
@example(0x00000001)  # subnormal
def test_rounding_to_sixteen_bits_is_that_of_ml_dtypes(bits: int) -> None:
    x = np.array([bits], np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):
        got, expected = common.bf16_bits(x), rounded(x).view(np.uint16)
    if np.isnan(x[0]):  # any NaN will do
        assert np.isnan((got.astype(np.uint32) << 16).view(np.float32)[0])
    else:
        assert got[0] == expected[0]
