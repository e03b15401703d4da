"""A time limit on calls that wait for other ranks: a thread ends the process when the limit is exceeded."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

PATIENCE = 600.0  # seconds that a rank waits for others; a healthy rank is at most a few updates behind


class Watchdog:
    """A timer for calls that wait for other ranks.

    Args:
        patience: seconds that a call may take.  Seconds in which this process itself was stopped do not count.
        end: a function that ends all ranks; the watchdog's thread calls it when a call has taken longer.
    """

    def __init__(self, rank: int, patience: float, end: Callable[[], None]) -> None:
        self._rank, self.patience, self._end = rank, patience, end
        self._changed = threading.Condition()
        self._waits_for: str | None = None
        self._seconds = 0.0  # seconds, without those in which this process was stopped
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Time a call named ``what`` that waits for other ranks, within this context.  Contexts do not nest."""
        self._set(what)
        try:
            yield
        finally:
            self._set(None)

    def start_over(self) -> None:
        """Reset the timer of the current call: the peer is alive."""
        with self._changed:
            self._seconds = 0.0

    def _set(self, what: str | None) -> None:
        with self._changed:
            self._waits_for, self._seconds = what, 0.0
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while self._waits_for is None or self._seconds < self.patience:
                timeout = None if self._waits_for is None else min(1.0, self.patience - self._seconds)
                start = time.monotonic()
                if not self._changed.wait(timeout) and timeout is not None:
                    self._seconds += min(timeout, time.monotonic() - start)
            what = self._waits_for
        with suppress(OSError):  # end the ranks even if the log cannot be written
            print(
                f"rank {self._rank} ({socket.gethostname()}) has waited {self.patience:g} s for the other ranks, in"
                f" {what}: one of them is frozen or cut off; ending all ranks. The last checkpoint is unharmed",
                file=sys.stderr,
                flush=True,
            )
        self._end()
