"""Dropout: the share that is kept, uncorrelated masks, and the same mask in the backward pass.

What is counted may be STANDARD_ERRORS off: a true statement fails one time in 1.7 million.  Everything that is counted
here has fixed seeds (Hypothesis' too, by ``derandomize``), so a test that passed once passes always.
"""

import dataclasses
import itertools
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


# The share that is kept


@DTYPES
@given(rate=RATES | RATES.map(lambda rate: rate * 2**-14) | RATES.map(lambda rate: 1 - (1 - rate) * 2**-14))
def test_the_probability_is_the_nearest_multiple_of_2_to_the_minus_16_and_the_scale_its_inverse(
    dtype: str, rate: float
) -> None:
    """The reference draws 0 … 65535 in order, so shares are exact probabilities, and the mask's mean is 1."""
    assume(rate < 1)
    module = import_module("autograd.ops.dropout")  # in autograd.ops the name is that of the operation
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "random_uint16", lambda like, *, stream_id, count: np.arange(count, dtype=np.uint16))
        patch.setattr(ops.dropout, "kernels", [])
        mask = mask_of(rate, STREAM_ID, NUMBERS, dtype=dtype)
    n_kept = np.count_nonzero(mask)
    # Something is always kept: above 1 − 2⁻¹⁷ the nearest multiple would be 1.
    assert abs(1 - n_kept / NUMBERS - rate) <= (2**-17 if rate <= 1 - 2**-17 else 2**-16)
    (scale,) = set(mask[mask != 0].tolist())
    assert abs(scale * n_kept / NUMBERS - 1) <= np.finfo(dtype).eps


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


@settings(derandomize=True, max_examples=40)
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
    """It is that of float64, too."""
    x = Tensor(np.random.default_rng(1).standard_normal(shape).astype(dtype))
    y = ops.dropout(x, rate=rate, stream_id=stream_id)
    backward(ops.sum(y))
    mask = mask_of(rate, stream_id, *shape).astype(dtype)
    assert bits(y.value) == bits(x.value * mask)
    assert bits(x.grad) == bits(mask)


@pytest.mark.parametrize("rate", [-0.5, 1.0])
def test_dropout_rate_out_of_range(rate: float) -> None:
    with pytest.raises(ValueError, match=rf"rate must be in \[0, 1\), got {rate}"):
        ops.dropout(np.ones(3), rate=rate, stream_id=STREAM_ID)
