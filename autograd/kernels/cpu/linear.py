"""Linear maps: weight gradients are written to their destination; products with packed weights are in C."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.blas import n_product_threads, product
from autograd.kernels.cpu.bfloat16 import (
    Rows,
    is_for_bfloat16,
    packed,
    pending_weight_gradient,
    rounded_product,
    words_of_row,
)
from autograd.kernels.cpu.library import Function, is_for_c
from autograd.ops.linear import check_linear, linear, linear_relu, pack_weight
from autograd.packed_weight import PackedDtype, PackedWeight
from autograd.tensor import Backward, Gradient, PendingGradient

PADDED, WIDTH = 32, 16  # as in packed.h
MOST_TERMS_OF_INT8 = (2**31 - 1) // 127**2  # the sum of so many fits in 32 bits

_add_bias, _add_bias_relu, _relu_backward = map(Function, ("add_bias", "add_bias_relu", "relu_backward"))
_linear_packed, _pack_panels, _pack_words = map(Function, ("linear_packed", "pack_panels", "pack_words"))


def pending_product(left: Array, right: Array) -> PendingGradient:
    """Return the product of two matrices, which BLAS writes directly to its destination."""

    def into(out: Array, add: bool) -> None:
        if add:
            out += product(left, right)
        else:
            product(left, right, out=out)

    like = np.empty(0, np.result_type(left, right))
    return PendingGradient((left.shape[0], right.shape[1]), like, into)


def sum_of_rows(rows: Array) -> Array:
    """Return the sum over rows, by BLAS: several times as fast as NumPy."""
    return product(np.ones(len(rows), rows.dtype), rows)


@linear.kernel("cpu", supports=is_for_c)
def linear_with_pending_gradient(x: Array, weight: Array, bias: Array | None) -> tuple[Array, Backward]:
    """Compute the reference's result; BLAS writes the weight's gradient to its destination.

    Saves: what the reference saves.
    """
    check_linear("linear", x, weight, bias)
    y = product(x, weight)
    if bias is not None:
        _add_bias(y, bias, *y.shape)

    def backward(dy: Array) -> tuple[Gradient | None, ...]:
        return product(dy, weight.T), pending_product(x.T, dy), sum_of_rows(dy) if bias is not None else None

    return y, backward


@linear_relu.kernel("cpu", supports=is_for_c)
def linear_relu_with_pending_gradient(x: Array, weight: Array, bias: Array) -> tuple[Array, Backward]:
    """Compute the reference's result; BLAS writes the weight's gradient to its destination.

    Saves: what the reference saves.
    """
    check_linear("linear_relu", x, weight, bias, may_lack_bias=False)
    y = product(x, weight)
    _add_bias_relu(y, bias, *y.shape)

    def backward(dy: Array) -> tuple[Gradient, ...]:
        dz, dbias = np.empty_like(y), np.zeros_like(bias)
        _relu_backward(np.ascontiguousarray(dy, np.float32), y, dz, dbias, *y.shape)
        return product(dz, weight.T), pending_product(x.T, dz), dbias

    return y, backward


@linear.kernel("cpu", supports=is_for_bfloat16)
def linear_in_bfloat16(x: Array, weight: Array, bias: Array | None) -> tuple[Array, Backward]:
    """Compute the reference's result with rounded factors.

    Saves: x in bfloat16 and the weight.
    """
    check_linear("linear", x, weight, bias)
    rows = Rows.rounded(x)

    def backward(dy: Array) -> tuple[Gradient | None, ...]:
        dy_rows = Rows.rounded(dy)
        dbias = sum_of_rows(dy) if bias is not None else None
        return rounded_product(dy_rows, weight, transposed=True), pending_weight_gradient(rows, dy_rows), dbias

    return rounded_product(rows, weight, bias), backward


@linear_relu.kernel("cpu", supports=is_for_bfloat16)
def linear_relu_in_bfloat16(x: Array, weight: Array, bias: Array) -> tuple[Array, Backward]:
    """Compute the reference's result with rounded factors.

    Saves: x in bfloat16, the weight and y.
    """
    check_linear("linear_relu", x, weight, bias, may_lack_bias=False)
    rows = Rows.rounded(x)
    y = rounded_product(rows, weight)
    _add_bias_relu(y, bias, *y.shape)

    def backward(dy: Array) -> tuple[Gradient, ...]:
        dz, dbias = np.empty_like(y), np.zeros_like(bias)
        _relu_backward(np.ascontiguousarray(dy, np.float32), y, dz, dbias, *y.shape)
        dz_rows = Rows.rounded(dz)
        return rounded_product(dz_rows, weight, transposed=True), pending_weight_gradient(rows, dz_rows), dbias

    return y, backward


@linear.kernel("cpu", supports=lambda x, weight, bias: isinstance(weight, PackedWeight))
def linear_of_packed_weight(x: Array, weight: PackedWeight, bias: Array | None) -> tuple[Array, Backward]:
    """Compute the reference's result; a packed weight has no gradient.

    Saves: nothing.
    """
    check_linear("linear", x, weight, bias)
    return _packed_product(x, weight, bias, relu=False), _no_backward


@linear_relu.kernel("cpu", supports=lambda x, weight, bias: isinstance(weight, PackedWeight))
def linear_relu_of_packed_weight(x: Array, weight: PackedWeight, bias: Array) -> tuple[Array, Backward]:
    """Compute the reference's result; a packed weight has no gradient.

    Saves: nothing.
    """
    check_linear("linear_relu", x, weight, bias, may_lack_bias=False)
    return _packed_product(x, weight, bias, relu=True), _no_backward


def _packed_product(x: Array, weight: PackedWeight, bias: Array | None, *, relu: bool) -> Array:
    (n_rows, n_terms), n_columns = x.shape, weight.shape[1]
    y = np.empty((n_rows, n_columns), np.float32)
    _linear_packed(
        np.ascontiguousarray(x, np.float32),
        empty_rounded(x, weight),
        weight.panels,
        weight.words,
        weight.scales,
        bias,
        y,
        n_rows,
        n_terms,
        n_columns,
        relu,
        n_product_threads(),
    )
    return y


def empty_rounded(x: Array, weight: PackedWeight) -> Array | None:
    """Allocate an array for the rounded x, large enough for every processor; return None if W is float32."""
    if weight.words is None:
        return None
    n_words = words_of_row(x.shape[1]) if weight.scales is None else 2 + 2 * weight.words.shape[1]  # int8.h
    return np.empty((len(x), n_words), np.int32)


def _no_backward(dy: Array) -> tuple[Array]:
    raise TypeError("backward: a packed weight has no gradient; compute with the model's own weights")


def _is_for_packing(weight: Array, *, dtype: PackedDtype = "float32") -> bool:
    return (is_for_c(weight) or is_for_c(weight.T)) and not (dtype == "int8" and len(weight) > MOST_TERMS_OF_INT8)


@pack_weight.kernel("cpu", supports=_is_for_packing)
def pack_weight_in_c(weight: Array, *, dtype: PackedDtype = "float32") -> PackedWeight:
    """Return the reference's weight as a ``PackedWeight``."""
    n_terms, n_columns = weight.shape
    n_panels = -(-n_columns // PADDED) * (PADDED // WIDTH)
    stored = weight if weight.flags.c_contiguous else weight.T
    row_step, column_step = (stride // weight.itemsize for stride in weight.strides)
    if dtype == "float32":
        panels = np.empty((n_panels, n_terms, WIDTH), np.float32)
        _pack_panels(stored, row_step, column_step, panels, n_terms, n_columns)
        return PackedWeight(weight.shape, panels=panels)
    if dtype == "bfloat16":
        return PackedWeight(weight.shape, words=packed(stored, stored is not weight, 1))
    words = np.empty((n_panels, -(-n_terms // 4), WIDTH), np.int32)
    scales = np.empty(n_panels * WIDTH, np.float32)
    _pack_words(stored, row_step, column_step, words, scales, n_terms, n_columns)
    return PackedWeight(weight.shape, words=words, scales=scales)
