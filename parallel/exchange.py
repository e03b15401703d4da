"""What the ranks of MPI exchange in an update: by messages here, through memory that all see in ``shared``."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from parallel.communicator import ORDER_IN_WORDS, InSlices, part_of_rank
from parallel.messages import PIECE
from parallel.tree import Numbers, add_along_tree
from parallel.watchdog import Watchdog

Value = TypeVar("Value")


class MpiExchange(ABC):
    """See ``parallel.communicator.Exchange``; the arrays lie in host memory."""

    way: str
    """Through what numbers travel."""

    def __init__(
        self, ranks: MPI.Intracomm, watchdog: Watchdog, values: Numbers, gradients: Numbers, n_working: int
    ) -> None:
        self.values, self.gradients, self.n_working = values, gradients, n_working
        self.seconds_waited = 0.0
        self._ranks, self._rank, self._watchdog = ranks, ranks.Get_rank(), watchdog
        self._parts = [part_of_rank(rank, ranks.Get_size(), len(values)) for rank in range(ranks.Get_size())]
        self.part = self._parts[self._rank]
        # Partners in the tree change places until this rank comes first, which may then be summed in place; as addition
        # commutes, the bits are the same.
        self._order = [i ^ (self._rank % n_working) for i in range(n_working)]

    def sum_gradients(self, in_slices: InSlices) -> None:
        """Wait for all gradients, then add this rank's part of them up."""
        with self._watchdog.waiting("a sum over ranks"):
            start = time.perf_counter()
            self._ranks.Barrier()
            self.seconds_waited += time.perf_counter() - start
            self._add_up(in_slices)

    def share_values(self) -> None:
        """Wait for all parts of the values."""
        with self._watchdog.waiting("an exchange of parameters"):
            self._share()

    @property
    def said(self) -> str:
        """The way, and the order, which is always the same."""
        return f"gradients travel {self.way}; {ORDER_IN_WORDS['exact']}"

    def of_all_parts(self, value: Value) -> list[Value]:
        """Every rank's value."""
        with self._watchdog.waiting("a comparison of parts"):
            return list(self._ranks.allgather(value))

    def gather(self, part: Numbers) -> Numbers | None:
        """Every rank's part, put together on rank 0."""
        whole = np.empty(len(self.values), part.dtype) if self._rank == 0 else None
        with self._watchdog.waiting("a collection of parts"):
            self._ranks.Gatherv(part, None if whole is None else [whole, [_length(p) for p in self._parts]])
        return whole

    @abstractmethod
    def _add_up(self, in_slices: InSlices) -> None:
        """Replace this rank's part of its gradients by the sum."""

    @abstractmethod
    def _share(self) -> None:
        """Return when all values are here, and nobody needs this rank's gradients any more."""


class MessageExchange(MpiExchange):
    """Every two ranks give each other what the other adds up of their gradients, and later their parts of the values.

    So each number leaves a rank about twice in an update, whatever the number of ranks.
    """

    def __init__(
        self, ranks: MPI.Intracomm, watchdog: Watchdog, values: Numbers, gradients: Numbers, n_working: int, way: str
    ) -> None:
        super().__init__(ranks, watchdog, values, gradients, n_working)
        self.way = way

    def _add_up(self, in_slices: InSlices) -> None:
        del in_slices  # messages take longer than additions
        is_working = self._rank < self.n_working
        received = np.empty((self.n_working, min(self._n_at_once, len(self.values))), self.gradients.dtype)
        for parts in self._pieces():
            mine = self.gradients[parts[self._rank]]
            of_ranks = [row[: len(mine)] for row in received]
            for partner in self._partners:
                sent = self.gradients[parts[partner]] if is_working else mine[:0]
                into = of_ranks[partner] if partner < self.n_working else mine[:0]
                self._ranks.Sendrecv(sent, dest=partner, recvbuf=into, source=partner)
            if is_working:
                of_ranks[self._rank] = mine
            add_along_tree([of_ranks[i] for i in self._order], mine)

    def _share(self) -> None:
        for parts in self._pieces():
            mine = self.values[parts[self._rank]]
            for partner in self._partners:
                self._ranks.Sendrecv(mine, dest=partner, recvbuf=self.values[parts[partner]], source=partner)

    @property
    def _partners(self) -> list[int]:
        """The other ranks, in an order in which two always meet at the same time."""
        size = len(self._parts)
        others = [self._rank ^ distance for distance in range(1, 1 << (size - 1).bit_length())]
        return [rank for rank in others if rank < size]

    @property
    def _n_at_once(self) -> int:
        return PIECE // len(self._parts)

    def _pieces(self) -> list[list[slice]]:
        """The parts of all ranks, so many elements of each at a time."""
        longest, n = max(_length(part) for part in self._parts), self._n_at_once
        return [
            [slice(min(part.start + i, part.stop), min(part.start + i + n, part.stop)) for part in self._parts]
            for i in range(0, longest, n)
        ]


def _length(part: slice) -> int:
    return int(part.stop - part.start)
