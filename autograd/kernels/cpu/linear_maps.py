"""Several linear maps of the same x in bfloat16: x is rounded once."""

from __future__ import annotations

from autograd.array import Array
from autograd.kernels.cpu.bfloat16 import Rows, is_for_bfloat16, pending_weight_gradient, rounded_product
from autograd.kernels.cpu.linear import sum_of_rows
from autograd.op import BackwardOfSeveral
from autograd.ops.linear import check_linear
from autograd.ops.linear_maps import joint_linear_maps
from autograd.tensor import Gradient


@joint_linear_maps.kernel("cpu", supports=is_for_bfloat16)
def linear_maps_in_bfloat16(x: Array, *maps: Array) -> tuple[list[Array], BackwardOfSeveral]:
    """Compute the reference's results with rounded factors.

    The gradient of x is summed in the order of the reference's tape, the first map first.

    Saves: x in bfloat16 and the weights.
    """
    weights, biases = maps[::2], maps[1::2]
    for weight, bias in zip(weights, biases, strict=True):
        check_linear("linear_maps", x, weight, bias)
    rows = Rows.rounded(x)

    def backward(dys: list[Array | None]) -> list[Gradient | None]:
        dx: Array | None = None
        gradients: list[Gradient | None] = []
        for dy, weight, bias in zip(dys, weights, biases, strict=True):
            if dy is None:
                gradients += [None, None]
                continue
            dy_rows = Rows.rounded(dy)
            dx = rounded_product(dy_rows, weight, transposed=True, out=dx)
            dbias = sum_of_rows(dy) if bias is not None else None
            gradients += [pending_weight_gradient(rows, dy_rows), dbias]
        return [dx, *gradients]

    return [rounded_product(rows, weight, bias) for weight, bias in zip(weights, biases, strict=True)], backward
