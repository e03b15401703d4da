"""Layer normalisation, and the denominator of softmax, in runs of rows that stay in the cache."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.runs import runs
from autograd.ops.normalisation import layer_norm, log_normaliser
from autograd.tensor import Backward

RUN = 32_768  # elements: x, x̂, y (or dy, x̂, dx and a product) of float32 take 512 KiB of second-level cache


@layer_norm.kernel("cpu")
def layer_norm_in_runs(x: Array, gain: Array, bias: Array, *, eps: float = 1e-6) -> tuple[Array, Backward]:
    """The reference's equations, a run of rows at a time and without temporaries of the whole size.

    Saves: what the reference saves.
    """
    width = x.shape[-1]
    rows = x.reshape(-1, width)
    x_hat, y = np.empty_like(rows), np.empty_like(rows)
    inverse_std = np.empty((len(rows), 1), x.dtype)
    for run in runs(rows, RUN):
        h, out = x_hat[run], y[run]
        np.subtract(rows[run], _mean(rows[run]), out=h)
        inverse_std[run] = 1 / np.sqrt(np.vecdot(h, h)[:, None] / width + eps)
        h *= inverse_std[run]
        np.multiply(h, gain, out=out)
        out += bias

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dy_rows, dx = dy.reshape(-1, width), np.empty_like(x_hat)
        dgain, dbias = np.zeros((2, width), x.dtype)
        for run in runs(x_hat, RUN):
            d, h, out = dy_rows[run], x_hat[run], dx[run]
            product = d * h
            dgain += product.sum(0)
            dbias += d.sum(0)
            product *= gain
            np.multiply(d, gain, out=out)
            out -= _mean(out)
            np.multiply(h, _mean(product), out=product)
            out -= product
            out *= inverse_std[run]
        return dx.reshape(x.shape), dgain, dbias

    return y.reshape(x.shape), backward


def _mean(rows: Array) -> Array:
    """(T, 1); as a sum, which NumPy computes in fewer steps than its ``mean``."""
    return np.asarray(rows.sum(1, keepdims=True) / rows.dtype.type(max(1, rows.shape[1])))


@log_normaliser.kernel("cpu")
def log_normaliser_in_runs(x: Array) -> tuple[Array, Array]:
    """The reference's numbers, with a temporary of the size of a run."""
    rows = x.reshape(-1, x.shape[-1])
    greatest, log_total = np.empty((2, len(rows), 1), x.dtype)
    for run in runs(rows, RUN):
        z = rows[run]
        np.max(z, axis=1, keepdims=True, out=greatest[run])
        shifted = z - greatest[run]
        log_total[run] = np.log(np.exp(shifted, out=shifted).sum(1, keepdims=True))
    return greatest.reshape(*x.shape[:-1], 1), log_total.reshape(*x.shape[:-1], 1)
