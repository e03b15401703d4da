"""Products of few rows with a packed weight matrix.

Before a BLAS multiplies, it copies its arguments into the order in which its innermost loop reads them.  With thousands
of rows this is a small part of the work; with 64 it is a fifth, with 4 more than a half.  OpenBLAS has kernels without
that copy, for products of up to 10⁶ multiply-adds, on CPUs with AVX-512.  So the matrix is split once into panels of 32
columns, the rows into groups of 32, and the sum into pieces of 512 terms.  Every product is then small enough.

Source: OpenBLAS, kernel/x86_64/sgemm_small_kernel_permit_skylakex.c and the kernels beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from autograd.array import Array

ROWS, COLUMNS, TERMS = 32, 32, 512  # of a small product: the fastest sizes tried, half of the limit

LARGEST_RESULT = 4_000_000  # numbers; a larger result is in memory, slow to write in narrow columns

WITH_SMALL_KERNELS = {"SkylakeX", "Cooperlake", "SapphireRapids"}  # OpenBLAS's names of the CPUs with these kernels


class PackedWeight(np.ndarray[Any, np.dtype[Any]]):
    """A matrix W (I, O) with a copy of itself in panels; ``product`` maps x (T, I) to x W (T, O).

    Other code can use it as a NumPy array.  Results of computations with it and slices of it have no panels.
    """

    _panels: list[tuple[slice, slice, Array]] | None = None  # terms, columns, and panels (P, terms, columns of one)

    @classmethod
    def of(cls, matrix: Array) -> PackedWeight:
        """Return ``matrix`` with its panels, which are not updated when the matrix changes."""
        in_panels: PackedWeight = np.ascontiguousarray(matrix).view(cls)
        n_terms, n_columns = matrix.shape
        whole = n_columns - n_columns % COLUMNS
        in_panels._panels = [
            (terms, columns, _cut(matrix[terms, columns], width))
            for terms in (slice(start, start + TERMS) for start in range(0, n_terms, TERMS))
            for columns, width in ((slice(0, whole), COLUMNS), (slice(whole, n_columns), n_columns - whole))
            if columns.start < columns.stop
        ] or None
        return in_panels

    @property
    def n_panels(self) -> int:
        """The number of panels of ``COLUMNS`` columns; a narrower one may follow them."""
        return 0 if self._panels is None else int(self.shape[1] // COLUMNS)

    def multiply_panels(self, groups: Array, wanted: slice, out: Array) -> None:
        """Write the products of groups of rows (G, h, I) with the panels ``wanted`` into ``out`` (P, G, h, COLUMNS)."""
        assert self._panels is not None, "n_panels is 0"
        whole = [(terms, panels[wanted, None]) for terms, columns, panels in self._panels if columns.start == 0]
        for terms, panels in whole:
            if terms.start == 0:
                np.matmul(groups[..., terms], panels, out=out)
            else:
                out += np.matmul(groups[..., terms], panels)

    def product(self, x: Array) -> Array:
        """Return x W, by small products unless the result is large."""
        if self._panels is None or len(x) * self.shape[1] > LARGEST_RESULT:
            return np.matmul(x, self)
        y = np.empty((len(x), self.shape[1]), np.result_type(x, self))
        for terms, columns, panels in self._panels:
            if terms.start == 0:
                _multiply(x[:, terms], panels, y[:, columns])
            else:
                y[:, columns] += _multiply(x[:, terms], panels, np.empty_like(y[:, columns]))
        return y

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute as with any array.  Raises: TypeError if this matrix is the output."""
        if any(isinstance(out, PackedWeight) for out in options.get("out", ())):
            raise TypeError(
                f"{ufunc.__name__}: a matrix in panels cannot be written to, because its panels would not be updated"
            )
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, PackedWeight) else x for x in inputs), **options)


def _cut(matrix: Array, width: int) -> Array:
    """Split (K, P·width) into panels (P, K, width)."""
    return matrix.reshape(len(matrix), -1, width).swapaxes(0, 1).copy()


def _multiply(x: Array, panels: Array, out: Array) -> Array:
    """Write x (T, K) times the matrix of panels (P, K, width) into ``out`` (T, P·width)."""
    n_panels, _, width = panels.shape
    for groups, results in zip(groups_of_rows(x), groups_of_rows(out), strict=True):
        in_panels = results.reshape(*results.shape[:2], n_panels, width).transpose(2, 0, 1, 3)
        np.matmul(groups, panels[:, None], out=in_panels)
    return out


def groups_of_rows(x: Array) -> Iterator[Array]:
    """Yield x (T, K) as full groups of rows (T // ROWS, ROWS, K), then the remaining rows (1, T mod ROWS, K)."""
    whole = len(x) - len(x) % ROWS
    for rows, height in ((x[:whole], ROWS), (x[whole:], len(x) - whole)):
        if len(rows):
            yield rows.reshape(-1, height, x.shape[1])


@cache
def small_products_are_fast() -> bool:
    """Return whether NumPy's BLAS is an OpenBLAS with small-product kernels for this CPU."""
    return any(
        library["internal_api"] == "openblas" and library.get("architecture") in WITH_SMALL_KERNELS
        for library in threadpool_info()
    )
