"""A stopwatch for training time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """A stopwatch that returns the seconds since the last lap, without pauses."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def lap(self) -> float:
        """Return the time since the last call, or since the start."""
        start, self._start = self._start, time.perf_counter()
        return self._start - start

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time within this context."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._start += time.perf_counter() - start
