"""The communicator over MPI, by mpi4py."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar, cast

from mpi4py import MPI

from parallel.communicator import ORDER_IN_WORDS, SECONDS_TO_FORWARD, SentIn
from parallel.exchange import MpiExchange
from parallel.messages import PIECE
from parallel.pulse import Pulse
from parallel.shared import Memory, NoSharedMemoryError, shared_memory
from parallel.tree import Numbers
from parallel.watchdog import PATIENCE, Watchdog

Value = TypeVar("Value")

LONGEST_PULSE = 5.0  # seconds between signs of life


class MpiCommunicator:
    """All ranks that mpirun started.

    A rank that waits longer than ``patience`` seconds for others ends them all; while it waits for what rank 0 does
    alone, it counts anew from every sign of life.

    Args:
        neighbourhood: ranks of a machine share memory if it makes the same number of their places there.

    Raises: RuntimeError if the MPI library does not allow a thread of its own to the signs of life.
    """

    def __init__(self, patience: float = PATIENCE, *, neighbourhood: Callable[[int], int] = lambda place: 0) -> None:
        self._world = MPI.COMM_WORLD
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()
        vendor, version = MPI.get_vendor()
        self.library = f"{vendor} {'.'.join(map(str, version))}"
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise RuntimeError("the MPI library was built without MPI_THREAD_MULTIPLE")
        self._watchdog = Watchdog(self.rank, patience, self._end_after_message)
        with self._watchdog.waiting("the first meeting"):
            node = cast(MPI.Intracomm, self._world.Split_type(MPI.COMM_TYPE_SHARED))
            self.node_rank, self.node_size = node.Get_rank(), node.Get_size()
            self._neighbours = cast(MPI.Intracomm, node.Split(neighbourhood(self.node_rank)))
            self._pulse = Pulse(self._world.Dup(), min(patience / 10, LONGEST_PULSE))

    def exchange(
        self, values: Numbers, new_gradients: Callable[[], Numbers], n_working: int, sent_in: SentIn = "float32"
    ) -> MpiExchange:
        """Through memory that the ranks of a machine share, where they can, else by messages: all have the same bits.

        Raises: ValueError if what is sent in bfloat16 is not float32.
        """
        with self._watchdog.waiting("the setting up of an exchange"):
            memory, obstacle = self._memory_for(values, new_gradients)
            told = self._world.allgather((tuple(memory.gradients), obstacle))
        neighbourhoods = list(dict.fromkeys(ranks for ranks, _ in told))
        obstacles = [obstacle for _, obstacle in told if obstacle]
        said = f"gradients travel {self._way(neighbourhoods, obstacles, sent_in)}; {ORDER_IN_WORDS['exact']}"
        return MpiExchange(self._world, self._watchdog, memory, neighbourhoods, n_working, said, sent_in)

    def _memory_for(self, values: Numbers, new_gradients: Callable[[], Numbers]) -> tuple[Memory, str]:
        """That of all neighbours, or this rank's own, and what stands in the way of sharing."""
        obstacle = ""
        if self._neighbours.Get_size() > 1:
            try:
                return shared_memory(self._neighbours, self._neighbours.allgather(self.rank), values), ""
            except NoSharedMemoryError as error:
                obstacle = str(error)
        return Memory(MPI.COMM_SELF, values, {self.rank: new_gradients()}), obstacle

    def _way(self, neighbourhoods: list[tuple[int, ...]], obstacles: list[str], sent_in: SentIn) -> str:
        if len(neighbourhoods) == 1:
            return "through shared memory" + (", where nothing is rounded to bfloat16" * (sent_in == "bfloat16"))
        way = "through shared memory on a machine and " if len(neighbourhoods) < self.size else ""
        way += f"by messages of {self.library}"
        if self.node_size < self.size:
            way += " between machines"
        if sent_in == "bfloat16":
            way += ", rounded to bfloat16"
        return way + (f", because ranks cannot share memory ({obstacles[0]})" if obstacles else "")

    def sum_in_any_order(self, array: Any) -> None:
        """The library's own sum, in pieces."""
        flat = array.reshape(-1)
        with self._watchdog.waiting("a sum over ranks"):
            for start in range(0, flat.size, PIECE):
                self._world.Allreduce(MPI.IN_PLACE, flat[start : start + PIECE])

    def send_and_receive(self, outgoing: Any, incoming: Any, partner: int) -> None:
        """Send and receive at once, so that neither waits for the other to receive."""
        with self._watchdog.waiting("a sum over ranks"):
            self._world.Sendrecv(outgoing, dest=partner, recvbuf=incoming, source=partner)

    def broadcast_array(self, array: Any) -> None:
        """Overwrite ``array`` by rank 0's."""
        with self._watchdog.waiting("a sum over ranks"):
            self._world.Bcast(array, root=0)

    def sum_of_numbers(self, number: float) -> float:
        """The sum of one number a rank, on every rank."""
        with self._watchdog.waiting("a sum of numbers"):
            return float(self._world.allreduce(number, op=MPI.SUM))

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank, on every rank."""
        with self._watchdog.waiting("a question to all ranks"):
            return bool(self._world.allreduce(flag, op=MPI.LOR))

    def broadcast(self, value: Value) -> Value:
        """Rank 0's value, on every rank."""
        with self._watchdog.waiting("a broadcast"):
            result: Value = self._world.bcast(value, root=0)
        return result

    def all_of(self, value: Value) -> list[Value]:
        """Every rank's value, on every rank."""
        with self._watchdog.waiting("a comparison of ranks"):
            return list(self._world.allgather(value))

    def barrier(self) -> None:
        """Return when all ranks have called."""
        self._meet("a barrier")

    @contextmanager
    def waiting_for_rank_0(self) -> Iterator[None]:
        """The others leave when rank 0 does; meanwhile it shows that it lives."""
        with self._pulse.beating() if self.rank == 0 else nullcontext():
            yield
        self._meet("what rank 0 does alone")

    def _meet(self, what: str) -> None:
        """The wait may be long: it sleeps, and leaves the cores to who works."""
        request = self._world.Ibarrier()
        with self._watchdog.waiting(what):
            while not request.Test():
                if self._pulse.was_felt():
                    self._watchdog.start_over()
                time.sleep(0.005)

    def abort(self) -> None:
        """End all ranks at once."""
        self._world.Abort(1)

    def _end_after_message(self) -> None:
        """The main thread is inside of MPI and stays there; that a process has gone makes mpirun end the others."""
        time.sleep(SECONDS_TO_FORWARD)
        os._exit(1)
