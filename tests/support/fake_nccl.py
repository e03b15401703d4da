"""A stand-in for ``cupy.cuda.nccl``: data go by MPI, and calls are as strict as NCCL where it would refuse or hang.

Within a capture a call is only kept; each launch of the graph moves what is in the same memory then.  Before anything
moves, ranks compare their calls: kind, sizes, types, and whether and where they are part of a graph.  NCCL would mix up
calls that differ, or wait for ever.  If the others do not come within ``patience``, the GPU is stuck, as in NCCL: the
host goes on, but no event recorded from then on is ever reached.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Facts = list[tuple[Any, ...]]  # about calls, which must be the same on all ranks that take part


class NcclError(RuntimeError):
    """CuPy's, of the same base."""


class Nccl:
    """Types and operations are numbers.  ``calls`` records what was asked; ``device`` returns the rank's GPU."""

    available = True
    NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64, NCCL_SUM = 6, 7, 8, 0
    version = 22_705
    patience = math.inf
    error = ""  # reported once the GPU is stuck

    def __init__(self, calls: list[tuple[Any, ...]], device: Callable[[], int]) -> None:
        self.calls, self.device = calls, device
        self.group: list[tuple[NcclCommunicator, int, tuple[Any, ...], Callable[[], Any]]] | None = None
        self.is_stuck = False

    def get_version(self) -> int:
        return self.version

    def get_unique_id(self) -> tuple[int, ...]:
        self.calls.append(("get_unique_id",))
        return (-3, 5, 8)

    def groupStart(self) -> None:  # noqa: N802
        self.group = []

    def groupEnd(self) -> None:  # noqa: N802
        assert self.group is not None
        group, self.group = self.group, None
        if not group:  # calls of all ranks were enqueued one by one
            return
        communicator, stream = group[0][:2]
        rank = communicator.world.Get_rank()
        facts: dict[int, Facts] = {}
        for _, _, message, _ in group:
            _, sender, receiver, *_ = message
            facts.setdefault(sender + receiver - rank, []).append(message)
        facts = {peer: sorted(messages) for peer, messages in facts.items()}
        communicator.enqueue(facts, stream, lambda: communicator.mpi.Request.Waitall([start() for *_, start in group]))

    def NcclCommunicator(self, size: int, identifier: tuple[int, ...], rank: int) -> NcclCommunicator:  # noqa: N802
        return NcclCommunicator(self, size, identifier, rank)


class NcclCommunicator:
    def __init__(self, nccl: Nccl, size: int, identifier: tuple[int, ...], rank: int) -> None:
        from mpi4py import MPI

        self.mpi, self.world, self._facts, self._nccl = MPI, MPI.COMM_WORLD, MPI.COMM_WORLD.Dup(), nccl
        self._n_captured = [0] * size  # calls with each rank
        nccl.calls.append(("communicator", size, identifier, rank, nccl.device()))
        places = self.world.allgather((MPI.Get_processor_name(), nccl.device()))
        assert len(set(places)) == size, "NCCL: Duplicate GPU detected"

    def send(self, address: int, count: int, kind: int, peer: int, stream: int) -> None:
        self._nccl.calls.append(("send", count, kind, peer, stream))
        message = ("message", self.world.Get_rank(), peer, count, kind)
        self._in_group(stream, message, lambda: self.world.Isend(_at(address, count, kind), dest=peer))

    def recv(self, address: int, count: int, kind: int, peer: int, stream: int) -> None:
        self._nccl.calls.append(("recv", count, kind, peer, stream))
        message = ("message", peer, self.world.Get_rank(), count, kind)
        self._in_group(stream, message, lambda: self.world.Irecv(_at(address, count, kind), source=peer))

    def _in_group(self, stream: int, message: tuple[Any, ...], start: Callable[[], Any]) -> None:
        assert self._nccl.group is not None, "two ranks that send first and receive then would wait for ever"
        self._nccl.group.append((self, stream, message, start))

    def allReduce(self, address: int, to: int, count: int, kind: int, op: int, stream: int) -> None:  # noqa: N802
        assert address == to
        self._of_all(
            ("allReduce", count, kind, op),
            stream,
            lambda: self.world.Allreduce(self.mpi.IN_PLACE, _at(to, count, kind)),
        )

    def reduceScatter(self, address: int, to: int, count: int, kind: int, op: int, stream: int) -> None:  # noqa: N802
        size, rank = self.world.Get_size(), self.world.Get_rank()
        whole, own = _at(address, size * count, kind), _at(to, count, kind)
        assert to == address + rank * own.nbytes

        def move() -> None:
            self.world.Allreduce(self.mpi.IN_PLACE, sums := whole.copy())
            own[...] = sums[rank * count : (rank + 1) * count]

        self._of_all(("reduceScatter", count, kind, op), stream, move)

    def allGather(self, address: int, to: int, count: int, kind: int, stream: int) -> None:  # noqa: N802
        whole = _at(to, self.world.Get_size() * count, kind)
        assert address == to + self.world.Get_rank() * count * whole.itemsize
        self._of_all(("allGather", count, kind), stream, lambda: self.world.Allgather(self.mpi.IN_PLACE, whole))

    def _of_all(self, call: tuple[Any, ...], stream: int, move: Callable[[], None]) -> None:
        self._nccl.calls.append((*call, stream))
        rank = self.world.Get_rank()
        self.enqueue({peer: [call] for peer in range(self.world.Get_size()) if peer != rank}, stream, move)

    def check_async_error(self) -> None:
        if self._nccl.is_stuck and self._nccl.error:
            raise NcclError(self._nccl.error)

    def enqueue(self, facts: dict[int, Facts], stream: int, move: Callable[[], None]) -> None:
        """Move data now, or at each launch of the graph; ``facts`` are about the calls with each other rank."""
        import fake_streams

        assert stream == fake_streams.get_current_stream().ptr
        for peer in facts if fake_streams.is_capturing() else ():
            self._n_captured[peer] += 1
            facts[peer].append(("captured", self._n_captured[peer]))

        def run() -> None:
            if not self._nccl.is_stuck and self._compare(facts):
                move()

        fake_streams.do(run, stream)

    def _compare(self, facts: dict[int, Facts]) -> bool:
        """Return False if the others do not come."""
        sent = [self._facts.isend(of_peer, peer) for peer, of_peer in facts.items()]
        received = {peer: self._facts.irecv(source=peer) for peer in facts}
        start = time.monotonic()
        for peer, request in received.items():
            while not (found := request.test())[0]:
                if time.monotonic() > start + self._nccl.patience:
                    self._nccl.is_stuck = True
                    return False
                time.sleep(1e-4)
            assert found[1] == facts[peer], f"NCCL: {facts[peer]}, but rank {peer}: {found[1]}"
        for request in sent:
            request.wait()
        return True


def _at(address: int, count: int, kind: int) -> Any:
    """The numbers in memory at an address."""
    number = {6: ctypes.c_uint16, 7: ctypes.c_float, 8: ctypes.c_double}[kind]
    return np.ctypeslib.as_array((number * count).from_address(address))
