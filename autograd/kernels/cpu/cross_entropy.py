"""Projection and cross-entropy: the array of logits is overwritten by its gradient."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.linear import PendingMatmul
from autograd.kernels.cpu.runs import runs
from autograd.kernels.cpu.sums import weighted_sums
from autograd.ops.cross_entropy import (
    SmoothedClasses,
    checked_shape,
    linear_cross_entropy,
    linear_logits,
    smoothed_masses,
)
from autograd.tensor import Backward, PendingGradient

RUN = 262_144  # elements: 1 MiB of float32, which stays in the second-level cache for all passes over it
SAFE_LOGIT = (
    40.0  # a row whose greatest logit is within ± this needs no shift: exp cannot overflow, nor all of it vanish
)


def _all_have_targets(x: Array, weight: Array, bias: Array | None, targets: Array, **static: object) -> bool:
    return not (targets < 0).any()


@linear_cross_entropy.kernel("cpu", supports=_all_have_targets)
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
    """Compute the reference's result with one array (T, W) instead of three.

    p − q = (e − t q) / t for e = exp(z) and t = Σ e: the smaller factors of the products are divided by t instead.
    Saves: e − t q (T, W), 1/t, x and the weight.
    """
    logits = linear_logits(x, weight, bias)
    share, of_target = smoothed_masses(smoothing, over, impossible, checked_shape(logits, targets)[1])
    loss, inverse_total = 0.0, np.empty((len(logits), 1), logits.dtype)
    for run in runs(logits, RUN):
        run_loss, total = _loss_leaving_gradient(logits[run], targets[run], share, of_target - share, impossible)
        loss += run_loss
        inverse_total[run] = 1 / total
    unscaled = logits

    def backward(dy: Array) -> tuple[Array | PendingGradient | None, ...]:
        scale = inverse_total * dy
        dbias = scale[:, 0] @ unscaled if bias is not None else None
        return (unscaled @ weight) * scale, PendingMatmul(unscaled.T, x * scale), dbias, None

    return np.asarray(loss, x.dtype), backward


def _loss_leaving_gradient(
    z: Array, targets: Array, share: float, confidence: float, impossible: int | None
) -> tuple[float, Array]:
    """Return the loss of a run of rows and t (T, 1); overwrite the logits z by e − t q, with q as in the reference."""
    rows, ones = np.arange(len(z)), np.ones(z.shape[1], z.dtype)
    greatest = z.max(1, keepdims=True)
    shift = np.where(np.abs(greatest) > SAFE_LOGIT, greatest, 0)
    if shift.any():
        z -= shift
    weighted = confidence * z[rows, targets]
    if share and impossible is None:
        weighted += share * weighted_sums(z, ones)
    elif share:
        of_impossible = z[:, impossible].copy()
        z[:, impossible] = 0  # it may be −∞
        weighted += share * weighted_sums(z, ones)
        z[:, impossible] = of_impossible
    np.exp(z, out=z)
    total = weighted_sums(z, ones)[:, None]
    if share:
        of_share = share * total
        z -= of_share
        if impossible is not None:
            z[:, impossible] += of_share[:, 0]
    z[rows, targets] -= confidence * total[:, 0]
    return float((np.log(total[:, 0]) - weighted).sum(dtype=np.float64)), total
