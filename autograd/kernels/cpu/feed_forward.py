"""The feed-forward network in bfloat16: its hidden rows, which only products read, are rounded once."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.bfloat16 import (
    Rows,
    is_for_bfloat16,
    panels_of_weight,
    pending_weight_gradient,
    rounded_product,
)
from autograd.kernels.cpu.library import Function
from autograd.kernels.cpu.linear import sum_of_rows
from autograd.op import BackwardOfSeveral
from autograd.ops.feed_forward import joint_feed_forward
from autograd.ops.linear import check_linear
from autograd.tensor import Gradient

_hidden, _relu_backward = Function("bfloat16_hidden"), Function("bfloat16_relu_backward")


@joint_feed_forward.kernel("cpu", supports=is_for_bfloat16)
def feed_forward_in_bfloat16(
    x: Array, weight1: Array, bias1: Array, weight2: Array, bias2: Array | None
) -> tuple[list[Array], BackwardOfSeveral]:
    """Compute the reference's result with rounded factors.

    Saves: x and h = max(0, x W₁ + b₁) in bfloat16, and the weights.
    """
    check_linear("feed_forward", x, weight1, bias1, may_lack_bias=False)
    (n_rows, n_terms), width = x.shape, weight1.shape[1]
    rows, hidden = Rows.rounded(x), Rows(n_rows, width)
    check_linear("feed_forward", hidden, weight2, bias2)
    panels = panels_of_weight(weight1, transposed=False)
    _hidden(*rows.for_product(), panels, bias1, hidden.words, n_rows, n_terms, width)

    def backward(dys: list[Array | None]) -> list[Gradient | None]:
        dy = dys[0]
        assert dy is not None  # the only result
        dy_rows, dz, dbias1 = Rows.rounded(dy), Rows(n_rows, width), np.zeros(width, np.float32)
        panels = panels_of_weight(weight2, transposed=True)
        _relu_backward(*dy_rows.for_product(), panels, hidden.words, dz.words, dbias1, n_rows, dy.shape[1], width)
        first = rounded_product(dz, weight1, transposed=True), pending_weight_gradient(rows, dz), dbias1
        return [*first, pending_weight_gradient(hidden, dy_rows), sum_of_rows(dy) if bias2 is not None else None]

    return [rounded_product(hidden, weight2, bias2)], backward
