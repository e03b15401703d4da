"""Weights in the order in which the kernels of products read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from autograd.blas import product

PackedDtype: TypeAlias = Literal["float32", "bfloat16", "int8"]


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A weight matrix W (I, O) that ``autograd.ops.linear.pack_weight`` packed, for kernels.

    Its columns lie in P panels:

    - float32: ``panels`` (P, I, 16);
    - bfloat16: ``words`` (P, 16 ⌈I/32⌉, 32) int32, two rows in a word, zeros after the last;
    - int8: ``words`` (P, ⌈I/4⌉, 16) int32, four rows in a word, and ``scales`` (P·16,), one for each column.  A byte of
      a word is a level −127 … 127, plus 128.
    """

    shape: tuple[int, int]
    panels: np.ndarray[Any, Any] | None = None
    words: np.ndarray[Any, Any] | None = None
    scales: np.ndarray[Any, Any] | None = None
    dtype = np.dtype(np.float32)
    ndim = 2
    __array_ufunc__ = None  # so that NumPy calls __rmatmul__ for ``array @ weight``

    def levels(self) -> Any:
        """Return W without its scales, as a float32 matrix."""
        n_terms, n_columns = self.shape
        if self.panels is not None:
            return self.panels.transpose(1, 0, 2).reshape(n_terms, -1)[:, :n_columns]
        assert self.words is not None
        stored = np.dtype("<u2" if self.scales is None else np.uint8)
        n_panels, n_words, width = self.words.shape
        numbers = self.words.astype("<i4").view(stored).reshape(n_panels, n_words, width, -1)
        in_rows = numbers.transpose(1, 3, 0, 2).reshape(-1, n_panels * width)[:n_terms, :n_columns]
        if self.scales is None:
            return bfloat16_values(in_rows)
        return in_rows - np.float32(128)

    def __rmatmul__(self, x: Any) -> Any:
        """Return x W, slowly.  x is rounded as W is; with int8, products of levels are summed exactly."""
        if self.panels is not None:
            return product(x, self.levels())
        if self.scales is None:
            return product(nearest_bfloat16(x), self.levels())
        levels, row_scales = quantised(x)
        sums = product(levels.astype(np.float64), self.levels().astype(np.float64))
        return sums.astype(np.float32) * self.scales[: self.shape[1]] * row_scales


def bfloat16_values(upper: Any) -> Any:
    """Convert bfloat16 numbers, stored as uint16, to float32, exactly."""
    return (upper.astype(np.uint32) << 16).view(np.float32)


def nearest_bfloat16(x: Any) -> Any:
    """Round float32 numbers to the nearest bfloat16, ties to even, and return them in float32; NaN stays NaN."""
    x = x.astype(np.float32, copy=False)
    bits = x.view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, nearest.view(np.float32))


def quantised(x: Any) -> tuple[Any, Any]:
    """Return the levels of each row of x, rounded to −127 … 127, and the row's scale: its greatest |x| / 127.

    A row with a NaN or an infinity gets the scale NaN.  Shapes: x (T, I); returns (T, I) and (T, 1), float32.
    """
    greatest = abs(x).max(1, keepdims=True, initial=0)  # NaN if x has one
    finite = greatest < np.inf
    scales = np.where(finite, np.maximum(greatest / np.float32(127), np.finfo(np.float32).tiny), np.float32(np.nan))
    return np.rint(np.where(finite, x, 0) * (1 / np.where(finite, scales, 1))), scales
