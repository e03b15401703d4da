"""Matrix products on the CPU, and the number of threads that they may use.

A product on several threads waits for the slowest of them.  If other processes use the cores, this wait takes
milliseconds even for a tiny product, and the waiting threads use processor time.  So a small product has one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

SMALL = 2**28  # multiplications: they take one core about 10 ms

_number: ContextVar[int | None] = ContextVar("product_threads", default=None)


class _Blas:
    """The number of threads of NumPy's BLAS, which is one setting for the whole process.

    A computation limits this number from ``begin`` to ``end``; the least of all current limits holds.  Without a limit
    BLAS has its original number of threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: list[int] = []
        self._least: int | None = None  # of the limits
        self._before: list[int] = []  # one number for each library

    @cached_property
    def _libraries(self) -> list[Any]:
        return list(ThreadpoolController().select(user_api="blas").lib_controllers)

    def begin(self, limit: int) -> None:
        with self._lock:
            if self._least is None:  # it is still set if Ctrl-C has interrupted ``end``
                self._before = [library.get_num_threads() for library in self._libraries]
            self._limits.append(limit)
            self._apply()

    def end(self, limit: int) -> None:
        with self._lock:
            self._limits.remove(limit)
            self._apply()

    def _apply(self) -> None:
        least = min(self._limits, default=None)
        for library, before in zip(self._libraries, self._before, strict=True):
            new = least or before
            if new != (self._least or before):
                _set_threads(library, new)
        self._least = least


def _set_threads(library: Any, number: int) -> None:
    """Set the number of threads of a library, from any thread.

    Since version 3.8 of threadpoolctl, the first thread that sets the number of OpenBLAS controls it.  Other threads
    can set it only after the controlling thread is cleared.
    """
    clear = getattr(library, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)
    library.set_num_threads(number)
    if clear is not None:
        clear(force=True)


_blas = _Blas()


@contextmanager
def product_threads(number: int) -> Iterator[None]:
    """Let each matrix product in this context use at most ``number`` threads.

    Outside of such a context, a large product uses all threads of NumPy's BLAS.  A small product, or one with a packed
    weight, uses one thread.  Products with packed weights have the same bits for any ``number``.

    BLAS has one number of threads for the whole process.  So while several contexts are open, in this thread or in
    others, the least of their numbers holds for BLAS.
    """
    token = _number.set(number)
    _blas.begin(number)
    try:
        yield
    finally:
        _blas.end(number)
        _number.reset(token)


def n_product_threads() -> int:
    """Return the number of threads that a product with a packed weight may use in this context."""
    return _number.get() or 1


def product(x: Any, y: Any, out: Any = None) -> Any:
    """Return the matrix product x @ y of arrays on any device; on the CPU, one thread computes a small product."""
    if type(x) is not np.ndarray or type(y) is not np.ndarray:
        return x @ y
    columns = y.shape[-1] if y.ndim > 1 else 1
    rows = x.shape[-2] if x.ndim > 1 else 1
    if _number.get() == 1 or rows * x.shape[-1] * columns >= SMALL:
        return np.matmul(x, y, out=out)
    _blas.begin(1)
    try:
        return np.matmul(x, y, out=out)
    finally:
        _blas.end(1)
