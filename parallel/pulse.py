"""Signs of life that rank 0 sends while the others wait for what it does alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mpi4py import MPI


class Pulse:
    """Empty messages from rank 0 to the others, from a thread: a process that is stopped sends none.

    Args:
        ranks: where no other messages pass.
        interval: seconds between beats.
    """

    def __init__(self, ranks: MPI.Intracomm, interval: float) -> None:
        self._ranks, self._interval = ranks, interval

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Within this context, on rank 0, the pulse beats."""
        over = threading.Event()
        thread = threading.Thread(target=self._beat, args=(over,), name="pulse", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _beat(self, over: threading.Event) -> None:
        on_their_way: list[MPI.Request] = []
        while not over.wait(self._interval):
            beats = [self._ranks.Isend(b"", dest=rank) for rank in range(1, self._ranks.Get_size())]
            on_their_way = [beat for beat in on_their_way + beats if not beat.Test()]

    def was_felt(self) -> bool:
        """Whether it has beaten since this rank last asked."""
        felt = False
        while self._ranks.Iprobe(source=0):
            self._ranks.Recv(bytearray(), source=0)
            felt = True
        return felt
