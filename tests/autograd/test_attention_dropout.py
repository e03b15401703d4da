"""Dropout of attention weights: one mask, forward and backward, for sentences of all lengths."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from draws import full_mask
from hypothesis import given
from hypothesis import strategies as st
from masks import DTYPES, NUMBERS, RATES, STANDARD_ERRORS, STREAM_ID, bits, correlation

from autograd import KeyRanges, Tensor, backward, ops


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


ATTENTION = {
    "one sentence": ([3], [8]),
    "equal lengths": ([4, 4], [4, 4]),
    "padded": ([1, 5, 2], [4, 1, 8]),
    "newest tokens": ([1, 1, 1], [2, 2, 2]),
}


@DTYPES
@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_attention_multiplies_with_one_mask_forward_and_backward(name: str, rate: float, dtype: str) -> None:
    forward, back = attention_masks(full_mask(*ATTENTION[name]), 6, rate, dtype)
    scale = np.array(NUMBERS / (NUMBERS - round(rate * NUMBERS)), dtype)
    assert set(np.unique(forward).tolist()) == {0.0, float(scale)}
    assert bits(np.ascontiguousarray(back)) == bits(forward)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from([1, 2, 4, 8])), min_size=1, max_size=4),
    st.integers(1, 4),
    RATES,
)
def test_attention_has_one_mask_for_segments_of_all_lengths(
    lengths: list[tuple[int, int]], n_heads: int, rate: float
) -> None:
    query_lengths, key_lengths = zip(*lengths, strict=True)
    forward, back = attention_masks(full_mask(list(query_lengths), list(key_lengths)), n_heads, rate)
    assert bits(np.ascontiguousarray(back)) == bits(forward)


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
    mask = full_mask(*ATTENTION["padded"])
    single, double = (attention_masks(mask, 3, 0.3, dtype)[0] for dtype in ("float32", "float64"))
    assert bits(single) == bits(double.astype("float32"))


def test_attention_drops_other_weights_in_every_head_sentence_and_query() -> None:
    n = 64
    mask, _ = attention_masks(full_mask([n, n], [n, n]), 2, 0.3)
    rows = [mask[first : first + n, head, first : first + n] for first in (0, n) for head in (0, 1)]
    assert max(abs(correlation(x, y)) for x, y in itertools.combinations(rows, 2)) < STANDARD_ERRORS
    assert abs(correlation(rows[0][1:], rows[0][:-1])) < STANDARD_ERRORS
    assert abs(correlation(rows[0][:, 1:], rows[0][:, :-1])) < STANDARD_ERRORS
