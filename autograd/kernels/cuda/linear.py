"""Linear maps whose products also add the bias and apply ReLU, or add their result to a gradient in place."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.cublaslt import Epilogue
from autograd.kernels.cuda.driver import STORAGE, launch
from autograd.kernels.cuda.epilogues import fused
from autograd.kernels.cuda.products import is_matrix, multiplied, pending_sum, weight_gradients
from autograd.ops.linear import (
    check_linear,
    check_linear_transposed,
    linear,
    linear_logits,
    linear_relu,
    linear_transposed,
)
from autograd.precision import is_16_bit
from autograd.tensor import Backward, Gradient

SOURCE = "linear.cu"
PASSES = ("sum_of_rows", "relu_backward")
COLUMNS, THREADS = 128, 256  # of a block
CHUNK = 256  # rows of a block


def kernel_name(pass_name: str, dtype: object) -> str:
    """Return the name of the kernel of one of ``PASSES`` for rows of this dtype."""
    return f"{pass_name}_{STORAGE[str(dtype)]}"


def is_supported(x: Array, weight: Array, bias: Array | None = None) -> bool:
    """Return whether ``product`` can multiply x by the weight."""
    return is_matrix(x) and is_matrix(weight) and x.dtype == weight.dtype and x.shape[1] > 0


@linear.kernel("cuda", supports=is_supported, takes_16_bits=True)
def linear_with_epilogue(x: Array, weight: Array, bias: Array | None) -> tuple[Array, Backward]:
    """Compute the reference's result; the gradients of weight and bias are summed in float32.

    Saves: x and the weight.
    """
    check_linear("linear", x, weight, bias)
    y = affine(x, weight, bias, "bias")

    def backward(dy: Array) -> tuple[Gradient | None, ...]:
        dy = namespace(x).ascontiguousarray(dy, dtype=x.dtype)
        dbias = sum_of_rows(dy) if bias is not None else None
        return pending_sum((dy, weight.T)), *weight_gradients(x.T, dy), dbias

    return y, backward


@linear_relu.kernel("cuda", supports=is_supported, takes_16_bits=True)
def linear_relu_with_epilogue(x: Array, weight: Array, bias: Array) -> tuple[Array, Backward]:
    """Compute the reference's result, with gradients as in ``linear_with_epilogue``.

    Saves: what the reference saves.
    """
    check_linear("linear_relu", x, weight, bias, may_lack_bias=False)
    y = affine(x, weight, bias, "relu_bias")

    def backward(dy: Array) -> tuple[Gradient, ...]:
        dz, dbias = relu_backward(namespace(x).ascontiguousarray(dy, dtype=x.dtype), y)
        return pending_sum((dz, weight.T)), *weight_gradients(x.T, dz), dbias

    return y, backward


@linear_transposed.kernel("cuda", supports=is_supported, takes_16_bits=True)
def linear_transposed_by_flags(x: Array, weight: Array) -> tuple[Array, Backward]:
    """Compute the reference's result; the weight's gradient is summed in float32.

    Saves: x and the weight.
    """
    check_linear_transposed(x, weight)

    def backward(dy: Array) -> tuple[Gradient, ...]:
        dy = namespace(x).ascontiguousarray(dy, dtype=x.dtype)
        return pending_sum((dy, weight)), *weight_gradients(dy.T, x)

    return multiplied(x, weight.T), backward


@linear_logits.kernel("cuda", supports=lambda x, weight, bias: is_16_bit(x) and is_supported(x, weight))
def linear_logits_unrounded(x: Array, weight: Array, bias: Array | None) -> Array:
    """Compute the reference's result; the product of factors in 16 bits is written in float32."""
    check_linear("linear_logits", x, weight, bias)
    y = multiplied(x, weight, dtype=np.float32)
    return y if bias is None else y + bias


def affine(x: Array, weight: Array, bias: Array | None, epilogue: Epilogue) -> Array:
    """Return x W + b, or with "relu_bias" max(0, x W + b).  The bias, of any dtype, is converted to the dtype of x."""
    if bias is None:
        return multiplied(x, weight)
    xp = namespace(x)
    bias, y = xp.ascontiguousarray(bias, dtype=x.dtype), xp.empty((len(x), weight.shape[1]), x.dtype)
    return y if fused(x, weight, y, epilogue, bias=bias) else _affine_by_steps(x, weight, bias, epilogue)


def _affine_by_steps(x: Array, weight: Array, bias: Array, epilogue: Epilogue) -> Array:
    """Compute ``affine`` without an epilogue, in float32, and round once as an epilogue does."""
    xp = namespace(x)
    y = multiplied(x, weight, dtype=np.float32)
    y += bias.astype(np.float32)
    if epilogue == "relu_bias":
        xp.maximum(y, xp.zeros_like(y[:1]), out=y)
    return y.astype(x.dtype, copy=False)


def sum_of_rows(rows: Array, *, chunk: int = CHUNK) -> Array:
    """Return Σ_t rows_t in float32.  Shapes: (T, D) contiguous → (D,)."""
    return _sum_of_chunks(_launch("sum_of_rows", rows, chunk=chunk))


def relu_backward(dy: Array, y: Array) -> tuple[Array, Array]:
    """Return dz = dy where y > 0, else 0, and Σ_t dz_t in float32.  Shapes: (T, D) contiguous → (T, D), (D,)."""
    dz = namespace(dy).empty_like(dy)
    return dz, _sum_of_chunks(_launch("relu_backward", dy, y, dz))


def _sum_of_chunks(sums: Array) -> Array:
    if len(sums) > 1:
        return sum_of_rows(sums, chunk=len(sums))
    return sums[0] if len(sums) else namespace(sums).zeros(sums.shape[1], np.float32)


def _launch(pass_name: str, rows: Array, *others: Array, chunk: int = CHUNK) -> Array:
    """Launch a kernel of ``PASSES``; return its sums over each chunk of ``chunk`` rows, shape (chunks, D)."""
    n_rows, width = rows.shape
    sums = namespace(rows).empty((-(-n_rows // chunk), width), np.float32)
    n_blocks = len(sums) * -(-width // COLUMNS)
    if n_blocks:
        launch(
            SOURCE,
            kernel_name(pass_name, rows.dtype),
            n_blocks,
            THREADS,
            rows,
            *others,
            sums,
            np.int64(n_rows),
            np.int32(width),
            np.int32(chunk),
        )
    return sums
