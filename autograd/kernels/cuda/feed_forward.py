"""The feed-forward network; one product also applies the derivative of ReLU and sums the gradient of b₁."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.epilogues import fused
from autograd.kernels.cuda.linear import affine, relu_backward, sum_of_rows
from autograd.kernels.cuda.products import is_matrix, mask_shape, multiplied, pending_sum, weight_gradients
from autograd.op import BackwardOfSeveral
from autograd.ops.feed_forward import joint_feed_forward
from autograd.ops.linear import check_linear
from autograd.precision import is_16_bit
from autograd.tensor import Gradient

ALIGNED = 8  # 16 bytes: it is not known whether the library has epilogues with a mask for other widths


def _is_supported(x: Array, weight1: Array, bias1: Array | None, weight2: Array, bias2: Array | None) -> bool:
    return (
        all(is_matrix(matrix) and is_16_bit(matrix) and matrix.dtype == x.dtype for matrix in (x, weight1, weight2))
        and x.shape[0] > 0
        and all(extent > 0 and extent % ALIGNED == 0 for extent in (*weight1.shape, *weight2.shape))
        and bias1 is not None
    )


@joint_feed_forward.kernel("cuda", supports=_is_supported, takes_16_bits=True)
def feed_forward_with_epilogues(
    x: Array, weight1: Array, bias1: Array, weight2: Array, bias2: Array | None
) -> tuple[list[Array], BackwardOfSeveral]:
    """Compute the reference's result; only products read or write arrays of shape (T, F).

    The gradient of b₁ is rounded to 16 bits once, because cuBLASLt writes it in the dtype of the product.
    If the library refuses one of the epilogues, a product without it and ``relu_backward`` compute the same.
    Saves: x, the weights, h = max(0, x W₁ + b₁), and a mask of the positive h, one bit per element.
    """
    check_linear("feed_forward", x, weight1, bias1, may_lack_bias=False)
    xp = namespace(x)
    hidden, mask = _hidden(x, weight1, xp.ascontiguousarray(bias1, dtype=x.dtype))
    check_linear("feed_forward", hidden, weight2, bias2)

    def backward(dys: list[Array | None]) -> list[Gradient | None]:
        dy = xp.ascontiguousarray(dys[0], dtype=x.dtype)
        dz, dbias1 = _relu_backward(dy, weight2, hidden, mask)
        first_gradients = pending_sum((dz, weight1.T)), *weight_gradients(x.T, dz), dbias1
        dbias2 = sum_of_rows(dy) if bias2 is not None else None
        return [*first_gradients, *weight_gradients(hidden.T, dy), dbias2]

    return [affine(hidden, weight2, bias2, "bias")], backward


def _hidden(x: Array, weight: Array, bias: Array) -> tuple[Array, Array | None]:
    """Return h and its mask; the mask is None if the library refuses to write it."""
    xp, width = namespace(x), weight.shape[1]
    hidden, mask = xp.empty((len(x), width), x.dtype), xp.empty(mask_shape(len(x), width), np.uint8)
    if fused(x, weight, hidden, "relu_mask_bias", bias=bias, mask=mask):
        return hidden, mask
    return affine(x, weight, bias, "relu_bias"), None


def _relu_backward(dy: Array, weight: Array, hidden: Array, mask: Array | None) -> tuple[Array, Array]:
    """Return dz = dy W₂ᵀ where h is positive, else 0, and Σ_t dz_t in float32."""
    xp = namespace(dy)
    dz, dbias = xp.empty_like(hidden), xp.empty(hidden.shape[1], dy.dtype)
    if mask is not None and fused(dy, weight.T, dz, "relu_bias_backward", bias=dbias, mask=mask):
        return dz, dbias.astype(np.float32)
    return relu_backward(multiplied(dy, weight.T), hidden)
