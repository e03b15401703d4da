"""Matrix products."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, namespace
from autograd.blas import product
from autograd.op import Dispatch, ShapeError, op, unbroadcast
from autograd.packed_weight import PackedDtype, nearest_bfloat16
from autograd.precision import upcast
from autograd.tensor import Backward


@op
def matmul(x: Array, y: Array) -> tuple[Array, Backward]:
    """Return x @ y with leading axes broadcast: Z = X Y, dX = dZ Yᵀ, dY = Xᵀ dZ.

    Shapes: x (…, M, K), y (…, K, N).  Returns (…, M, N).
    Saves: x and y.
    """
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-2]:
        raise ShapeError(f"matmul: expected x (…, M, K) and y (…, K, N); got x {x.shape}, y {y.shape}")

    def backward(dz: Array) -> tuple[Array, Array]:
        dx = product(dz, y.swapaxes(-1, -2))
        dy = product(x.swapaxes(-1, -2), dz)
        return unbroadcast(dx, x.shape), unbroadcast(dy, y.shape)

    return product(x, y), backward


@op
def linear(x: Array, weight: Array, bias: Array | None) -> tuple[Array, Backward]:
    """Return y = x W + b, a row per token.

    Shapes: x (T, I), weight (I, O), bias (O,) or None.  Returns (T, O).
    Saves: x and the weight.
    """
    check_linear("linear", x, weight, bias)
    y = product(x, weight)
    if bias is not None:
        y += bias

    def backward(dy: Array) -> tuple[Array | None, ...]:
        return product(dy, weight.T), product(x.T, dy), dy.sum(0) if bias is not None else None

    return y, backward


@op
def linear_relu(x: Array, weight: Array, bias: Array) -> tuple[Array, Backward]:
    """Return y = max(0, x W + b), a row per token; the derivative at 0 is taken as 0.

    Shapes: x (T, I), weight (I, O), bias (O,).  Returns (T, O).
    Saves: x, the weight, and y, whose sign is the derivative of ReLU.
    """
    check_linear("linear_relu", x, weight, bias, may_lack_bias=False)
    y = product(x, weight)
    y += bias
    xp = namespace(y)
    xp.maximum(y, xp.zeros_like(bias), out=y)  # a row of zeros: NumPy is slower with a scalar 0

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dz = dy * (y > 0)
        return product(dz, weight.T), product(x.T, dz), dz.sum(0)

    return y, backward


def check_linear(name: str, x: Array, weight: Array, bias: Array | None, *, may_lack_bias: bool = True) -> None:
    """Check the arguments of ``linear`` or ``linear_relu``.

    ``may_lack_bias`` allows None for ``bias``.  Raises: ShapeError, with ``name``, if they do not fit together.
    """
    fit = x.ndim == weight.ndim == 2 and x.shape[1] == weight.shape[0]
    if not fit or (bias.shape != weight.shape[1:] if bias is not None else not may_lack_bias):
        raise ShapeError(
            f"{name}: expected x (T, I), weight (I, O) and bias (O,){' or None' * may_lack_bias};"
            f" got x {x.shape}, weight {weight.shape}, bias {getattr(bias, 'shape', None)}"
        )


@Dispatch
def linear_logits(x: Array, weight: Array, bias: Array | None) -> Array:
    """Return x W + b, a row per token, in float32 if x and W have 16 bits, so that logits are not rounded.

    Shapes: x (T, I), weight (I, W), bias (W,) or None.  Returns (T, W).
    """
    return linear.of_arrays(upcast(x), upcast(weight), bias)[0]


@Dispatch
def pack_weight(weight: Array, *, dtype: PackedDtype = "float32") -> Array:
    """Return the weight W packed for repeated products y = x W.

    "bfloat16" rounds each number of W.  "int8" rounds each column to 255 levels: multiples of its greatest absolute
    value / 127.  Kernels also round x; with "int8" each row has levels of its own.  Pass the result to ``linear``.
    The packed weight may hold a copy, so it is valid only until the weight changes.
    Shapes: (I, O) → (I, O).
    """
    xp = namespace(weight)
    if dtype == "bfloat16":
        weight = nearest_bfloat16(xp.ascontiguousarray(weight))
    if dtype == "int8":
        scales = xp.maximum(abs(weight).max(0) / 127, np.finfo(np.float32).tiny)
        weight = xp.rint(weight / scales) * scales
    return xp.ascontiguousarray(weight)


@op
def linear_transposed(x: Array, weight: Array) -> tuple[Array, Backward]:
    """Return y = x Wᵀ, a row per token: the projection to a vocabulary, with a row of W per word.

    Shapes: x (T, I), weight (O, I).  Returns (T, O).
    Saves: x and the weight.
    """
    check_linear_transposed(x, weight)

    def backward(dy: Array) -> tuple[Array, Array]:
        return product(dy, weight), product(dy.T, x)

    return product(x, weight.T), backward


def check_linear_transposed(x: Array, weight: Array) -> None:
    """Check the arguments of ``linear_transposed``.  Raises: ShapeError if they do not fit together."""
    if x.ndim != 2 or weight.ndim != 2 or x.shape[1] != weight.shape[1]:
        raise ShapeError(
            f"linear_transposed: expected x (T, I) and weight (O, I); got x {x.shape}, weight {weight.shape}"
        )
