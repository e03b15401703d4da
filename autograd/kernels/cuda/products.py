"""Matrix products of CuPy arrays by cuBLASLt, in float32, TF32 or 16 bits, always summed in float32."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from autograd.array import Array, namespace, namespace_of_device, persistent_pool
from autograd.kernels.cuda import side_stream
from autograd.kernels.cuda.algorithms import choose
from autograd.kernels.cuda.cublaslt import (
    SPLIT_TERMS,
    TYPES,
    WORKSPACE,
    Epilogue,
    Matrix,
    Operands,
    Problem,
    Product,
    alignment,
    mask_stride,
)
from autograd.op import ShapeError
from autograd.precision import lack_of_bfloat16, rounds_to_tf32
from autograd.tensor import PendingGradient, deferred_waits


def product(
    left: Array,
    right: Array,
    out: Array,
    *,
    add: bool = False,
    epilogue: Epilogue = "none",
    bias: Array | None = None,
    mask: Array | None = None,
) -> None:
    """Compute out = left · right, or with ``add`` out += left · right, and an epilogue, on the current stream.

    - ``"bias"``: out + b;
    - ``"relu_bias"``: max(0, out + b);
    - ``"relu_mask_bias"``: the same, and writes ``mask``, which is set where the result is positive;
    - ``"relu_backward"``: out where the mask is set, else 0;
    - ``"relu_bias_backward"``: the same, and writes the sum over rows to ``bias``.

    Shapes: left (M, K), right (K, N), out (M, N), bias (N,), mask ``mask_shape(M, N)``.  Matrices may be transposed
    (out only without an epilogue), or columns of wider arrays: nothing is copied.  If K = 0 the product is 0 and the
    epilogue is not applied.
    For a stack of P products out is (P, M, N); left, right and bias have a first axis P or are shared; a mask is not
    allowed.
    The matrices of a stack may be at any distance from one another, in ascending order.
    Dtypes: left and right have one dtype; out has that dtype or float32; bias has the dtype of out.  Within
    ``tf32_products`` factors of float32 may be rounded to TF32.
    Raises: ShapeError if they do not fit together; ProductError if cuBLASLt rejects the product.
    """
    _check(left, right, out, bias, mask)
    if not (out.size and left.shape[-1]):
        out[...] = out if add else 0
        return
    cuda = namespace_of_device("cuda").cuda
    device, stream = cuda.Device().id, cuda.get_current_stream()
    operands = Operands(*(0 if x is None else x.data.ptr for x in (left, right, out, bias, mask)))
    matrices = matrix_of(left), matrix_of(right), matrix_of(out)
    if matrices[2].transposed:
        if epilogue != "none":
            raise ShapeError(f"product: out must lie by rows; got shape {out.shape}, strides {out.strides} bytes")
        product(*(x.swapaxes(-1, -2) for x in (right, left, out)), add=add)
        return
    bias_step = bias.shape[-1] if bias is not None and bias.ndim == 2 else 0
    problem = Problem(
        *matrices,
        epilogue,
        add,
        alignment(operands.bias | bias_step * out.itemsize),
        bias_step,
        len(out) if out.ndim == 3 else 1,
        rounds_to_tf32() and matrices[0].dtype == "float32" and _multiplies_tf32(device),
    )
    prepared = _prepare(problem, device)
    workspace = _workspace(device, stream.ptr).data.ptr
    if prepared.algorithm is None:
        prepared.algorithm = choose(prepared, operands, workspace, stream)
    prepared.run(operands, prepared.algorithm, workspace, stream.ptr)


def multiplied(left: Array, right: Array, *, dtype: Any = None) -> Array:
    """Return left · right in a new array of this dtype, by default that of the factors."""
    out = namespace(left).empty((left.shape[0], right.shape[1]), left.dtype if dtype is None else dtype)
    product(left, right, out)
    return out


def pending_sum(*factors: tuple[Array, Array]) -> PendingGradient:
    """Return Σᵢ leftᵢ · rightᵢ, added to its destination one product after the other."""
    left, right = factors[0]

    def into(out: Array, add: bool) -> None:
        for i, (left, right) in enumerate(factors):
            product(left, right, out, add=add or i > 0)

    return PendingGradient((left.shape[0], right.shape[1]), left, into)


def weight_gradients(left: Array, *rights: Array) -> list[PendingGradient]:
    """Return the gradients left · rightᵢ of weights, which are computed on the second stream.

    The products start when all gradients have a destination.  If factors and destinations form stacks, one call
    computes all products.  A destination in float32 gets sums that are not rounded.
    """
    return [
        PendingGradient(
            (left.shape[0], right.shape[1]),
            left,
            functools.partial(_queue.put, len(rights), left, right),
            is_deferred=True,
        )
        for right in rights
    ]


class _Task(NamedTuple):
    left: Array
    right: Array
    out: Array
    add: bool


class _Queue(threading.local):
    """Products with the same left factor that wait until all of them have a destination."""

    def __init__(self) -> None:
        self._tasks: list[_Task] = []

    def put(self, n: int, left: Array, right: Array, out: Array, add: bool) -> None:
        """Add one of the n products of this left factor; with the last product, start all of them."""
        if self._tasks and self._tasks[0].left is not left:
            self._start()  # the others have no destination, because their weights are constants
        self._tasks.append(_Task(left, right, out, add))
        if len(self._tasks) == n:
            self._start()

    def _start(self) -> None:
        tasks, self._tasks = self._tasks, []
        if tasks:
            side_stream.run(functools.partial(_compute, tasks))

    def wait(self) -> None:
        """Start the remaining products, and let the main stream wait for the second stream."""
        try:
            self._start()
        finally:
            side_stream.wait()


_queue = _Queue()
deferred_waits.append(_queue.wait)


def _compute(tasks: Sequence[_Task]) -> None:
    if len(tasks) > 1:
        left, add = tasks[0].left, tasks[0].add
        tasks = sorted(tasks, key=lambda task: address(task.out))
        rights, outs = stack_of([task.right for task in tasks]), stack_of([task.out for task in tasks])
        if rights is not None and outs is not None and all(task.add == add for task in tasks):
            _sum_over_tokens(left, rights, outs, add)
            return
    for task in tasks:
        _sum_over_tokens(*task)


def _sum_over_tokens(left: Array, right: Array, out: Array, add: bool) -> None:
    """Compute a product in two: up to the last multiple of ``SPLIT_TERMS`` tokens, then the remaining tokens.

    The library can split a long sum, which is faster, only if its length is such a multiple.
    """
    n_tokens = left.shape[1]
    n_split = n_tokens - n_tokens % SPLIT_TERMS
    if 0 < n_split < n_tokens:
        product(left[:, :n_split], right[..., :n_split, :], out, add=add)
        left, right, add = left[:, n_split:], right[..., n_split:, :], True
    product(left, right, out, add=add)


def address(x: Array) -> int:
    """Return the address of an array on the device."""
    return int(x.data.ptr)


def distance(matrices: Sequence[Array]) -> int | None:
    """Return the distance in bytes from each matrix to the next if all distances are equal, else None.

    The matrices must be views of one array, in this order, of the same shape, strides and dtype.
    """
    kinds = {(id(x.base), x.shape, x.strides, _name(x.dtype)) for x in matrices}
    distances = {address(after) - address(before) for before, after in pairwise(matrices)}
    if len(kinds) == len(distances) == 1 and matrices[0].base is not None and min(distances) > 0:
        return distances.pop()
    return None


def stack_of(matrices: Sequence[Array]) -> Array | None:
    """Return a view (P, M, N) of P matrices if they have a ``distance``, else None."""
    step = distance(matrices)
    if step is None:
        return None
    first = matrices[0]
    stretched: Array = namespace(first).lib.stride_tricks.as_strided(
        first, (len(matrices), *first.shape), (step, *first.strides)
    )
    return stretched


def mask_shape(n_rows: int, n_columns: int) -> tuple[int, int]:
    """Return the shape of a mask for ``product``, an array of bytes."""
    return n_rows, mask_stride(n_columns) // 8


def is_matrix(x: Array) -> bool:
    """Return whether ``product`` can read ``x``: two axes, one of them contiguous, and a dtype in ``TYPES``."""
    return _name(x.dtype) in TYPES and x.ndim == 2 and (x.size == 0 or _storage(x) is not None)


def matrix_of(x: Array) -> Matrix:
    """Return the storage of a matrix or of a stack of matrices.

    Raises: ShapeError if neither rows nor columns are dense, or if a stack lies in descending order.
    """
    storage, step = _storage(x), x.strides[0] if x.ndim == 3 else 0
    if storage is None or step < 0:
        raise ShapeError(
            "product: rows or columns must be dense, and matrices of a stack in ascending order; got shape"
            f" {x.shape}, strides {x.strides} bytes"
        )
    (rows, columns), (stride, is_transposed) = x.shape[-2:], storage
    dtype, lowest = _name(x.dtype), alignment(address(x) | step)
    return Matrix(rows, columns, stride, is_transposed, dtype, lowest, step // x.itemsize)


def _storage(x: Array) -> tuple[int, bool] | None:
    """Return the stride of x and whether x is transposed, as in a ``Matrix``; None if neither axis is contiguous."""
    (rows, columns), (down, across) = x.shape[-2:], (stride // x.itemsize for stride in x.strides[-2:])
    if _is_dense(rows, columns, down, across):
        return down if rows > 1 else columns, False
    if _is_dense(columns, rows, across, down):
        return across if columns > 1 else rows, True
    return None


def _is_dense(n_lines: int, length: int, stride: int, step: int) -> bool:
    """Return whether lines are contiguous and do not overlap; the stride of a single line does not matter."""
    return (step == 1 or length == 1) and (stride >= length or n_lines == 1)


def _check(left: Array, right: Array, out: Array, bias: Array | None, mask: Array | None) -> None:
    (n_rows, n_terms), (n_summed, n_columns), stack = left.shape[-2:], right.shape[-2:], out.shape[:-2]
    factor, result = _name(left.dtype), _name(out.dtype)
    fits = (
        n_terms == n_summed
        and out.shape[-2:] == (n_rows, n_columns)
        and len(stack) < 2
        and {left.shape[:-2], right.shape[:-2]} <= {(), stack}
        and factor in TYPES
        and right.dtype == left.dtype
        and result in {factor, "float32"}
        and (bias is None or bias.shape in {(n_columns,), (*stack, n_columns)})
        and (bias is None or (bias.dtype == out.dtype and bias.flags.c_contiguous))
        and (mask is None or (mask.shape == mask_shape(n_rows, n_columns) and mask.flags.c_contiguous and not stack))
    )
    if not fits:
        arguments = {"left": left, "right": right, "out": out, "bias": bias, "mask": mask}
        got = ", ".join(f"{name} {x.shape} {x.dtype}" for name, x in arguments.items() if x is not None)
        raise ShapeError(
            "product: expected left (M, K), right (K, N), out (M, N), bias (N,), mask as mask_shape(M, N), or stacks of"
            " all but the mask; all but the mask of float32, or of 16 bits with out and bias of these or float32;"
            f" got {got}"
        )


_name = functools.cache(str)  # of a dtype, cached: NumPy takes microseconds to make it


@functools.lru_cache(maxsize=4096)  # batches differ in their number of tokens
def _prepare(problem: Problem, device: int) -> Product:
    return Product(problem, device)


@functools.cache
def _multiplies_tf32(device: int) -> bool:
    """Return whether a GPU, the current one, has tensor cores for TF32."""
    return lack_of_bfloat16() is None


@functools.cache
def _workspace(device: int, stream: int) -> Array:
    """Allocate the workspace of a stream; its products run one after the other, so they share it."""
    with persistent_pool("cuda"):
        return namespace_of_device("cuda").empty(WORKSPACE, "uint8")
