"""Linear maps: gradients of weights are computed where they belong; few rows are multiplied as suits them."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.panels import MatrixInPanels, small_products_are_fast
from autograd.ops.linear import check_linear, for_few_rows, linear, linear_relu
from autograd.tensor import Backward, PendingGradient

FEW = 8  # rows; as many are cheaper one by one: OpenBLAS would first copy the matrix into another order
PIECE = 2_048  # columns of the matrix, 4 MiB of float32 at width 512: read from memory for the first row of x alone


class PendingProduct(PendingGradient):
    """The product of two matrices, which BLAS can write where it is wanted."""

    def __init__(self, left: Array, right: Array) -> None:
        self.shape, self.like = (left.shape[0], right.shape[1]), np.empty(0, np.result_type(left, right))
        self.left, self.right = left, right

    def write_to(self, out: Array) -> None:
        """See ``PendingGradient``."""
        np.matmul(self.left, self.right, out=out)

    def add_to(self, out: Array) -> None:
        """See ``PendingGradient``."""
        out += self.left @ self.right


def _product(x: Array, weight: Array) -> Array:
    """x W; by panels, if W has them; else of few rows of x with a wide W row by row."""
    if isinstance(weight, MatrixInPanels):
        return weight.product(x)
    n_columns = weight.shape[1]
    if len(x) > FEW or n_columns < PIECE:
        return x @ weight
    y = np.empty((len(x), n_columns), np.result_type(x, weight))
    for start in range(0, n_columns, PIECE):
        columns = slice(start, start + PIECE)
        for row, out in zip(x, y, strict=True):
            np.matmul(row, weight[:, columns], out=out[columns])
    return y


def _sum_of_rows(rows: Array) -> Array:
    """By BLAS, several times as fast as NumPy's."""
    return np.ones(len(rows), rows.dtype) @ rows


@linear.kernel("cpu")
def linear_with_pending_gradient(x: Array, weight: Array, bias: Array | None) -> tuple[Array, Backward]:
    """The reference's numbers.

    Saves: what the reference saves.
    """
    check_linear("linear", x, weight, bias)
    y = _product(x, weight)
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
    check_linear("linear_relu", x, weight, bias, may_lack_bias=False)
    y = _product(x, weight)
    y += bias
    np.maximum(y, np.zeros_like(bias), out=y)  # a row of zeros: NumPy is slower with a single one

    def backward(dy: Array) -> tuple[Array | PendingGradient, ...]:
        dz = dy * (y > 0)
        return dz @ weight.T, PendingProduct(x.T, dz), _sum_of_rows(dz)

    return y, backward


@for_few_rows.kernel("cpu", supports=lambda weight: small_products_are_fast())
def in_panels(weight: Array) -> Array:
    """Return the matrix with a copy of itself in panels: see ``MatrixInPanels``."""
    return MatrixInPanels.of(weight)
