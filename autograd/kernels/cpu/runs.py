"""Runs of rows that fit in the cache while a kernel passes over them several times."""

from __future__ import annotations

from collections.abc import Iterator

from autograd.array import Array


def runs(x: Array, n_elements: int) -> Iterator[slice]:
    """Return slices that cover the rows of x, each of about ``n_elements`` elements and at least one row."""
    n_rows = len(x)
    step = max(1, n_elements * n_rows // max(1, x.size))
    return (slice(start, start + step) for start in range(0, n_rows, step))
