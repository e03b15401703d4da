"""Layer normalisation in runs of rows that fit in the cache."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.runs import runs
from autograd.kernels.cpu.sums import weighted_sums
from autograd.ops.layer_norm import check_layer_norm, layer_norm
from autograd.tensor import Backward

RUN = 65_536  # elements: x, x̂, y (or dy, x̂, dx and a product) of float32 take a second-level cache of 1 MiB


@layer_norm.kernel("cpu")
def layer_norm_in_runs(x: Array, gain: Array, bias: Array, *, eps: float = 1e-6) -> tuple[Array, Backward]:
    """Compute the reference's result a run of rows at a time, without temporaries of the full size, with sums by BLAS.

    Saves: what the reference saves.
    """
    check_layer_norm(x, gain, bias)
    shape, width = x.shape, x.shape[-1]  # backward refers to the shape only, so x can be freed
    rows, ones = x.reshape(-1, width), np.ones(width, x.dtype)
    x_hat, y = np.empty_like(rows), np.empty_like(rows)
    inverse_std = np.empty((len(rows), 1), x.dtype)
    for run in runs(rows, RUN):
        h, out = x_hat[run], y[run]
        np.subtract(rows[run], _mean(rows[run], ones), out=h)
        inverse_std[run] = 1 / np.sqrt(np.vecdot(h, h)[:, None] / width + eps)
        h *= inverse_std[run]
        np.multiply(h, gain, out=out)
        out += bias

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dy_rows, dx = dy.reshape(-1, width), np.empty_like(x_hat)
        dgain, dbias = np.zeros((2, width), dy.dtype)
        for run in runs(x_hat, RUN):
            d, h, out = dy_rows[run], x_hat[run], dx[run]
            product, of_rows = d * h, np.ones(len(d), d.dtype)
            dgain += of_rows @ product
            dbias += of_rows @ d
            np.multiply(d, gain, out=out)
            out -= _mean(d, gain)
            out -= np.multiply(h, _mean(product, gain), out=product)
            out *= inverse_std[run]
        return dx.reshape(shape), dgain, dbias

    return y.reshape(x.shape), backward


def _mean(rows: Array, weight: Array) -> Array:
    """Return the means of weighted rows.  Shapes: rows (T, D), weight (D,); returns (T, 1)."""
    return weighted_sums(rows, weight)[:, None] / rows.dtype.type(len(weight))
