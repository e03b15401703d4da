"""Products of few rows with a large matrix."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.ops.linear import check_linear_transposed, linear_transposed
from autograd.tensor import Backward

FEW = 32  # rows; with more of them OpenBLAS spends its time on the product, not on copying the matrix
VERY_FEW = 8  # rows; fewer are cheaper one by one
PIECE = 1_024  # rows of the matrix: 2 MiB of float32 at width 512, read from memory for the first row of x alone


def _has_few_rows(x: Array, weight: Array) -> bool:
    return len(x) <= FEW < len(weight)


@linear_transposed.kernel("cpu", supports=_has_few_rows)
def linear_transposed_of_few_rows(x: Array, weight: Array) -> tuple[Array, Backward]:
    """(W xᵀ)ᵀ, or W x_t row by row: OpenBLAS then reads the large matrix as it lies, and does not copy it first.

    Saves: x and the weight.
    """
    check_linear_transposed(x, weight)

    def backward(dy: Array) -> tuple[Array, Array]:
        return dy @ weight, dy.T @ x

    if len(x) > VERY_FEW:
        return np.ascontiguousarray((weight @ x.T).T), backward
    y = np.empty((len(x), len(weight)), x.dtype)
    for start in range(0, len(weight), PIECE):
        piece = slice(start, start + PIECE)
        for row, out in zip(x, y, strict=True):
            np.matmul(weight[piece], row, out=out[piece])
    return y, backward
