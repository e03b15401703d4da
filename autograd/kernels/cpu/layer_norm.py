"""Layer normalisation in one pass over memory."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.library import Function, is_for_c
from autograd.ops.layer_norm import check_layer_norm, layer_norm
from autograd.tensor import Backward

_forward, _backward = Function("layer_norm_forward"), Function("layer_norm_backward")


@layer_norm.kernel("cpu", supports=lambda x, gain, bias, **static: is_for_c(x, gain, bias))
def layer_norm_in_c(x: Array, gain: Array, bias: Array, *, eps: float = 1e-6) -> tuple[Array, Backward]:
    """Compute the reference's result.

    Saves: what the reference saves.
    """
    return normalised(x, None, gain, bias, eps, None, 1.0)


def normalised(
    x: Array, y: Array | None, gain: Array, bias: Array, eps: float, kept: Array | None, scale: float
) -> tuple[Array, Backward]:
    """Return LayerNorm(x + scale · kept · y) and its backward, which returns dx, dy (if there is a y), dgain, dbias.

    Shapes: kept as y, uint8, or None to keep all of y.
    """
    check_layer_norm(x, gain, bias)
    width = x.shape[-1]
    n_rows = x.size // width
    out, x_hat, inverse_std = np.empty_like(x), np.empty_like(x), np.empty(n_rows, np.float32)
    _forward(x, y, kept, scale, gain, bias, x_hat, inverse_std, out, n_rows, width, eps)
    has_y = y is not None  # backward must not refer to y, so that y can be freed

    def backward(dout: Array) -> tuple[Array, ...]:
        dx, sums = np.empty_like(x_hat), np.zeros((4, width), np.float32)
        dy = dx if kept is None else np.empty_like(x_hat)
        _backward(
            np.ascontiguousarray(dout, np.float32),
            x_hat,
            inverse_std,
            gain,
            kept,
            scale,
            dx,
            None if kept is None else dy,
            sums,
            n_rows,
            width,
        )
        dgain, dbias = sums[:2]
        return (dx, dy, dgain, dbias) if has_y else (dx, dgain, dbias)

    return out, backward
