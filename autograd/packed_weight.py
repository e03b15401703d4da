"""Weights in the order in which the product kernel for few rows reads them, and the threads that it may use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A weight matrix W (I, O) that ``autograd.ops.linear.pack_weight`` packed; only kernels read it.

    It is float32 in ``panels`` (P, I, 16), or int8 in ``words`` (P, ⌈I/4⌉, 16) int32, four rows in a word, with a scale
    for each column: ``scales`` (O,).
    """

    shape: tuple[int, int]
    panels: np.ndarray[Any, Any] | None = None
    words: np.ndarray[Any, Any] | None = None
    scales: np.ndarray[Any, Any] | None = None
    dtype = np.dtype(np.float32)
    ndim = 2


class _Threads(threading.local):
    number = 1


_threads = _Threads()


@contextmanager
def product_threads(number: int) -> Iterator[None]:
    """Let each product with a packed weight in this Python thread use ``number`` threads; without this, it uses one.

    The results have the same bits for any number.
    """
    before, _threads.number = _threads.number, number
    try:
        yield
    finally:
        _threads.number = before


def n_product_threads() -> int:
    """Return the number of threads that a product with a packed weight may use in this Python thread."""
    return _threads.number
