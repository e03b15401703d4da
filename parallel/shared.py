"""Where the arrays lie that ranks exchange: in memory that several ranks of one machine see, or in their own."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from parallel.tree import Numbers

LINE = 256  # bytes: where the second array in a piece of memory may begin


class NoSharedMemoryError(OSError):
    """A rank cannot have, or cannot see, memory in common with the others."""


@dataclass(frozen=True)
class Memory:
    """What a rank and its neighbours see."""

    neighbours: MPI.Intracomm
    """They, and this rank."""
    values: Numbers
    """One array for all of them."""
    gradients: Mapping[int, Numbers]
    """One of each, by rank."""


def shared_memory(neighbours: MPI.Intracomm, ranks: list[int], values: Numbers) -> Memory:
    """Memory that all of them see: nothing in it needs to be laid out, sent or copied.  All of them must call.

    Args:
        ranks: of the neighbours, in all the world.
        values: those of the first become the values of all.

    Raises: NoSharedMemoryError, on all of them.
    """
    is_first, after_gradients = neighbours.Get_rank() == 0, -(-values.nbytes // LINE) * LINE
    memories = _memories_of_all(neighbours, after_gradients + (values.nbytes if is_first else 0))
    common = np.frombuffer(memories[0], values.dtype, values.size, after_gradients)
    if is_first:
        common[...] = values
    neighbours.Barrier()
    of_ranks = [np.frombuffer(memory, values.dtype, values.size) for memory in memories]
    return Memory(neighbours, common, dict(zip(ranks, of_ranks, strict=True)))


def _memories_of_all(neighbours: MPI.Intracomm, n_bytes: int) -> list[mmap.mmap]:
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
        memories = [_map(*where) for where in neighbours.allgather(place) if where]
    except OSError as error:
        reason = reason or str(error)
    reasons = [reason for reason in neighbours.allgather(reason) if reason]
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
