"""Arrays between guards, which show a kernel in C that writes beside its arrays, or reads before it writes.

Every allocated byte is 0xFF: NaN as a floating-point number, −1 as an integer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

GUARD = 256  # bytes before and after an array


class Guarded:
    """Allocations between guards; none is aligned to more than the size of an element."""

    def __init__(self) -> None:
        self._allocated: list[tuple[Any, slice]] = []

    def empty(self, shape: Any, dtype: Any = float, **_: Any) -> Any:
        """Allocate an array as ``numpy.empty`` does, one element behind the start of a cache line."""
        dtype = np.dtype(dtype)
        n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        buffer = np.full(GUARD + 64 + n_bytes + GUARD, 0xFF, np.uint8)
        start = GUARD + -(buffer.ctypes.data + GUARD) % 64 + dtype.itemsize
        within = slice(start, start + n_bytes)
        self._allocated.append((buffer, within))
        return buffer[within].view(dtype).reshape(shape)

    def copy_of(self, x: Any) -> Any:
        """Return a copy of ``x`` between guards."""
        out = self.empty(x.shape, x.dtype)
        out[...] = x
        return out

    def check(self) -> None:
        """Fail if a guard has changed."""
        for buffer, within in self._allocated:
            assert (buffer[: within.start] == 0xFF).all(), "a kernel wrote before an array"
            assert (buffer[within.stop :] == 0xFF).all(), "a kernel wrote behind an array"


@contextmanager
def guarded_allocations() -> Iterator[Guarded]:
    """Let ``numpy.empty`` and its relatives allocate guarded arrays; check the guards at the end."""
    guarded = Guarded()

    def zeros(shape: Any, dtype: Any = float, **_: Any) -> Any:
        array = guarded.empty(shape, dtype)
        array[...] = 0
        return array

    with (
        patch.object(np, "empty", guarded.empty),
        patch.object(np, "empty_like", lambda x, dtype=None, **_: guarded.empty(x.shape, dtype or x.dtype)),
        patch.object(np, "zeros", zeros),
    ):
        yield guarded
    guarded.check()
