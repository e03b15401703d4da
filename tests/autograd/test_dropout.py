"""Dropout: the share that is kept, uncorrelated masks, and the same mask in the backward pass.

What is counted may be STANDARD_ERRORS off: a true statement fails one time in 1.7 million.  Everything that is counted
here has fixed seeds (Hypothesis' too, by ``derandomize``), so a test that passed once passes always.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from draws import full_mask
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from masks import DTYPES, NUMBERS, RATES, STANDARD_ERRORS, STREAM_ID, bits, correlation, mask_of

from autograd import KeyRanges, RandomStream, Tensor, backward, ops
from autograd.random import StreamId, random_uint16

FIELDS = [field.name for field in dataclasses.fields(StreamId)]
WORDS = st.integers(0, 2**64 - 1) | st.integers(0, 3)
STREAM_IDS = st.builds(StreamId, seed=WORDS, stream=WORDS, update=WORDS, micro_batch=WORDS)
counted = settings(derandomize=True, max_examples=100)


# The share that is kept


@DTYPES
@pytest.mark.parametrize("rate", [2**-16, 0.1, 0.999])
def test_the_share_of_elements_that_is_kept_is_one_minus_the_rate(rate: float, dtype: str) -> None:
    n, resolution = 2**20, 2**-17
    share = np.count_nonzero(mask_of(rate, STREAM_ID, n, dtype=dtype)) / n
    assert abs(share - (1 - rate)) < STANDARD_ERRORS * math.sqrt(rate * (1 - rate) / n) + resolution


@contextmanager
def every_number_once() -> Iterator[None]:
    """Replace the reference's draws by 0 … 65535 in order, so that shares are exact probabilities; use no kernel."""
    with pytest.MonkeyPatch.context() as patch:
        module = import_module("autograd.ops.dropout")  # in autograd.ops the name is that of the operation
        patch.setattr(module, "random_uint16", lambda like, *, stream_id, count: np.arange(count, dtype=np.uint16))
        patch.setattr(ops.dropout, "kernels", [])
        yield


@DTYPES
@given(rate=RATES | RATES.map(lambda rate: rate * 2**-14) | RATES.map(lambda rate: 1 - (1 - rate) * 2**-14))
def test_the_probability_is_the_multiple_of_2_to_the_minus_16_nearest_to_the_rate(dtype: str, rate: float) -> None:
    assume(rate < 1)
    with every_number_once():
        dropped = np.count_nonzero(mask_of(rate, STREAM_ID, NUMBERS, dtype=dtype) == 0)
    # Something is always kept: above 1 − 2⁻¹⁷ the nearest multiple would be 1.
    assert abs(dropped / NUMBERS - rate) <= (2**-17 if rate <= 1 - 2**-17 else 2**-16)
    assert dropped < NUMBERS


@DTYPES
@given(rate=RATES | RATES.map(lambda rate: rate * 2**-14))
def test_the_scale_is_the_inverse_probability_so_that_the_masks_mean_is_1(dtype: str, rate: float) -> None:
    with every_number_once():
        mask = mask_of(rate, STREAM_ID, NUMBERS, dtype=dtype)
    (scale,) = set(mask[mask != 0].tolist())
    assert abs(scale * np.count_nonzero(mask) / NUMBERS - 1) <= np.finfo(dtype).eps


@pytest.mark.parametrize("rate", [0.0, 1e-300, 1e-6, 2**-17])
def test_a_rate_below_half_the_resolution_drops_nothing(rate: float) -> None:
    x = np.random.default_rng(1).standard_normal((50, 2000))
    assert bits(ops.dropout(x, rate=rate, stream_id=STREAM_ID).value) == bits(x)


def test_the_smallest_rates_above_it_drop_the_number_0_alone() -> None:
    with every_number_once():
        mask = mask_of(2**-16, STREAM_ID, NUMBERS)
    assert np.flatnonzero(mask == 0).tolist() == [0]


@DTYPES
@given(rate=RATES, seed=st.integers(0, 99))
def test_the_result_is_the_argument_times_the_mask(dtype: str, rate: float, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((7, 11)).astype(dtype)
    y = ops.dropout(x, rate=rate, stream_id=STREAM_ID).value
    assert bits(y) == bits(x * mask_of(rate, STREAM_ID, 7, 11, dtype=dtype))


@given(stream_id=STREAM_IDS, rate=RATES, n=st.integers(0, 200))
def test_the_kernel_draws_the_references_mask(stream_id: StreamId, rate: float, n: int) -> None:
    x = np.random.default_rng(1).standard_normal(n).astype(np.float32)
    (y, backward_of_kernel), (expected, _) = (
        run(x, rate=rate, stream_id=stream_id) for run in (ops.dropout.of_arrays, ops.dropout.reference)
    )
    assert bits(y) == bits(expected)
    assert bits(backward_of_kernel(x)[0]) == bits(expected)


# Masks have nothing in common


@st.composite
def two_stream_ids(draw: st.DrawFn) -> tuple[StreamId, StreamId]:
    """Draw two random stream ids, often similar ones: different by 1, by one bit, or by the order of their numbers."""
    one = draw(STREAM_IDS)
    here = [getattr(one, name) for name in FIELDS]
    near = st.tuples(*(st.sampled_from([n, (n + 1) % 2**64, (n - 1) % 2**64, n ^ 2**63, n ^ 2**32]) for n in here))
    other = draw(STREAM_IDS | (near | st.permutations(here)).map(lambda words: StreamId(*words)))
    assume(one != other)
    return one, other


@settings(counted, max_examples=40)
@given(two_stream_ids(), st.sampled_from([0.1, 0.5, 0.9]))
def test_masks_of_any_two_stream_ids_are_not_correlated(stream_ids: tuple[StreamId, StreamId], rate: float) -> None:
    masks = [mask_of(rate, stream_id, 2**16) for stream_id in stream_ids]
    assert abs(correlation(*masks)) < STANDARD_ERRORS


@pytest.mark.parametrize("field", FIELDS)
def test_masks_of_consecutive_seeds_stream_ids_updates_and_micro_batches_are_not_correlated(field: str) -> None:
    masks = [mask_of(0.3, dataclasses.replace(STREAM_ID, **{field: number}), 2**14) for number in range(12)]
    assert max(abs(correlation(x, y)) for x, y in itertools.combinations(masks, 2)) < STANDARD_ERRORS


@pytest.mark.parametrize("rate", [0.1, 0.9])
def test_elements_of_one_mask_are_not_correlated_with_those_a_few_or_a_row_further(rate: float) -> None:
    mask = mask_of(rate, STREAM_ID, 2**20)
    for distance in [*range(1, 33), 64, 512, 2048]:
        assert abs(correlation(mask[:-distance], mask[distance:])) < STANDARD_ERRORS, distance


def neighbours(stream_id: StreamId) -> set[StreamId]:
    """Return all random stream ids whose numbers differ by at most 1 (81), or in their order (up to 23)."""
    here = [getattr(stream_id, name) for name in FIELDS]
    near = itertools.product(*([(n - 1) % 2**64, n, (n + 1) % 2**64] for n in here))
    return {StreamId(*words) for words in [*near, *itertools.permutations(here)]}


def windows(stream_id: StreamId) -> Any:
    """Return every 64 successive elements of a mask as one number of 64 bits."""
    kept = mask_of(0.5, stream_id, 500) != 0
    return np.packbits(np.lib.stride_tricks.sliding_window_view(kept, 64), axis=-1).view(np.uint64)


@settings(counted, max_examples=5)
@given(STREAM_IDS)
def test_no_stretch_of_a_mask_occurs_in_another_or_a_second_time(stream_id: StreamId) -> None:
    """Overlapping streams, at any distance within a mask, would share 64 successive elements."""
    found = np.concatenate([windows(neighbour) for neighbour in neighbours(stream_id)])
    assert len(np.unique(found)) == len(found)


# The bits below the masks


def chi_square(cells: Any, n_cells: int) -> float:
    """Return the distance from equal frequencies in standard errors; too equal cells are far below 0."""
    expected, dof = cells.size / n_cells, n_cells - 1
    statistic = ((np.bincount(cells.ravel(), minlength=n_cells) - expected) ** 2).sum() / expected
    return float((statistic - dof) / math.sqrt(2 * dof))


@pytest.mark.parametrize(
    "stream_id", [STREAM_ID, StreamId(0, 0), StreamId(1, 2, 3, 4), StreamId(2**64 - 1, 2**63, 10**6, 7)]
)
def test_numbers_of_16_bits_are_uniform_in_every_bit_and_independent_of_later_ones(stream_id: StreamId) -> None:
    """Behind: the next, the second, those a word and a block further."""
    numbers = random_uint16(np.empty(0), stream_id=stream_id, count=2**21).astype(np.int64)
    assert abs(chi_square(numbers, NUMBERS)) < STANDARD_ERRORS
    set_bits = numbers.reshape(-1, 4, 1) >> np.arange(16) & 1
    assert (abs(set_bits.mean(0) - 0.5) < STANDARD_ERRORS * 0.5 / math.sqrt(len(set_bits))).all()
    for distance, shift in itertools.product((1, 2, 4, 16), (0, 8)):
        first, second = numbers[:-distance] >> shift & 0xFF, numbers[distance:] >> shift & 0xFF
        assert abs(chi_square(256 * first + second, NUMBERS)) < STANDARD_ERRORS


# The same mask again: in the backward pass, in another precision, in another place


@DTYPES
@given(rate=RATES, stream_id=STREAM_IDS, shape=st.lists(st.integers(0, 9), max_size=3))
def test_the_sums_gradient_is_the_forward_mask(dtype: str, rate: float, stream_id: StreamId, shape: list[int]) -> None:
    x = Tensor(np.ones(shape, dtype))
    y = ops.dropout(x, rate=rate, stream_id=stream_id)
    backward(ops.sum(y))
    assert x.grad is not None
    assert bits(x.grad) == bits(y.value)


def test_the_mask_goes_by_row_and_column_not_by_the_position_in_memory() -> None:
    x = Tensor(np.random.default_rng(2).standard_normal((40, 30)).T)
    y, mask = ops.dropout(x, rate=0.5, stream_id=STREAM_ID), mask_of(0.5, STREAM_ID, 30, 40)
    backward(y, np.ones((40, 30)).T)
    np.testing.assert_array_equal(y.value, x.value * mask)
    np.testing.assert_array_equal(x.grad, mask)


@given(rate=RATES, stream_id=STREAM_IDS)
def test_float32_and_float64_have_the_same_mask(rate: float, stream_id: StreamId) -> None:
    in_double = mask_of(rate, stream_id, 300)
    assert bits(mask_of(rate, stream_id, 300, dtype="float32")) == bits(in_double.astype("float32"))


@given(WORDS, WORDS, WORDS)
def test_streams_of_one_seed_update_and_micro_batch_give_equal_masks(seed: int, update: int, micro_batch: int) -> None:
    def masks(stream: RandomStream) -> list[Any]:
        return [bits(mask_of(0.5, stream.next_id(), 100)) for _ in range(4)]

    first, other, again = (RandomStream(seed, update, number) for number in (micro_batch, micro_batch ^ 1, micro_batch))
    for _ in range(2):  # in turn: no stream moves another one on
        first_masks, other_masks, repeated_masks = masks(first), masks(other), masks(again)
        assert first_masks == repeated_masks
        assert not set(first_masks) & set(other_masks)


@pytest.mark.parametrize("rate", [-0.5, 1.0])
def test_dropout_rate_out_of_range(rate: float) -> None:
    with pytest.raises(ValueError, match=rf"rate must be in \[0, 1\), got {rate}"):
        ops.dropout(np.ones(3), rate=rate, stream_id=STREAM_ID)


# Dropout of attention weights.


def attention_masks(mask: KeyRanges, n_heads: int, rate: float, dtype: Any = "float64") -> tuple[Any, Any]:
    """Return the masks of the attention weights (T, H, S) of the forward and of the backward pass.

    Queries and keys are 0: a segment's n weights are all 1/n, exactly so if n is a power of two.  Value j is the j-th
    unit vector, so the result is the dropped weights.  The gradient of output t is the t-th unit vector, so that of
    the values is the dropped weights again.
    """
    n_queries, n_keys = mask.queries.n_tokens, mask.keys.n_tokens
    width = max(n_queries, n_keys)
    nothing = np.zeros((width, n_heads, 1), dtype)
    units = np.repeat(np.eye(width, dtype=dtype)[:, None], n_heads, axis=1)
    v = Tensor(units[:n_keys])
    y = ops.attention(nothing[:n_queries], nothing[:n_keys], v, mask=mask, rate=rate, stream_id=STREAM_ID)
    backward(y, units[:n_queries])
    assert v.grad is not None
    n = mask.keys.lengths[mask.queries.segment_of_token].astype(dtype)[:, None, None]
    return y.value[..., :n_keys] * n, v.grad.transpose(2, 1, 0)[:n_queries] * n


PADDED = full_mask([1, 5, 2], [4, 1, 8])


@DTYPES
@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from([1, 2, 4, 8])), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from([0.1, 0.5, 0.9]),
)
@example([(3, 8)], 6, 0.1)
@settings(max_examples=25)
def test_one_attention_mask_both_ways(dtype: str, lengths: list[tuple[int, int]], n_heads: int, rate: float) -> None:
    query_lengths, key_lengths = map(list, zip(*lengths, strict=True))
    forward, back = attention_masks(full_mask(query_lengths, key_lengths), n_heads, rate, dtype)
    assert set(np.unique(forward).tolist()) <= {0.0, float(np.array(scale_of(rate), dtype))}
    assert bits(np.ascontiguousarray(back)) == bits(forward)


def scale_of(rate: float) -> float:
    return NUMBERS / (NUMBERS - round(rate * NUMBERS))


def test_queries_and_keys_get_their_gradients_through_the_mask_too() -> None:
    """With queries 1, keys 0 and a loss that adds the outputs up, dkey j = w (mask_j − mean of the mask)."""
    n_keys, n_heads = 8, 5
    mask = full_mask([1], [n_keys])
    kept, _ = attention_masks(mask, n_heads, 0.4)
    k = Tensor(np.zeros((n_keys, n_heads, 1)))
    q, units = np.ones((1, n_heads, 1)), np.repeat(np.eye(n_keys)[:, None], n_heads, axis=1)
    backward(ops.sum(ops.attention(q, k, units, mask=mask, rate=0.4, stream_id=STREAM_ID)))
    expected = (kept - kept.mean(-1, keepdims=True))[0].T[..., None] / n_keys
    np.testing.assert_allclose(k.grad, expected, atol=1e-15)


def test_attention_has_the_same_mask_in_float32_and_float64() -> None:
    single, double = (attention_masks(PADDED, 3, 0.3, dtype)[0] for dtype in ("float32", "float64"))
    assert bits(single) == bits(double.astype("float32"))


def test_attention_drops_other_weights_in_every_head_sentence_and_query() -> None:
    n = 64
    mask, _ = attention_masks(full_mask([n, n], [n, n]), 2, 0.3)
    rows = [mask[first : first + n, head, first : first + n] for first in (0, n) for head in (0, 1)]
    assert max(abs(correlation(x, y)) for x, y in itertools.combinations(rows, 2)) < STANDARD_ERRORS
    assert abs(correlation(rows[0][1:], rows[0][:-1])) < STANDARD_ERRORS
    assert abs(correlation(rows[0][:, 1:], rows[0][:, :-1])) < STANDARD_ERRORS
