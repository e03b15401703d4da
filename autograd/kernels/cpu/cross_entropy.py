"""Projection and cross-entropy: the array of logits is overwritten by its gradient."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.blas import product
from autograd.kernels.cpu.library import Function, is_for_c
from autograd.kernels.cpu.linear import pending_product
from autograd.ops.cross_entropy import (
    SmoothedClasses,
    checked_shape,
    linear_cross_entropy,
    linear_logits,
    smoothed_masses,
)
from autograd.tensor import Backward, Gradient

_cross_entropy_rows = Function("cross_entropy_rows")


def _is_supported(x: Array, weight: Array, bias: Array | None, targets: Array, **static: object) -> bool:
    """Return whether the arrays are for C and all targets are classes; the reference handles or refuses others."""
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
    z = linear_logits(x, weight, bias)
    n_rows, n_classes = checked_shape(z, targets)
    share, target_mass = smoothed_masses(smoothing, over, impossible, n_classes)
    loss = _cross_entropy_rows(
        z,
        np.ascontiguousarray(targets, np.int64),
        n_rows,
        n_classes,
        share,
        target_mass - share,
        -1 if impossible is None else impossible,
    )
    dlogits = z

    def backward(dy: Array) -> tuple[Gradient | None, ...]:
        dbias = product(np.full(n_rows, dy, np.float32), dlogits) if bias is not None else None
        return product(dlogits, weight) * dy, pending_product(dlogits.T, x * dy), dbias, None

    return np.asarray(loss, np.float32), backward
