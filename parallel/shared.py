"""Sums over the ranks of one machine, through memory that all of them see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

Numbers = np.ndarray[Any, Any]

PIECE_BYTES = 2 << 20  # of an array, summed at once: what all ranks have of it stays in a cache


class SharedSum:
    """Adds up arrays piece by piece: every rank lays its piece out, adds up a part of all pieces, and takes the sum.

    So a number is moved three times, whatever the number of ranks; messages would move it twice for every doubling of
    their number.  Two rooms take turns: who is ahead lays the next piece out while others still take the last sum.
    """

    def __init__(self, node: MPI.Intracomm) -> None:
        self._node, self._rank, self._size = node, node.Get_rank(), node.Get_size()
        rooms = 2 * 2 * PIECE_BYTES  # a rank's piece, and its place for a sum, twice
        self._window = MPI.Win.Allocate_shared(rooms, 1, comm=node)
        self._window.Lock_all(MPI.MODE_NOCHECK)  # nobody locks otherwise: no need to ask the others
        memories: list[Any] = [self._window.Shared_query(rank)[0] for rank in range(self._size)]
        of_ranks = [np.frombuffer(memory, np.uint8).reshape(2, 2, PIECE_BYTES) for memory in memories]
        self._pieces = [[of_rank[room, 0] for of_rank in of_ranks] for room in range(2)]
        self._sums = [of_ranks[0][room, 1] for room in range(2)]

    def add_up(self, flat: Numbers, n_working: int) -> None:
        """Replace ``flat`` by its sum along the binary tree over the first ``n_working`` ranks, on all of them."""
        n_elements = PIECE_BYTES // flat.itemsize
        for number, start in enumerate(range(0, flat.size, n_elements)):
            self._add_up_piece(flat[start : start + n_elements], number % 2, n_working)

    def _add_up_piece(self, mine: Numbers, room: int, n_working: int) -> None:
        def of(memory: Numbers) -> Numbers:
            return memory[: mine.nbytes].view(mine.dtype)

        if self._rank < n_working:
            of(self._pieces[room][self._rank])[...] = mine
        self._meet()
        part = slice(mine.size * self._rank // self._size, mine.size * (self._rank + 1) // self._size)
        add_along_tree([of(piece)[part] for piece in self._pieces[room][:n_working]], of(self._sums[room])[part])
        self._meet()
        mine[...] = of(self._sums[room])

    def _meet(self) -> None:
        """All have written what others will read."""
        self._window.Sync()
        self._node.Barrier()
        self._window.Sync()


def add_along_tree(summands: Sequence[Numbers], out: Numbers) -> None:
    """(s₀ + s₁) + (s₂ + s₃) … into ``out``; a power of two of them."""
    if len(summands) == 1:
        out[...] = summands[0]
    elif len(summands) == 2:
        np.add(summands[0], summands[1], out=out)
    else:
        half, of_right = len(summands) // 2, np.empty_like(out)
        add_along_tree(summands[:half], out)
        add_along_tree(summands[half:], of_right)
        out += of_right
