"""Matrix products of CuPy's arrays, by cuBLASLt: of float32 or of bfloat16, always added up in float32."""

from __future__ import annotations

import functools
from typing import Any

from autograd.array import Array, namespace, namespace_of_device
from autograd.kernels.cuda.algorithms import choose
from autograd.kernels.cuda.cublaslt import (
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
from autograd.tensor import PendingGradient


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
    """out = left · right, or out += left · right, on the current stream; then, in the same pass, the epilogue.

    - ``"bias"``: out + b;
    - ``"relu_bias"``: max(0, out + b);
    - ``"relu_mask_bias"``: the same, and leaves a mask that says where it is positive;
    - ``"relu_backward"``: out where the mask is set, else 0;
    - ``"relu_bias_backward"``: the same, and leaves its sum over rows in ``bias``.

    Shapes: left (M, K), right (K, N), out (M, N), bias (N,), mask ``mask_shape(M, N)``.  Matrices may be transposed
    (out only without an epilogue), or columns of wider arrays: nothing is copied.  An empty sum is 0 and has none.
    Dtypes: left and right alike; out float32, or bfloat16 as they are; bias that of out.
    Raises: ShapeError if they do not fit together; ProductError if cuBLASLt refuses.
    """
    _check(left, right, out, bias, mask)
    if not (out.size and left.shape[1]):
        out[...] = out if add else 0
        return
    cuda = namespace_of_device("cuda").cuda
    device, stream = cuda.Device().id, cuda.get_current_stream()
    operands = Operands(*(0 if x is None else x.data.ptr for x in (left, right, out, bias, mask)))
    if matrix_of(out).transposed:
        if epilogue != "none":
            raise ShapeError(f"product: out must lie by rows; got shape {out.shape}, strides {out.strides} bytes")
        product(right.T, left.T, out.T, add=add)
        return
    problem = Problem(matrix_of(left), matrix_of(right), matrix_of(out), epilogue, add, alignment(operands.bias))
    prepared = _prepared(problem, device)
    workspace = _workspace(device, stream.ptr).data.ptr
    if prepared.algorithm is None:
        prepared.algorithm = choose(prepared, operands, workspace, stream)
    prepared.run(operands, prepared.algorithm, workspace, stream.ptr)


def multiplied(left: Array, right: Array, **epilogue: Any) -> Array:
    """``product`` as a new array of the dtype of its factors."""
    out = namespace(left).empty((left.shape[0], right.shape[1]), left.dtype)
    product(left, right, out, **epilogue)
    return out


class PendingProduct(PendingGradient):
    """A product that is written, or added, where it is wanted: in float32 also if its factors are bfloat16."""

    def __init__(self, left: Array, right: Array) -> None:
        self.shape, self.like = (left.shape[0], right.shape[1]), left
        self.left, self.right = left, right

    def write_to(self, out: Array) -> None:
        """See ``PendingGradient``."""
        product(self.left, self.right, out)

    def add_to(self, out: Array) -> None:
        """See ``PendingGradient``."""
        product(self.left, self.right, out, add=True)


def mask_shape(n_rows: int, n_columns: int) -> tuple[int, int]:
    """Of a mask for ``product``: an array of bytes."""
    return n_rows, mask_stride(n_columns) // 8


def is_matrix(x: Array) -> bool:
    """Whether ``product`` can read ``x``: two axes, one of which is dense, of a dtype that it knows."""
    return _name(x.dtype) in TYPES and x.ndim == 2 and (x.size == 0 or _storage(x) is not None)


def matrix_of(x: Array) -> Matrix:
    """How a matrix is stored.  Raises: ShapeError if neither its rows nor its columns are dense."""
    storage = _storage(x)
    if storage is None:
        raise ShapeError(f"product: rows or columns must be dense; got shape {x.shape}, strides {x.strides} bytes")
    (rows, columns), (stride, is_transposed) = x.shape, storage
    return Matrix(rows, columns, stride, is_transposed, _name(x.dtype), alignment(x.data.ptr))


def _storage(x: Array) -> tuple[int, bool] | None:
    """Stride and whether x is transposed, as in a ``Matrix``."""
    (rows, columns), (down, across) = x.shape, (stride // x.itemsize for stride in x.strides)
    if _is_dense(rows, columns, down, across):
        return down if rows > 1 else columns, False
    if _is_dense(columns, rows, across, down):
        return across if columns > 1 else rows, True
    return None


def _is_dense(n_lines: int, length: int, stride: int, step: int) -> bool:
    """Whether elements of a line lie side by side and lines do not overlap; the stride of a single one is moot."""
    return (step == 1 or length == 1) and (stride >= length or n_lines == 1)


def _check(left: Array, right: Array, out: Array, bias: Array | None, mask: Array | None) -> None:
    n_rows, n_columns = left.shape[0], right.shape[1]
    factor, result = _name(left.dtype), _name(out.dtype)
    fits = (
        left.shape[1] == right.shape[0]
        and out.shape == (n_rows, n_columns)
        and factor in TYPES
        and right.dtype == left.dtype
        and result in {factor, "float32"}
        and (bias is None or (bias.shape == (n_columns,) and bias.dtype == out.dtype and bias.flags.c_contiguous))
        and (mask is None or (mask.shape == mask_shape(n_rows, n_columns) and mask.flags.c_contiguous))
    )
    if not fits:
        arguments = {"left": left, "right": right, "out": out, "bias": bias, "mask": mask}
        got = ", ".join(f"{name} {x.shape} {x.dtype}" for name, x in arguments.items() if x is not None)
        raise ShapeError(
            "product: expected left (M, K), right (K, N), out (M, N), bias (N,), mask as mask_shape(M, N), all but the"
            f" mask of float32, or of bfloat16 with out and bias of either; got {got}"
        )


_name = functools.cache(str)  # of a dtype: NumPy takes microseconds to make it


@functools.lru_cache(maxsize=4096)  # batches have ever other numbers of tokens
def _prepared(problem: Problem, device: int) -> Product:
    return Product(problem, device)


@functools.cache
def _workspace(device: int, stream: int) -> Array:
    """One for every stream of a device: products of one stream follow one another, and may share it."""
    return namespace_of_device("cuda").empty(WORKSPACE, "uint8")
