"""Projection and cross-entropy: the array of logits is overwritten by its gradient."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.blas import product
from autograd.kernels.cpu.bfloat16 import Rows, is_for_bfloat16, pending_weight_gradient, rounded_product
from autograd.kernels.cpu.library import Function, is_for_c
from autograd.kernels.cpu.linear import pending_product, sum_of_rows
from autograd.ops.cross_entropy import (
    SmoothedClasses,
    check_projection,
    checked_shape,
    linear_cross_entropy,
    linear_logits,
    smoothed_masses,
)
from autograd.tensor import Backward, Gradient

ROWS = 128  # of a block: its logits stay in the caches, and the weight is read once for each block

_cross_entropy_rows = Function("cross_entropy_rows")


def _is_supported(x: Array, weight: Array, bias: Array | None, targets: Array, **static: object) -> bool:
    """Return whether C can read the arrays, and no target is too large; the reference handles or refuses others."""
    return is_for_c(x, weight, bias) and targets.dtype.kind == "i" and targets.max(initial=-1) < len(weight)


@linear_cross_entropy.kernel("cpu", supports=_is_supported)
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

    Saves: p − q (T, W), x and the weight.
    """
    dlogits = linear_logits(x, weight, bias)
    n_rows, n_classes = checked_shape(dlogits, targets)
    loss = _loss_of_rows(dlogits, targets, smoothed_masses(smoothing, over, impossible, n_classes), impossible)

    def backward(dy: Array) -> tuple[Gradient | None, ...]:
        dbias = product(np.full(n_rows, dy, np.float32), dlogits) if bias is not None else None
        return product(dlogits, weight) * dy, pending_product(dlogits.T, x * dy), dbias, None

    return np.asarray(loss, np.float32), backward


@linear_cross_entropy.kernel(
    "cpu",
    supports=lambda x, weight, bias, targets, **static: (
        is_for_bfloat16(x, weight, bias) and _is_supported(x, weight, bias, targets)
    ),
)
def linear_cross_entropy_in_bfloat16(
    x: Array,
    weight: Array,
    bias: Array | None,
    targets: Array,
    *,
    smoothing: float = 0.0,
    over: SmoothedClasses = "V-1",
    impossible: int | None = None,
) -> tuple[Array, Backward]:
    """Compute the reference's result with rounded factors, for a block of rows at a time.

    Saves: p − q (T, W) in bfloat16, x and the weight.
    """
    check_projection(x, weight, bias)
    n_rows, n_classes = checked_shape(np.broadcast_to(np.float32(0), (len(x), len(weight))), targets)
    masses = smoothed_masses(smoothing, over, impossible, n_classes)
    rows, dlogits, loss = Rows.rounded(x), Rows(n_rows, n_classes), 0.0
    dbias = None if bias is None else np.zeros_like(bias)
    for start in range(0, n_rows, ROWS):
        block = slice(start, start + ROWS)
        z = rounded_product(rows[block], weight, bias, transposed=True)
        loss += _loss_of_rows(z, targets[block], masses, impossible)
        dlogits.set(block, z)
        if dbias is not None:
            dbias += sum_of_rows(z)

    def backward(dy: Array) -> tuple[Gradient | None, ...]:
        scaled = rows if dy == 1 else Rows.rounded(x * dy)
        dx = rounded_product(dlogits, weight) * dy
        return dx, pending_weight_gradient(dlogits, scaled), None if dbias is None else dbias * dy, None

    return np.asarray(loss, np.float32), backward


def _loss_of_rows(z: Array, targets: Array, masses: tuple[float, float], impossible: int | None) -> float:
    """Return the loss of rows of logits z, and overwrite z with p − q; ``masses`` come from ``smoothed_masses``."""
    share, target_mass = masses
    targets = np.ascontiguousarray(targets, np.int64)
    no_class = -1 if impossible is None else impossible
    loss: float = _cross_entropy_rows(z, targets, *z.shape, share, target_mass - share, no_class)
    return loss
