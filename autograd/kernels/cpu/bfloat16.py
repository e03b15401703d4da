"""Products that multiply in bfloat16 and add in float32, in the context of ``bfloat16_products``.

Factors are rounded and stored as int32 words, two numbers in a word; ``bfloat16.c`` describes the layouts.
"""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.bfloat16_products import packed_operands
from autograd.kernels.cpu.library import Function, is_for_c
from autograd.tensor import PendingGradient, TapeError

PANEL, STEP_PAIRS = 32, 16  # columns of a panel, and pairs of its rows are a multiple, as in bfloat16.h


def words_of_row(n_columns: int) -> int:
    """Return the number of words of a row, as ``bfloat16.h`` does."""
    return (-(-n_columns // 32) | 1) * 16


_rows, _pack = Function("bfloat16_rows"), Function("bfloat16_pack")
_linear, _weight_gradient = Function("bfloat16_linear"), Function("bfloat16_weight_gradient")


class Rows:
    """A matrix (R, C) in bfloat16, by rows: the left factor of a product.

    After each call of C a thread may have to wait for Python's lock.  To save calls, the first product with a matrix
    also rounds the matrix, and the gradient of a weight also writes the panels of its factors.
    """

    def __init__(self, n_rows: int, n_columns: int, words: Array | None = None) -> None:
        self.shape, self.ndim = (n_rows, n_columns), 2
        self._words = np.empty((n_rows, words_of_row(n_columns)), np.int32) if words is None else words
        self._unrounded: Array | None = None
        self.panels: Array | None = None  # the matrix as a factor of a product that sums over its rows

    @classmethod
    def rounded(cls, x: Array) -> Rows:
        """Return the rows of a float32 matrix.  The first product rounds them, to nearest, ties to even."""
        rows = cls(*x.shape)
        rows._unrounded = np.ascontiguousarray(x, np.float32)
        return rows

    def __getitem__(self, block: slice) -> Rows:
        words = self.words[block]
        return Rows(len(words), self.shape[1], words)

    def set(self, block: slice, x: Array) -> None:
        """Round a float32 matrix into a block of rows."""
        _rows(np.ascontiguousarray(x, np.float32), self._words[block], *x.shape)

    @property
    def words(self) -> Array:
        """The rounded rows."""
        x, words = self.for_product()
        if x is not None:
            _rows(x, words, *self.shape)
        return words

    def for_product(self) -> tuple[Array | None, Array]:
        """Return the float32 matrix for a product to round into the rows, or None if it is rounded; and the rows."""
        x, self._unrounded = self._unrounded, None
        return x, self._words


def _empty_panels(n_terms: int, n_columns: int) -> Array:
    n_pairs = -(-n_terms // (2 * STEP_PAIRS)) * STEP_PAIRS
    return np.empty((-(-n_columns // PANEL), n_pairs, PANEL), np.int32)


def packed(weight: Array, transposed: bool, n_threads: int) -> Array:
    """Return a contiguous weight W, or Wᵀ, in the layout of ``bfloat16.c``: panels of columns."""
    n_terms, n_columns = weight.shape[::-1] if transposed else weight.shape
    panels = _empty_panels(n_terms, n_columns)
    _pack(weight, panels, n_terms, n_columns, transposed, n_threads)
    return panels


def panels_of_weight(weight: Array, *, transposed: bool) -> Array:
    """Return the panels of W, or of Wᵀ, which are packed once for the context.  Raises: TapeError outside of it."""
    operands = packed_operands()
    if operands is None:
        raise TapeError("backward: the context bfloat16_products has ended; call backward in it, too")
    return operands.get(weight, transposed=transposed, pack=packed)


def rounded_product(
    x: Rows, weight: Array, bias: Array | None = None, *, transposed: bool = False, out: Array | None = None
) -> Array:
    """Return x W + b, or with ``transposed`` x Wᵀ + b; with ``out``, add the product to it, without a bias."""
    assert bias is None or out is None
    (n_rows, n_terms), n_columns = x.shape, weight.shape[0 if transposed else 1]
    y = np.empty((n_rows, n_columns), np.float32) if out is None else out
    panels = panels_of_weight(weight, transposed=transposed)
    _linear(*x.for_product(), panels, bias, y, n_rows, n_terms, n_columns, out is not None)
    return y


def pending_weight_gradient(x: Rows, dy: Rows) -> PendingGradient:
    """Return xᵀ dy, the gradient of a weight, which is written directly to its destination."""
    n_terms, shape = x.shape[0], (x.shape[1], dy.shape[1])

    def into(out: Array, add: bool) -> None:
        is_packed = x.panels is not None
        if not is_packed:
            x.panels = _empty_panels(*x.shape)
        _weight_gradient(x.words, x.panels, is_packed, dy.words, _empty_panels(*dy.shape), out, n_terms, *shape, add)

    return PendingGradient(shape, np.empty(0, np.float32), into)


def is_for_bfloat16(x: Array, *weights_and_biases: Array | None) -> bool:
    """Return whether products of these arrays are computed in bfloat16 in this context."""
    return packed_operands() is not None and is_for_c(x, *weights_and_biases)
