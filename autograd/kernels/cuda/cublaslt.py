"""cuBLASLt, NVIDIA's library of matrix products, through ctypes.

CuPy's products use cuBLAS.  They are not allowed while a stream is captured, need a second pass over memory to add in
place, and cannot add a bias.  Here a product gets its stream, its workspace, and an epilogue: operations on the result
before it is written.

The library stores matrices by columns, NumPy by rows: an array (M, N) stored by rows is a matrix N × M stored by
columns.  So out = left · right is computed as outᵀ = rightᵀ leftᵀ, and a transposed array is a flag.

Source: cublasLt.h of CUDA 12 and 13, which defines the numbers below.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from ctypes import byref, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Literal, NamedTuple, TypeAlias

from autograd.kernels.cuda.library import paths_of

Epilogue: TypeAlias = Literal["none", "bias", "relu_bias", "relu_mask_bias", "relu_backward", "relu_bias_backward"]

TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}  # cudaDataType
EPILOGUES: dict[Epilogue, int] = {
    "none": 1, "bias": 4, "relu_bias": 6, "relu_mask_bias": 134, "relu_backward": 136, "relu_bias_backward": 152,
}  # fmt: skip
COMPUTE_FLOAT32, COMPUTE_TF32 = 68, 77  # cublasComputeType; both add in float32
# Attributes of a product, of a layout and of a search.
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS, BIAS_STEP, MASK, MASK_STRIDE = 3, 4, 7, 8, 10, 11, 12  # of a product
COUNT, STEP = 5, 6  # of a layout
MOST_WORKSPACE, REDUCTIONS, ALIGNMENTS = 1, 3, (5, 6, 7, 8)  # of a search
IN_PLACE, IN_FLOAT32 = 1, 2  # where partial sums are added: in the output, or in the workspace
WORKSPACE = 32 * 2**20  # bytes, as cuBLAS uses on Hopper
MASKED = 128  # the bit of epilogues that write or read a mask
MASK_BITS = 128  # a row of a mask begins at a multiple of this
# Algorithms that split a sum into parts lose the terms after the last multiple of this: seen with cuBLASLt 13.1 on an
# H200, and by others with 12 and 13 on H100 and GB200 (github.com/facebookexperimental/triton/pull/2767).
SPLIT_TERMS = 64


class ProductError(RuntimeError):
    """An error: cuBLASLt is missing or rejects a product; the message has call, status and matrices."""


def alignment(address: int) -> int:
    """Return the greatest power of two, up to 256, that divides an address: its alignment in bytes."""
    return min(256, address & -address)


class Matrix(NamedTuple):
    """The storage of a matrix: its rows, or its columns if ``transposed``, begin ``stride`` elements apart.

    In a stack of matrices the next matrix begins ``step`` elements further on; ``step`` is 0 for a single matrix.
    """

    rows: int
    columns: int
    stride: int
    transposed: bool
    dtype: str
    alignment: int
    step: int = 0

    def __str__(self) -> str:
        return f"{self.dtype} ({self.rows}, {self.columns}){' by columns' if self.transposed else ''}"


class Problem(NamedTuple):
    """A product, or a stack of products, without the addresses of its matrices."""

    left: Matrix
    right: Matrix
    out: Matrix
    epilogue: Epilogue
    adds: bool
    """True if the product is added to out, False if it overwrites out."""
    bias_alignment: int
    """The alignment of the bias in bytes; 0 without a bias."""
    bias_step: int = 0
    n_products: int = 1
    rounds_to_tf32: bool = False
    """True if the library may round factors of float32 to TF32."""

    @property
    def may_be_split(self) -> bool:
        """Return whether sums may be split into parts: the number of terms is a multiple of ``SPLIT_TERMS``."""
        return self.left.columns % SPLIT_TERMS == 0

    def __str__(self) -> str:
        times = f"{self.n_products} × " if self.n_products > 1 else ""
        return f"{times}{self.left} @ {self.right} {'+' if self.adds else ''}= {self.out}, epilogue {self.epilogue}"


class Algorithm(ctypes.Structure):
    """An algorithm of the library; its contents are opaque."""

    _fields_ = (("data", c_uint64 * 8),)


class Heuristic(ctypes.Structure):
    """An algorithm that the library proposes, with the workspace that it needs."""

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace", c_size_t),
        ("status", ctypes.c_int),
        ("waves", c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Operands(NamedTuple):
    """The addresses of the matrices on the device.  Bias and mask are 0 if the epilogue has none."""

    left: int
    right: int
    out: int
    bias: int = 0
    mask: int = 0


@functools.cache
def library() -> ctypes.CDLL:
    """Load the library and declare its signatures.  Raises: ProductError if it is not installed."""
    path = next(paths_of("cublasLt"), None)
    if path is None:
        raise ProductError(
            'cuBLASLt, the library of matrix products, is not installed; pip install "nvidia-cublas"'
            ' (with a driver of CUDA 12: "nvidia-cublas-cu12")'
        )
    return declared(ctypes.CDLL(path))


def declared(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the argument types of the functions: without them ctypes would cut addresses to 32 bits."""
    pointer, size = c_void_p, c_size_t
    signatures: dict[str, list[Any]] = {
        "Create": [pointer],
        "MatmulDescCreate": [pointer, c_int32, c_int32],
        "MatmulDescSetAttribute": [pointer, c_int32, pointer, size],
        "MatmulDescDestroy": [pointer],
        "MatrixLayoutCreate": [pointer, c_int32, c_uint64, c_uint64, c_int64],
        "MatrixLayoutSetAttribute": [pointer, c_int32, pointer, size],
        "MatrixLayoutDestroy": [pointer],
        "MatmulPreferenceCreate": [pointer],
        "MatmulPreferenceSetAttribute": [pointer, c_int32, pointer, size],
        "MatmulPreferenceDestroy": [pointer],
        "MatmulAlgoGetHeuristic": [*[pointer] * 7, c_int32, pointer, pointer],
        "MatmulAlgoCheck": [*[pointer] * 8],
        "Matmul": [*[pointer] * 14, size, pointer],
    }
    for name, arguments in signatures.items():
        getattr(loaded, f"cublasLt{name}").argtypes = arguments
    loaded.cublasLtGetVersion.restype = c_size_t
    loaded.cublasLtGetStatusName.argtypes, loaded.cublasLtGetStatusName.restype = [c_int32], ctypes.c_char_p
    return loaded


def version() -> int:
    """Return the version of the library, such as 131000; algorithms are valid for one version only."""
    return int(library().cublasLtGetVersion())


@functools.cache
def handle(device: int) -> c_void_p:
    """Create the library's handle for a device, which must be the current one."""
    created = c_void_p()
    _call(f"device {device}", "Create", byref(created))
    return created


def _call(what: object, name: str, *arguments: Any) -> None:
    """Call a function of the library.  Raises: ProductError unless it returns success."""
    status = getattr(library(), f"cublasLt{name}")(*arguments)
    if status:
        words = library().cublasLtGetStatusName(status).decode()
        raise ProductError(f"cublasLt{name}: {words} ({status}); {what}")


class Product:
    """The library's descriptors of a problem on one device; several threads may call ``run``."""

    def __init__(self, problem: Problem, device: int) -> None:
        self.problem, self.device, self.handle = problem, device, handle(device)
        self.algorithm: Algorithm | None = None  # set when it has been chosen
        left, right, out = problem.left, problem.right, problem.out
        compute = COMPUTE_TF32 if problem.rounds_to_tf32 else COMPUTE_FLOAT32
        self._operation = self._create("MatmulDesc", compute, TYPES["float32"])
        self._set("MatmulDesc", self._operation, TRANSPOSE_A, c_int32(right.transposed))
        self._set("MatmulDesc", self._operation, TRANSPOSE_B, c_int32(left.transposed))
        self._set("MatmulDesc", self._operation, EPILOGUE, c_uint32(EPILOGUES[problem.epilogue]))
        if EPILOGUES[problem.epilogue] & MASKED:
            self._set("MatmulDesc", self._operation, MASK_STRIDE, c_int64(mask_stride(out.columns)))
        if problem.bias_step:
            self._set("MatmulDesc", self._operation, BIAS_STEP, c_int64(problem.bias_step))
        self._a, self._b, self._d = map(self._layout, (right, left, out))
        self._lock = threading.Lock()  # threads share the descriptor that holds the addresses of bias and mask

    def proposals(self, operands: Operands, count: int) -> list[Algorithm]:
        """Return up to ``count`` algorithms, the fastest by the library's estimate first.

        Do not call this while a stream is being captured.
        """
        preference = self._create("MatmulPreference")
        # Partial sums are not added in 16 bits.
        reductions = IN_FLOAT32 | (IN_PLACE if self.problem.out.dtype == "float32" else 0)
        reductions *= self.problem.may_be_split
        self._set("MatmulPreference", preference, MOST_WORKSPACE, c_uint64(WORKSPACE))
        self._set("MatmulPreference", preference, REDUCTIONS, c_uint32(reductions))
        left, right, out = self.problem.left, self.problem.right, self.problem.out
        for attribute, matrix in zip(ALIGNMENTS, (right, left, out, out), strict=True):
            self._set("MatmulPreference", preference, attribute, c_uint32(matrix.alignment))
        found, n_found = (Heuristic * count)(), ctypes.c_int()
        with self._lock:
            self._point_to(operands)
            self._run(
                "MatmulAlgoGetHeuristic",
                self.handle,
                self._operation,
                *self._layouts,
                preference,
                count,
                found,
                byref(n_found),
            )
        return [proposal.algorithm for proposal in found[: n_found.value] if not proposal.status]

    def accepts(self, algorithm: Algorithm, operands: Operands) -> bool:
        """Return whether an algorithm found for another problem, or read from a file, can compute this one."""
        checked = Heuristic()
        with self._lock:
            self._point_to(operands)
            status = library().cublasLtMatmulAlgoCheck(
                self.handle, self._operation, *self._layouts, byref(algorithm), byref(checked)
            )
        return not status and checked.workspace <= WORKSPACE

    def run(
        self, operands: Operands, algorithm: Algorithm, workspace: int, stream: int, out: int | None = None
    ) -> None:
        """Compute the product on a stream; with ``out``, write the result there instead of the operands' out.

        Raises: ProductError.
        """
        one, beta = c_float(1), c_float(self.problem.adds)
        with self._lock:
            self._point_to(operands)
            self._run(
                "Matmul",
                self.handle,
                self._operation,
                byref(one),
                operands.right,
                self._a,
                operands.left,
                self._b,
                byref(beta),
                operands.out,
                self._d,
                operands.out if out is None else out,
                self._d,
                byref(algorithm),
                workspace,
                WORKSPACE,
                stream,
            )

    @property
    def _layouts(self) -> tuple[c_void_p, ...]:
        return self._a, self._b, self._d, self._d

    def _point_to(self, operands: Operands) -> None:
        """Set the addresses of bias and mask; the search for algorithms reads their alignment, too."""
        if operands.bias:
            self._set("MatmulDesc", self._operation, BIAS, c_void_p(operands.bias))
        if operands.mask:
            self._set("MatmulDesc", self._operation, MASK, c_void_p(operands.mask))

    def _layout(self, matrix: Matrix) -> c_void_p:
        """Create the library's layout of a matrix, in which NumPy's rows are columns."""
        lines, length = (matrix.rows, matrix.columns)[:: -1 if matrix.transposed else 1]
        layout = self._create("MatrixLayout", TYPES[matrix.dtype], length, lines, matrix.stride)
        if self.problem.n_products > 1:
            self._set("MatrixLayout", layout, COUNT, c_int32(self.problem.n_products))
            self._set("MatrixLayout", layout, STEP, c_int64(matrix.step))
        return layout

    def _create(self, kind: str, *arguments: int) -> c_void_p:
        """Create an object of the library; it is destroyed when this product is destroyed."""
        created = c_void_p()
        self._run(f"{kind}Create", byref(created), *arguments)
        weakref.finalize(self, getattr(library(), f"cublasLt{kind}Destroy"), created)
        return created

    def _set(self, kind: str, of: c_void_p, attribute: int, value: Any) -> None:
        self._run(f"{kind}SetAttribute", of, attribute, byref(value), ctypes.sizeof(value))

    def _run(self, name: str, *arguments: Any) -> None:
        _call(self.problem, name, *arguments)


def mask_stride(n_columns: int) -> int:
    """Return the number of bits from one row of a mask to the next."""
    return -(-n_columns // MASK_BITS) * MASK_BITS
