"""Linear maps: gradients of weights are computed where they belong; few rows are multiplied as suits them."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.ops.linear import check_linear, check_linear_transposed, linear, linear_relu, linear_transposed
from autograd.tensor import Backward, PendingGradient

FEW = 32  # rows; with more of them OpenBLAS spends its time on the product, not on copying the matrix
VERY_FEW = 8  # rows; fewer are cheaper one by one
PIECE = 1_024  # rows of the matrix: 2 MiB of float32 at width 512, read from memory for the first row of x alone


class PendingProduct(PendingGradient):
    """The product of two matrices, which BLAS can write where it is wanted."""

    def __init__(self, left: Array, right: Array) -> None:
        self.shape, self.dtype = (left.shape[0], right.shape[1]), left.dtype
        self.left, self.right = left, right

    def write_to(self, out: Array) -> None:
        """See ``PendingGradient``."""
        np.matmul(self.left, self.right, out=out)

    def add_to(self, out: Array) -> None:
        """See ``PendingGradient``."""
        out += self.left @ self.right


def _sum_of_rows(rows: Array) -> Array:
    """By BLAS, several times as fast as NumPy's."""
    return np.ones(len(rows), rows.dtype) @ rows


@linear.kernel("cpu")
def linear_with_pending_gradient(x: Array, weight: Array, bias: Array | None) -> tuple[Array, Backward]:
    """The reference's numbers.

    Saves: what the reference saves.
    """
    check_linear("linear", x, weight)
    y = x @ weight
    if bias is not None:
        y += bias

    def backward(dy: Array) -> tuple[Array | PendingGradient | None, ...]:
        return dy @ weight.T, PendingProduct(x.T, dy), _sum_of_rows(dy) if bias is not None else None

    return y, backward


@linear_relu.kernel("cpu")
def linear_relu_with_pending_gradient(x: Array, weight: Array, bias: Array) -> tuple[Array, Backward]:
    """The reference's numbers.

    Saves: what the reference saves.
    """
    check_linear("linear_relu", x, weight)
    y = x @ weight
    y += bias
    np.maximum(y, np.zeros_like(bias), out=y)  # a row of zeros: NumPy is slower with a single one

    def backward(dy: Array) -> tuple[Array | PendingGradient, ...]:
        dz = dy * (y > 0)
        return dz @ weight.T, PendingProduct(x.T, dz), _sum_of_rows(dz)

    return y, backward


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
