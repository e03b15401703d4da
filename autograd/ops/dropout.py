"""Dropout whose mask is not saved, but computed again in the backward pass."""

from __future__ import annotations

from autograd.array import Array
from autograd.op import ArgumentError, op
from autograd.random import StreamId, random_uint16
from autograd.tensor import Backward


@op
def dropout(x: Array, *, rate: float, stream_id: StreamId) -> tuple[Array, Backward]:
    """Return y = x ⊙ m / (1 − rate), where m is 1 with probability 1 − rate, else 0.

    Source: Srivastava et al. 2014, in the inverted form, which needs no scaling at inference.
    The mask is a pure function of the random stream id and the element's index; backward draws it again.
    Saves: nothing.
    Differs: the rate is rounded to a multiple of 2⁻¹⁶, also in the scale.
    Raises: ValueError unless 0 ≤ rate < 1.
    """

    def backward(dy: Array) -> tuple[Array]:
        return (dy * dropout_mask(dy, rate, stream_id),)

    return x * dropout_mask(x, rate, stream_id), backward


def dropout_mask(x: Array, rate: float, stream_id: StreamId) -> Array:
    """Return the mask in x's shape and dtype: 0 where dropped, else 1/(1 − rate).  Draws are in row-major order."""
    kept, scale = kept_elements(x, rate, stream_id)
    mask = kept.astype(x.dtype)
    mask *= scale
    return mask.reshape(x.shape)


def kept_elements(x: Array, rate: float, stream_id: StreamId) -> tuple[Array, float]:
    """Return a mask of the kept elements of x, (x.size,) bool in row-major order, and their scale 1/(1 − rate).

    Raises: ValueError unless 0 ≤ rate < 1.
    """
    threshold, scale = threshold_and_scale(rate)
    return random_uint16(x, stream_id=stream_id, count=x.size) >= threshold, scale


def threshold_and_scale(rate: float) -> tuple[int, float]:
    """Return the smallest 16-bit draw that keeps an element, and the scale of kept elements.

    Raises: ValueError unless 0 ≤ rate < 1.
    """
    if not 0 <= rate < 1:
        raise ArgumentError(f"dropout: rate must be in [0, 1), got {rate}")
    threshold = min(round(rate * 2**16), 2**16 - 1)
    return threshold, 2**16 / (2**16 - threshold)
