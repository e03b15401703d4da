"""Sums over the ranks of one machine, through memory that all of them see."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from parallel.tree import Numbers, add_along_tree

PIECE_BYTES = 2 << 20  # of an array, summed at once: what all ranks have of it stays in a cache


class SharedSum:
    """Adds up arrays piece by piece: every rank lays its piece out, adds up a part of all pieces, and takes the sum.

    So a number is moved three times, whatever the number of ranks; messages would move it twice for every doubling of
    their number.  Who is ahead may lay the next piece out while others still take the last sum: nobody adds up before
    all have come.
    """

    def __init__(self, node: MPI.Intracomm) -> None:
        self._node, self._rank, self._size = node, node.Get_rank(), node.Get_size()
        n_rooms = 2 if self._rank == 0 else 1  # for a piece of every rank, and for the sum
        self._window = MPI.Win.Allocate_shared(n_rooms * PIECE_BYTES, 1, comm=node)
        self._window.Lock_all(MPI.MODE_NOCHECK)  # nobody locks otherwise: no need to ask the others
        memories: list[Any] = [self._window.Shared_query(rank)[0] for rank in range(self._size)]
        rooms = [np.frombuffer(memory, np.uint8).reshape(-1, PIECE_BYTES) for memory in memories]
        self._pieces, self._sum = [of_rank[0] for of_rank in rooms], rooms[0][1]

    def add_up(self, flat: Numbers, n_working: int) -> None:
        """Replace ``flat`` by its sum along the binary tree over the first ``n_working`` ranks, on all of them."""
        n_elements = PIECE_BYTES // flat.itemsize
        for start in range(0, flat.size, n_elements):
            self._add_up_piece(flat[start : start + n_elements], n_working)

    def _add_up_piece(self, mine: Numbers, n_working: int) -> None:
        def of(memory: Numbers) -> Numbers:
            return memory[: mine.nbytes].view(mine.dtype)

        if self._rank < n_working:
            of(self._pieces[self._rank])[...] = mine
        self._meet()
        part = slice(mine.size * self._rank // self._size, mine.size * (self._rank + 1) // self._size)
        add_along_tree([of(piece)[part] for piece in self._pieces[:n_working]], of(self._sum)[part])
        self._meet()
        mine[...] = of(self._sum)

    def _meet(self) -> None:
        """All have written what others will read."""
        self._window.Sync()
        self._node.Barrier()
        self._window.Sync()
