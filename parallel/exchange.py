"""What the ranks of MPI exchange in an update: through memory where they share it, by messages where they do not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from parallel.bfloat16 import narrow, widen
from parallel.communicator import InSlices, SentIn, part_of_rank
from parallel.meetings import meetings
from parallel.messages import PIECE
from parallel.shared import Memory
from parallel.tree import Numbers, add_along_tree, part_of, subtrees_within, tree_of
from parallel.watchdog import Watchdog

Value = TypeVar("Value")


class MpiExchange:
    """See ``parallel.communicator.Exchange``; the arrays lie in host memory.

    A rank adds its part of its neighbours' gradients up where they lie, and updates its part of the values where all
    neighbours see it.  Of every other neighbourhood one rank sends it what they have there: sums over those subtrees
    that they hold whole.  So a number leaves a machine once for every other one; and so do the values, afterwards.

    Args:
        neighbourhoods: the ranks that share memory with each other; this rank's see ``memory``.
        said: how gradients travel.
        sent_in: as what gradients go from one neighbourhood to another.

    Raises: ValueError if they are not float32, but sent in bfloat16.
    """

    def __init__(
        self, ranks: MPI.Intracomm, watchdog: Watchdog, memory: Memory, neighbourhoods: Sequence[Sequence[int]],
        n_working: int, said: str, sent_in: SentIn = "float32",
    ) -> None:  # fmt: skip
        rank, size = ranks.Get_rank(), ranks.Get_size()
        self.values, self.gradients, self.said = memory.values, memory.gradients[rank], said
        if sent_in == "bfloat16" and self.gradients.dtype != np.float32:
            raise ValueError(f"exchange: only float32 is sent in bfloat16; got gradients of {self.gradients.dtype}")
        self.seconds_waited = 0.0
        self._ranks, self._rank, self._neighbours, self._watchdog = ranks, rank, memory.neighbours, watchdog
        self._parts = [part_of_rank(r, size, len(self.values)) for r in range(size)]
        self.part = self._parts[rank]
        self._meetings, self._sent_in = list(meetings(neighbourhoods, rank)), sent_in
        self._n_at_once = PIECE // size  # of each part
        self._leaves = {range(r, r + 1): array for r, array in memory.gradients.items() if r < n_working}
        self._all = range(n_working)
        self._subtrees = {r: subtrees_within(those, self._all) for those in neighbourhoods for r in those}
        self._sums_here = [tree_of(subtree, self._leaves, rank) for subtree in self._subtrees[rank]]

    def sum_gradients(self, in_slices: InSlices) -> None:
        """Wait for all gradients, then add this rank's part of them up."""
        with self._watchdog.waiting("a sum over ranks"):
            start = time.perf_counter()
            self._ranks.Barrier()
            self.seconds_waited += time.perf_counter() - start
            if self._meetings:
                self._add_up()
            else:
                mine, tree = self.gradients[self.part], part_of(self._sums_here[0], self.part)
                in_slices(lambda within: add_along_tree(part_of(tree, within), mine[within]))

    def share_values(self) -> None:
        """Wait for all parts of the values, and until nobody needs this rank's gradients any more."""
        with self._watchdog.waiting("an exchange of parameters"):
            for parts in self._pieces() if self._meetings else []:
                self._share(parts)
            self._neighbours.Barrier()

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

    def _add_up(self) -> None:
        """Piece by piece, on one thread: messages take longer than additions."""
        n_subtrees = sum(len(self._subtrees[meeting.partner]) for meeting in self._meetings if meeting.is_served)
        room = np.empty((n_subtrees + len(self._sums_here)) * self._n_at_once, self.gradients.dtype)
        for parts in self._pieces():
            mine = parts[self._rank]
            sums, free = {leaf: gradients[mine] for leaf, gradients in self._leaves.items()}, room
            for meeting in self._meetings:
                subtrees = self._subtrees[meeting.partner] if meeting.is_served else []
                received, free = _rows(free, len(subtrees), _length(mine))
                sent = self._sums_over(parts[meeting.partner], free) if meeting.serves else free[:0]
                self._send_and_receive_gradients(sent, received, meeting.partner)
                sums.update(zip(subtrees, received, strict=True))
            add_along_tree(tree_of(self._all, sums, self._rank), self.gradients[mine])

    def _sums_over(self, part: slice, room: Numbers) -> Numbers:
        """What the neighbours have to say of another rank's part: a row for each subtree that they hold whole."""
        trees = [part_of(tree, part) for tree in self._sums_here]
        if len(trees) == 1 and not isinstance(trees[0], tuple):
            return trees[0]
        rows, _ = _rows(room, len(trees), _length(part))
        for tree, row in zip(trees, rows, strict=True):
            add_along_tree(tree, row)
        return rows

    def _send_and_receive_gradients(self, sent: Numbers, received: Numbers, partner: int) -> None:
        if self._sent_in == "float32":
            self._ranks.Sendrecv(sent, dest=partner, recvbuf=received, source=partner)
            return
        bits, received_bits = np.empty(sent.size, np.uint16), np.empty(received.size, np.uint16)
        narrow(sent.reshape(-1), bits)
        self._ranks.Sendrecv(bits, dest=partner, recvbuf=received_bits, source=partner)
        widen(received_bits, received.reshape(-1))

    def _share(self, parts: Sequence[slice]) -> None:
        mine = self.values[parts[self._rank]]
        for meeting in self._meetings:
            sent = mine if meeting.is_served else mine[:0]
            received = self.values[parts[meeting.partner]] if meeting.serves else mine[:0]
            self._ranks.Sendrecv(sent, dest=meeting.partner, recvbuf=received, source=meeting.partner)

    def _pieces(self) -> list[list[slice]]:
        """The parts of all ranks, so many elements of each at a time."""
        longest, n = max(_length(part) for part in self._parts), self._n_at_once
        return [
            [slice(min(part.start + i, part.stop), min(part.start + i + n, part.stop)) for part in self._parts]
            for i in range(0, longest, n)
        ]


def _length(part: slice) -> int:
    return int(part.stop - part.start)


def _rows(room: Numbers, n_rows: int, length: int) -> tuple[Numbers, Numbers]:
    """The first stretch of a room as rows, and the rest of it."""
    return room[: n_rows * length].reshape(n_rows, length), room[n_rows * length :]
