"""Dropout, residual connection and layer normalisation in one pass over memory."""

from __future__ import annotations

from autograd.array import Array
from autograd.kernels.cpu.dropout import drawn_mask
from autograd.kernels.cpu.layer_norm import normalised
from autograd.kernels.cpu.library import is_for_c
from autograd.ops.add_norm import add_norm
from autograd.random import StreamId
from autograd.tensor import Backward


@add_norm.kernel("cpu", supports=lambda x, y, gain, bias, **static: x.shape == y.shape and is_for_c(x, y, gain, bias))
def add_norm_in_c(
    x: Array,
    y: Array,
    gain: Array,
    bias: Array,
    *,
    rate: float = 0.0,
    stream_id: StreamId | None = None,
    eps: float = 1e-6,
) -> tuple[Array, Backward]:
    """Compute the reference's result; the sum and its normalisation share a pass over memory.

    Saves: what the reference saves, and the dropout mask, one byte per element.
    """
    kept, scale = drawn_mask(y.shape, rate, stream_id) if rate and stream_id else (None, 1.0)
    return normalised(x, y, gain, bias, eps, kept, scale)
