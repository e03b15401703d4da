"""Memory that the ranks of one machine share: every rank's gradients, and one array of values for all of them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from parallel.communicator import Ranks
from parallel.exact_sum import FlatArray

LINE = 256  # bytes: the second array in one file begins at a multiple of it


class NoSharedMemoryError(OSError):
    """An error: a rank cannot allocate or open memory that it shares with other ranks."""


def allocate_shared(node: Ranks, ranks: list[int], n: int, dtype: Any) -> tuple[FlatArray, Mapping[int, FlatArray]]:
    """Return zeros in memory that all ranks of a node share: one array of values, and gradients by rank.

    All ranks of the node must call this.

    Args:
        ranks: the numbers that the node's ranks have among all ranks.

    Raises: NoSharedMemoryError, on all ranks of the node.
    """
    n_bytes = n * np.dtype(dtype).itemsize
    after_gradients = -(-n_bytes // LINE) * LINE
    files = _map_files_of_all(node, after_gradients + (n_bytes if node.rank == 0 else 0))
    values = np.frombuffer(files[0], dtype, n, after_gradients)
    gradients = (np.frombuffer(file, dtype, n) for file in files)
    return values, dict(zip(ranks, gradients, strict=True))


def _map_files_of_all(node: Ranks, n_bytes: int) -> list[mmap.mmap]:
    """Allocate ``n_bytes`` of zeros on this rank, and map the memory that every rank of the node has allocated.

    The memory is in files without names.  So no file remains when a process is killed, and the size of /dev/shm is no
    limit.
    """
    file, path_and_inode, files, reason = -1, None, [], ""
    try:
        file = os.memfd_create("minitransformer")
        os.posix_fallocate(file, 0, max(1, n_bytes))  # report a lack of memory here and not in an update
        path_and_inode = f"/proc/{os.getpid()}/fd/{file}", os.fstat(file).st_ino
    except (OSError, AttributeError) as error:  # AttributeError: only Linux has such files
        reason = str(error)
    try:
        files = [_map(*found) for found in node.allgather(path_and_inode) if found]
    except OSError as error:
        reason = reason or str(error)
    reasons = [reason for reason in node.allgather(reason) if reason]
    if file >= 0:
        os.close(file)
    if reasons:
        raise NoSharedMemoryError(reasons[0])
    return files


def _map(path: str, inode: int) -> mmap.mmap:
    """Map an open file of another process.  Raises: OSError, also if the file has another inode."""
    file = os.open(path, os.O_RDWR)
    try:
        if os.fstat(file).st_ino != inode:  # another container may use the same process id
            raise OSError(f"{path} belongs to another process")
        return mmap.mmap(file, 0)
    finally:
        os.close(file)
