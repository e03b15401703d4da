"""Weights in the order in which the product kernel for few rows reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autograd.blas import product


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A weight matrix W (I, O) that ``autograd.ops.linear.pack_weight`` packed, for kernels.

    It is float32 in ``panels`` (P, I, 16), or int8 in ``words`` (P, ⌈I/4⌉, 16) int32, four rows in a word, with a scale
    for each column: ``scales`` (O,).
    """

    shape: tuple[int, int]
    panels: np.ndarray[Any, Any] | None = None
    words: np.ndarray[Any, Any] | None = None
    scales: np.ndarray[Any, Any] | None = None
    dtype = np.dtype(np.float32)
    ndim = 2
    __array_ufunc__ = None  # so that NumPy calls __rmatmul__ for ``array @ weight``

    def unpacked(self) -> Any:
        """Return W as a float32 matrix."""
        n_terms, n_columns = self.shape
        if self.panels is not None:
            return self.panels.transpose(1, 0, 2).reshape(n_terms, -1)[:, :n_columns]
        assert self.words is not None
        assert self.scales is not None
        n_panels, n_words, width = self.words.shape
        levels = self.words.astype("<i4").view(np.int8).reshape(n_panels, n_words, width, 4)
        in_rows = levels.transpose(1, 3, 0, 2).reshape(4 * n_words, -1)
        return in_rows[:n_terms, :n_columns] * self.scales

    def __rmatmul__(self, x: Any) -> Any:
        """Return x W, so that a reference computes with a packed weight, slowly."""
        return product(x, self.unpacked())
