"""Dropout that keeps its mask, one byte per element."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.library import Function, is_for_c
from autograd.ops.dropout import dropout, threshold_and_scale
from autograd.random import StreamId
from autograd.tensor import Backward

_draw_mask, _apply_mask = Function("draw_mask"), Function("apply_mask")


def drawn_mask(shape: tuple[int, ...], rate: float, stream_id: StreamId) -> tuple[Array, float]:
    """Return the reference's mask, as bytes 1 (kept) and 0 (dropped), and the scale of kept elements."""
    threshold, scale = threshold_and_scale(rate)
    kept = np.empty(shape, np.uint8)
    _draw_mask(
        kept, kept.size, stream_id.seed, stream_id.stream, int(stream_id.update), stream_id.micro_batch, threshold
    )
    return kept, scale


@dropout.kernel("cpu", supports=lambda x, **static: is_for_c(x))
def dropout_in_c(x: Array, *, rate: float, stream_id: StreamId) -> tuple[Array, Backward]:
    """Compute the reference's result; save the mask, because that costs less than to draw it again.

    Saves: the mask.
    """
    kept, scale = drawn_mask(x.shape, rate, stream_id)

    def masked(values: Array) -> Array:
        out = np.empty(values.shape, np.float32)
        _apply_mask(np.ascontiguousarray(values, np.float32), kept, out, out.size, scale)
        return out

    return masked(x), lambda dy: (masked(dy),)
