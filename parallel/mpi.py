"""The communicator over MPI, through mpi4py."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
from mpi4py import MPI

from parallel.communicator import SECONDS_TO_FORWARD, Value
from parallel.watchdog import PATIENCE, Watchdog

LONGEST_PULSE = 5.0  # seconds between heartbeats, at most
PID_NAMESPACE = Path("/proc/self/ns/pid")  # a process of another container may have the same number


class MpiRanks:
    """A group of ranks; a watchdog limits the time of its collective calls.  See ``parallel.communicator.Ranks``."""

    def __init__(self, ranks: MPI.Intracomm, watchdog: Watchdog) -> None:
        self._ranks, self._watchdog = ranks, watchdog
        self.rank, self.size = ranks.Get_rank(), ranks.Get_size()
        with watchdog.waiting("MPI_Comm_dup"):
            self._pulse = Pulse(ranks.Dup(), min(watchdog.patience / 10, LONGEST_PULSE))

    def allreduce(self, number: float) -> float:
        with self._watchdog.waiting("MPI_Allreduce"):
            return float(self._ranks.allreduce(number, op=MPI.SUM))

    def any(self, flag: bool) -> bool:
        with self._watchdog.waiting("MPI_Allreduce"):
            return bool(self._ranks.allreduce(flag, op=MPI.LOR))

    def bcast(self, value: Value) -> Value:
        with self._watchdog.waiting("MPI_Bcast"):
            result: Value = self._ranks.bcast(value, root=0)
        return result

    def allgather(self, value: Value) -> list[Value]:
        with self._watchdog.waiting("MPI_Allgather"):
            return list(self._ranks.allgather(value))

    def barrier(self) -> None:
        with self._watchdog.waiting("MPI_Barrier"):
            self._ranks.Barrier()

    def sendrecv_array(self, sent: Any, received: Any, partner: int) -> None:
        """Send and receive at once, so that neither rank waits for the other to receive."""
        with self._watchdog.waiting("MPI_Sendrecv"):
            self._ranks.Sendrecv(sent, dest=partner, recvbuf=received, source=partner)

    def gatherv_array(self, array: Any, lengths: Sequence[int]) -> Any | None:
        whole = np.empty(sum(lengths), array.dtype) if self.rank == 0 else None
        with self._watchdog.waiting("MPI_Gatherv"):
            self._ranks.Gatherv(array, None if whole is None else [whole, list(lengths)])
        return whole

    @contextmanager
    def waiting_for_rank_0(self) -> Iterator[None]:
        """Let rank 0 work alone within this context and send heartbeats; the others leave it together with rank 0."""
        with self._pulse.beating() if self.rank == 0 else nullcontext():
            yield
        self._sleep_at_barrier()

    def _sleep_at_barrier(self) -> None:
        """Wait at a barrier without taking a core from rank 0."""
        request = self._ranks.Ibarrier()
        with self._watchdog.waiting("MPI_Ibarrier, for what rank 0 does alone"):
            while not request.Test():
                if self._pulse.receive():
                    self._watchdog.start_over()
                time.sleep(0.005)


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
        is_beating = False
        while self._ranks.Iprobe(source=0):
            self._ranks.Recv(bytearray(), source=0)
            is_beating = True
        return is_beating


class MpiCommunicator(MpiRanks):
    """The group of all ranks that mpirun started.

    A rank that waits longer than ``patience`` seconds for others ends all ranks.  While rank 0 works alone, each of its
    heartbeats resets this time.

    Args:
        node_group: a function of ``local_rank``; ranks of a machine share memory if its result is the same.

    Raises: RuntimeError if the MPI library does not allow calls from several threads: a thread sends the heartbeats.
    """

    def __init__(self, patience: float = PATIENCE, *, node_group: Callable[[int], int] = lambda local_rank: 0) -> None:
        world = MPI.COMM_WORLD
        self._local_pids: list[int] = []  # of the other ranks of this machine, once they are known
        super().__init__(world, Watchdog(world.Get_rank(), patience, self._end_after_message))
        vendor, version = MPI.get_vendor()
        self.library = f"{vendor} {'.'.join(map(str, version))}"
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise RuntimeError("the MPI library was built without MPI_THREAD_MULTIPLE")
        with self._watchdog.waiting("MPI_Comm_split"):
            machine = cast(MPI.Intracomm, world.Split_type(MPI.COMM_TYPE_SHARED))
            self.local_rank, self.local_size = machine.Get_rank(), machine.Get_size()
            mine = os.getpid(), PID_NAMESPACE.stat().st_ino if PID_NAMESPACE.exists() else 0  # only Linux has these
            others = [found for found in machine.allgather(mine) if found != mine]
            self._local_pids += [pid for pid, space in others if space == mine[1]]
            shares_memory = cast(MPI.Intracomm, machine.Split(node_group(self.local_rank)))
        self.node = MpiRanks(shares_memory, self._watchdog)

    def waiting(self, what: str) -> AbstractContextManager[None]:
        return self._watchdog.waiting(what)

    def abort(self) -> None:
        self._ranks.Abort(1)

    def _end_after_message(self) -> None:
        """Kill the ranks of this machine, whose main threads are blocked in MPI; mpirun then ends the others.

        mpirun alone may wait for a suspended process, for instance with ``-disable-auto-cleanup``.
        """
        time.sleep(SECONDS_TO_FORWARD)
        for pid in self._local_pids:
            with suppress(OSError):  # it has ended already
                os.kill(pid, signal.SIGKILL)
        os._exit(1)
