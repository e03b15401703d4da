"""Projection and cross-entropy: each row of logits is overwritten by its gradient."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.driver import STORAGE, launch
from autograd.kernels.cuda.linear import affine, sum_of_rows
from autograd.kernels.cuda.products import is_matrix, multiplied, weight_gradients
from autograd.ops.cross_entropy import (
    SmoothedClasses,
    check_projection,
    checked_shape,
    linear_cross_entropy,
    smoothed_masses,
)
from autograd.tensor import Backward, Gradient

SOURCE = "cross_entropy.cu"
THREADS = 512
PASSES = ("cross_entropy", "scaled")


def kernel_name(dtype: object, pass_name: str = "cross_entropy") -> str:
    """Return the name of the kernel of one of ``PASSES`` for arrays of this dtype."""
    return f"{pass_name}_{STORAGE[str(dtype)]}"


def _is_supported(x: Array, weight: Array, bias: Array | None, targets: Array, **static: object) -> bool:
    are_matrices = is_matrix(x) and is_matrix(weight) and x.dtype == weight.dtype and x.shape[1] > 0
    return are_matrices and targets.dtype == np.int64


@linear_cross_entropy.kernel("cuda", supports=_is_supported, takes_16_bits=True)
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
    """Compute the reference's result without a second array of the size of the logits.

    Saves: p − q (T, W), in the dtype of x; x and the weight.
    """
    xp = namespace(x)
    check_projection(x, weight, bias)
    logits = affine(x, weight.T, bias, "bias")
    n_rows, n_words = checked_shape(logits, targets)
    share, target_mass = smoothed_masses(smoothing, over, impossible, n_words)
    losses = xp.empty(n_rows, np.float32)
    if n_rows:
        launch(
            SOURCE,
            kernel_name(x.dtype),
            n_rows,
            THREADS,
            logits,
            xp.ascontiguousarray(targets),
            losses,
            np.int64(n_words),
            np.float32(share),
            np.float32(target_mass - share),
            np.int32(-1 if impossible is None else impossible),
        )

    def backward(dy: Array) -> tuple[Gradient | None, ...]:
        dx, dweights = _scale(multiplied(logits, weight), dy), weight_gradients(logits.T, _scale(x, dy))
        return dx, *dweights, sum_of_rows(logits) * dy if bias is not None else None, None

    return sum_of_rows(losses[:, None]).reshape(()), backward


def _scale(x: Array, dy: Array) -> Array:
    """Return x · dy, of a number on the device, in the dtype of x, computed in float32."""
    xp = namespace(x)
    x, dy = xp.ascontiguousarray(x), xp.ascontiguousarray(dy, dtype=np.float32)
    y = xp.empty_like(x)
    if x.size:
        n_blocks = -(-x.size // (4 * THREADS))
        launch(SOURCE, kernel_name(x.dtype, "scaled"), n_blocks, THREADS, x, dy, y, np.int64(x.size))
    return y
