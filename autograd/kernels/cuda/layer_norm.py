"""Layer normalisation, alone or after dropout and residual connection, with a row in the registers of a warp."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.driver import STORAGE, launch
from autograd.kernels.cuda.dropout import numbers_of
from autograd.kernels.cuda.linear import sum_of_rows
from autograd.ops.add_norm import add_norm
from autograd.ops.dropout import threshold_and_scale
from autograd.ops.layer_norm import layer_norm
from autograd.random import StreamId
from autograd.tensor import Backward, Gradient, PendingGradient, put

SOURCE = "layer_norm.cu"
OPERATIONS, DIRECTIONS = ("layer_norm", "add_norm"), ("forward", "backward")
WIDTHS = (128, 256, 512, 1024)  # each kernel computes rows up to one of these widths
MULTIPLE = 16  # of columns, because one block of Philox has the random numbers of 16 elements
ROWS, THREADS = 8, 256  # of a block
MOST_BLOCKS = 264  # of the backward pass, each with partial sums: two per multiprocessor of an H200


def kernel_name(operation: str, direction: str, dtype: object, width: int) -> str:
    """Return the name of the kernel of one of ``OPERATIONS`` in one of ``DIRECTIONS`` for rows of this width."""
    greatest = greatest_width(width)
    rows = f"{greatest}" if width == greatest else f"below_{greatest}"
    return f"{operation}_{direction}_{STORAGE[str(dtype)]}_{rows}"


def greatest_width(width: int) -> int:
    """Return the greatest width of the kernel that computes rows of this width."""
    return next(greatest for greatest in WIDTHS if width <= greatest)


def _is_supported(x: Array, gain: Array, bias: Array, *, eps: float = 1e-6) -> bool:
    parameters_fit = all(
        p.dtype == np.float32 and p.shape == x.shape[-1:] and p.flags.c_contiguous for p in (gain, bias)
    )
    fits = 0 < x.shape[-1] <= WIDTHS[-1] and x.shape[-1] % MULTIPLE == 0
    return parameters_fit and str(x.dtype) in STORAGE and fits and x.flags.c_contiguous


@layer_norm.kernel("cuda", supports=_is_supported, takes_16_bits=True)
def layer_norm_in_registers(x: Array, gain: Array, bias: Array, *, eps: float = 1e-6) -> tuple[Array, Backward]:
    """Compute the reference's result with one pass over memory; mean and variance are computed from registers.

    Saves: x, and two numbers per row: mean and 1/standard deviation.
    """
    return _normalise("layer_norm", [x], gain, bias, eps)


def _is_supported_sum(
    x: Array,
    y: Array,
    gain: Array,
    bias: Array,
    *,
    rate: float = 0.0,
    stream_id: StreamId | None = None,
    eps: float = 1e-6,
) -> bool:
    alike = y.dtype == x.dtype and y.shape == x.shape and y.flags.c_contiguous
    return alike and _is_supported(x, gain, bias)


@add_norm.kernel("cuda", supports=_is_supported_sum, takes_16_bits=True)
def add_norm_in_registers(
    x: Array,
    y: Array,
    gain: Array,
    bias: Array,
    *,
    rate: float = 0.0,
    stream_id: StreamId | None = None,
    eps: float = 1e-6,
) -> tuple[Array, Backward]:
    """Compute the reference's result with one pass over memory forward, and one backward.

    The gradient of x is a new array, so the backward pass may add other gradients to it in place.
    Saves: x, y, two numbers per row (mean and 1/standard deviation), and the dropout mask (``mask_bytes``).
    """
    threshold, scale = threshold_and_scale(rate) if stream_id else (0, 1.0)
    n_rows, width = x.size // x.shape[-1], x.shape[-1]
    mask = namespace(x).empty(n_rows * mask_bytes(width), np.uint8) if threshold else None
    drawing = (*numbers_of(stream_id or StreamId(0, 0)), np.int32(threshold))
    normalised, norm_backward = _normalise("add_norm", [x, y], gain, bias, eps, (mask, np.float32(scale)), drawing)

    def backward(dy: Array) -> tuple[Gradient, ...]:
        dx, *others = norm_backward(dy)
        return PendingGradient(dx.shape, dx, functools.partial(put, dx), is_new=True), *others

    return normalised, backward


def mask_bytes(width: int) -> int:
    """Return the bytes of a row of the dropout mask: a bit for each of ``greatest_width`` elements, but at least 32."""
    return max(greatest_width(width) // 8, 32)


def _normalise(
    operation: str,
    terms: Sequence[Array],
    gain: Array,
    bias: Array,
    eps: float,
    mask_arguments: tuple[Any, ...] = (),
    drawing: tuple[Any, ...] = (),
) -> tuple[Array, Callable[[Array], tuple[Array, ...]]]:
    """Run an operation; ``mask_arguments`` go to both kernels, and ``drawing`` only to the forward kernel."""
    xp, dtype, shape = namespace(gain), terms[0].dtype, terms[0].shape
    width = shape[-1]
    n_rows = terms[0].size // width
    n_blocks = -(-n_rows // ROWS)
    forward_kernel, backward_kernel = (kernel_name(operation, direction, dtype, width) for direction in DIRECTIONS)
    y, statistics = xp.empty(shape, dtype), xp.empty((n_rows, 2), np.float32)
    if n_rows:
        launch(
            SOURCE,
            forward_kernel,
            n_blocks,
            THREADS,
            *terms,
            gain,
            bias,
            y,
            statistics,
            np.int64(n_rows),
            np.int32(width),
            np.float32(eps),
            *mask_arguments,
            *drawing,
        )

    def backward(dy: Array) -> tuple[Array, ...]:
        dy = xp.ascontiguousarray(dy, dtype=dtype)
        gradients, n_sums = [xp.empty_like(dy) for _ in terms], min(n_blocks, MOST_BLOCKS)
        parameter_sums = xp.empty((n_sums, 2, width), np.float32)
        if n_rows:
            launch(
                SOURCE,
                backward_kernel,
                n_sums,
                THREADS,
                dy,
                *terms,
                gain,
                statistics,
                *gradients,
                parameter_sums,
                np.int64(n_rows),
                np.int32(width),
                *mask_arguments,
            )
        dgain, dbias = sum_of_rows(parameter_sums.reshape(n_sums, 2 * width)).reshape(2, width)
        return *gradients, dgain, dbias

    return y, backward
