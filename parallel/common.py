"""Exchange between the ranks of one machine, through memory that all of them see."""

from __future__ import annotations

import mmap
import os

import numpy as np
from mpi4py import MPI

from parallel.communicator import InSlices
from parallel.exchange import MpiExchange
from parallel.tree import Numbers, add_along_tree
from parallel.watchdog import Watchdog

LINE = 256  # bytes: where the second array in a piece of memory may begin


class NoSharedMemoryError(OSError):
    """A rank cannot have, or cannot see, memory in common with the others."""


class SharedExchange(MpiExchange):
    """All see the gradients of all, and there is one array of values a machine: nothing is laid out, sent or copied.

    A rank adds its part of all gradients up where its own lie, and updates its part of the values where they lie.
    Raises: NoSharedMemoryError, on all ranks.
    """

    way = "through shared memory"

    def __init__(self, ranks: MPI.Intracomm, watchdog: Watchdog, values: Numbers, n_working: int) -> None:
        after_gradients = -(-values.nbytes // LINE) * LINE
        n_bytes = after_gradients + (values.nbytes if ranks.Get_rank() == 0 else 0)
        memories = _memories_of_all(ranks, n_bytes)
        of_ranks = [np.frombuffer(memory, values.dtype, values.size) for memory in memories]
        common = np.frombuffer(memories[0], values.dtype, values.size, after_gradients)
        super().__init__(ranks, watchdog, common, of_ranks[ranks.Get_rank()], n_working)
        self._summands = [of_ranks[i][self.part] for i in self._order]
        if self._rank == 0:
            common[...] = values
        ranks.Barrier()

    def _add_up(self, in_slices: InSlices) -> None:
        mine = self.gradients[self.part]
        in_slices(lambda within: add_along_tree([summand[within] for summand in self._summands], mine[within]))

    def _share(self) -> None:
        self._ranks.Barrier()


def _memories_of_all(ranks: MPI.Intracomm, n_bytes: int) -> list[mmap.mmap]:
    """Zeros: ``n_bytes`` for this rank, and what the others asked for.

    They are files without a name: none is left behind, whoever is killed, and no limit of /dev/shm concerns them.
    """
    file, place, memories, reason = -1, None, [], ""
    try:
        file = os.memfd_create("minitransformer")
        os.posix_fallocate(file, 0, n_bytes)  # so that a lack of memory shows here and not in the midst of an update
        place = f"/proc/{os.getpid()}/fd/{file}", os.fstat(file).st_ino
    except (OSError, AttributeError) as error:  # AttributeError: Linux alone has such files
        reason = str(error)
    try:
        memories = [_map(*where) for where in ranks.allgather(place) if where]
    except OSError as error:
        reason = reason or str(error)
    reasons = [reason for reason in ranks.allgather(reason) if reason]
    if file >= 0:
        os.close(file)
    if reasons:
        raise NoSharedMemoryError(reasons[0])
    return memories


def _map(path: str, number: int) -> mmap.mmap:
    """The open file of another process, if it has this number."""
    file = os.open(path, os.O_RDWR)
    try:
        if os.fstat(file).st_ino != number:  # process ids of another container
            raise OSError(f"{path} belongs to another process")
        return mmap.mmap(file, 0)
    finally:
        os.close(file)
