"""A thread ends the process when a call that waits for other ranks takes longer than it may."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

PATIENCE = 600.0  # seconds that a rank waits for others, which are at most a few updates behind


class Watchdog:
    """Watches over calls that wait for other ranks.

    Args:
        patience: seconds that a call may take; those in which this process was stopped, too, do not count.
        end: ends all ranks; called on the watchdog's own thread, when a call has taken longer.
    """

    def __init__(self, rank: int, patience: float, end: Callable[[], None]) -> None:
        self._rank, self._patience, self._end = rank, patience, end
        self._changed = threading.Condition()
        self._waits_for: str | None = None
        self._waited = 0.0  # seconds, of which those count in which this process ran, too
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Within this context, which lies in no other of its kind, the process waits for other ranks in ``what``."""
        self._set(what)
        try:
            yield
        finally:
            self._set(None)

    def start_over(self) -> None:
        """Who is waited for lives: the call may take as long again."""
        with self._changed:
            self._waited = 0.0

    def _set(self, what: str | None) -> None:
        with self._changed:
            self._waits_for, self._waited = what, 0.0
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while self._waits_for is None or self._waited < self._patience:
                a_while = None if self._waits_for is None else min(1.0, self._patience - self._waited)
                start = time.monotonic()
                if not self._changed.wait(a_while) and a_while is not None:
                    self._waited += min(a_while, time.monotonic() - start)
            what = self._waits_for
        with suppress(OSError):  # of a log that cannot be written the ranks must be ended all the same
            print(
                f"rank {self._rank} ({socket.gethostname()}) has waited {self._patience:g} s for the other ranks, in"
                f" {what}: one of them is frozen or cut off; ending all ranks. The last checkpoint is unharmed",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        self._end()
