"""Cross-entropy behind its projection: the logits become their own gradient, in place."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.runs import runs
from autograd.ops.cross_entropy import (
    SmoothedClasses,
    checked_shape,
    linear_cross_entropy,
    linear_logits,
    smoothed_masses,
)
from autograd.tensor import Backward

RUN = 262_144  # elements: 1 MiB of float32, which stays in the second-level cache from the maximum to the gradient


@linear_cross_entropy.kernel("cpu")
def linear_cross_entropy_in_place(
    x: Array,
    weight: Array,
    bias: Array | None,
    targets: Array,
    *,
    smoothing: float = 0.0,
    over: SmoothedClasses = "V-1",
    impossible: int | None = None,
) -> tuple[Array, Backward]:
    """The reference's numbers with one array of the size of the vocabulary instead of three.

    Saves: p − q (T, W), x and the weight.
    """
    logits = linear_logits(x, weight, bias)
    share, of_target = smoothed_masses(smoothing, over, impossible, checked_shape(logits, targets)[1])
    loss = 0.0
    for run in runs(logits, RUN):
        loss += _loss_leaving_gradient(logits[run], targets[run], share, of_target - share, impossible)
    gradient = logits

    def backward(dy: Array) -> tuple[Array | None, ...]:
        dbias = gradient.sum(0) * dy if bias is not None else None
        return (gradient @ weight) * dy, gradient.T @ (x * dy), dbias, None

    return np.asarray(loss, x.dtype), backward


def _loss_leaving_gradient(z: Array, targets: Array, share: float, confidence: float, impossible: int | None) -> float:
    """The loss of a run of rows of logits z, which become p − q; q as in the reference."""
    rows, ones = np.arange(len(z)), np.ones(z.shape[1], z.dtype)
    z -= z.max(1, keepdims=True)
    weighted = confidence * z[rows, targets]
    if share:
        weighted += share * (z @ ones)
        if impossible is not None:
            weighted -= share * z[:, impossible]
    np.exp(z, out=z)
    total = z @ ones  # BLAS sums faster than NumPy
    z *= (1 / total)[:, None]
    if share:
        z -= share
        if impossible is not None:
            z[:, impossible] += share
    z[rows, targets] -= confidence
    return float((np.log(total) - weighted).sum(dtype=np.float64))
