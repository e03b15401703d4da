"""Linear maps: weight gradients are written to their destination; products of few rows have faster kernels."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.panels import PackedWeight, small_products_are_fast
from autograd.ops.linear import check_linear, linear, linear_relu, pack_weight
from autograd.tensor import Backward, PendingGradient

FEW = 8  # rows; up to so many are cheaper one by one: OpenBLAS would first copy the matrix into another order
PIECE = 2_048  # columns, 4 MiB of float32 at width 512: only the first row of x reads them from memory


class PendingMatmul(PendingGradient):
    """The product of two matrices, which BLAS writes directly to its destination."""

    def __init__(self, left: Array, right: Array) -> None:
        self.shape, self.like = (left.shape[0], right.shape[1]), np.empty(0, np.result_type(left, right))
        self.left, self.right = left, right

    def write_to(self, out: Array) -> None:
        """Implement ``PendingGradient``."""
        np.matmul(self.left, self.right, out=out)

    def add_to(self, out: Array) -> None:
        """Implement ``PendingGradient``."""
        out += self.left @ self.right


def _product(x: Array, weight: Array) -> Array:
    """Return x W: by panels if W has them; row by row if x has few rows and W is wide; else by one product."""
    if isinstance(weight, PackedWeight):
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
    """Return the sum over rows, by BLAS: several times as fast as NumPy."""
    return np.ones(len(rows), rows.dtype) @ rows


@linear.kernel("cpu")
def linear_with_pending_gradient(x: Array, weight: Array, bias: Array | None) -> tuple[Array, Backward]:
    """Compute the reference's result; BLAS writes the weight's gradient to its destination.

    Saves: what the reference saves.
    """
    check_linear("linear", x, weight, bias)
    y = _product(x, weight)
    if bias is not None:
        y += bias

    def backward(dy: Array) -> tuple[Array | PendingGradient | None, ...]:
        return dy @ weight.T, PendingMatmul(x.T, dy), _sum_of_rows(dy) if bias is not None else None

    return y, backward


@linear_relu.kernel("cpu")
def linear_relu_with_pending_gradient(x: Array, weight: Array, bias: Array) -> tuple[Array, Backward]:
    """Compute the reference's result; BLAS writes the weight's gradient to its destination.

    Saves: what the reference saves.
    """
    check_linear("linear_relu", x, weight, bias, may_lack_bias=False)
    y = _product(x, weight)
    y += bias
    np.maximum(y, np.zeros_like(bias), out=y)  # a row of zeros: NumPy is slower with a scalar 0

    def backward(dy: Array) -> tuple[Array | PendingGradient, ...]:
        dz = dy * (y > 0)
        return dz @ weight.T, PendingMatmul(x.T, dz), _sum_of_rows(dz)

    return y, backward


@pack_weight.kernel("cpu", supports=lambda weight: small_products_are_fast())
def in_panels(weight: Array) -> Array:
    """Return the matrix with a copy of itself in panels: see ``PackedWeight``."""
    return PackedWeight.of(weight)
