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

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from masks import DTYPES, NUMBERS, RATES, STANDARD_ERRORS, STREAM_ID, bits, correlation, mask_of

from autograd import Tensor, backward, ops
from autograd.random import StreamId

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


# The same mask again: in the backward pass, in another precision, in another place


@DTYPES
@given(rate=RATES, stream_id=STREAM_IDS, shape=st.lists(st.integers(0, 9), max_size=3))
def test_the_sums_gradient_is_the_forward_mask(dtype: str, rate: float, stream_id: StreamId, shape: list[int]) -> None:
    x = Tensor(np.random.default_rng(1).standard_normal(shape).astype(dtype))
    y = ops.dropout(x, rate=rate, stream_id=stream_id)
    backward(ops.sum(y))
    mask = mask_of(rate, stream_id, *shape, dtype=dtype)
    assert bits(y.value) == bits(x.value * mask)
    assert bits(x.grad) == bits(mask)


@given(rate=RATES, stream_id=STREAM_IDS)
def test_float32_and_float64_have_the_same_mask(rate: float, stream_id: StreamId) -> None:
    in_double = mask_of(rate, stream_id, 300)
    assert bits(mask_of(rate, stream_id, 300, dtype="float32")) == bits(in_double.astype("float32"))


@pytest.mark.parametrize("rate", [-0.5, 1.0])
def test_dropout_rate_out_of_range(rate: float) -> None:
    with pytest.raises(ValueError, match=rf"rate must be in \[0, 1\), got {rate}"):
        ops.dropout(np.ones(3), rate=rate, stream_id=STREAM_ID)
