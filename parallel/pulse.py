"""Heartbeats: rank 0 sends them while it works alone and the other ranks wait for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mpi4py import MPI


class Pulse:
    """Empty messages from rank 0 to the other ranks, sent by a thread; a process that is stopped sends none.

    Args:
        ranks: a communicator that carries no other messages.
        interval: seconds between messages.
    """

    def __init__(self, ranks: MPI.Intracomm, interval: float) -> None:
        self._ranks, self._interval = ranks, interval

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Send heartbeats from rank 0 within this context."""
        stopped = threading.Event()
        thread = threading.Thread(target=self._beat, args=(stopped,), name="pulse", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def _beat(self, stopped: threading.Event) -> None:
        pending: list[MPI.Request] = []
        while not stopped.wait(self._interval):
            beats = [self._ranks.Isend(b"", dest=rank) for rank in range(1, self._ranks.Get_size())]
            pending = [beat for beat in pending + beats if not beat.Test()]

    def receive(self) -> bool:
        """Return whether a heartbeat has arrived since the last call."""
        felt = False
        while self._ranks.Iprobe(source=0):
            self._ranks.Recv(bytearray(), source=0)
            felt = True
        return felt
