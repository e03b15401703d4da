"""Part of a stand-in for ``cupy.cuda``: GPUs that are chosen thread by thread, pinned memory, and NCCL over MPI.

Every name exists in CuPy.  Devices are but numbers: all arrays lie in the host's memory.  NCCL's calls are recorded,
and are as strict as NCCL where it would refuse or wait for ever.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np

from autograd.kernel_choice import at_first_use

N_GPUS = 1
CALLS: list[tuple[Any, ...]] = []  # what was asked of streams, memory and NCCL, in order


class CUDARuntimeError(RuntimeError):
    """CuPy's, of the same base."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class _Current(threading.local):
    number = 0  # CUDA puts every thread on the first GPU


_current = _Current()


def _count() -> int:
    if N_GPUS < 0:
        raise CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")
    return N_GPUS


runtime = SimpleNamespace(
    CUDARuntimeError=CUDARuntimeError, getDeviceCount=_count, getDeviceProperties=lambda number: {"name": b"CPU"},
    eventQuery=lambda pointer: 0, driverGetVersion=lambda: 13_000,
)  # fmt: skip


ALIGNMENT = 512  # bytes, of all that CuPy allocates
LIMIT = math.inf  # bytes of the GPU


def aligned(n_bytes: int) -> Any:
    """Memory of the host that is aligned as CuPy's is."""
    buffer = np.empty(n_bytes + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + n_bytes]


class Memory:
    """Memory of the GPU that pools have taken."""

    used = 0

    def __init__(self, size: int) -> None:
        self.size = 0
        if Memory.used + size > LIMIT:
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory", 2)
        self.size, self.buffer = size, aligned(size)
        self.owner = self.buffer.base  # the base of every view
        Memory.used += size

    def __del__(self) -> None:
        Memory.used -= self.size


class MemoryPointer:
    """Where an array begins in memory."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.offset = mem, offset


class Device:
    """The current one, if no number is given."""

    compute_capability = "90"

    def __init__(self, number: int | None = None) -> None:
        self.id = _current.number if number is None else number

    def use(self) -> None:
        if not 0 <= self.id < N_GPUS:
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        _current.number = self.id

    @property
    def pci_bus_id(self) -> str:
        return f"0000:{self.id:02X}:00.0"


def alloc_pinned_memory(n_bytes: int) -> Any:
    CALLS.append(("pinned", n_bytes))
    return bytearray(n_bytes)


class _Nccl:
    """``cupy.cuda.nccl``: types and operations are numbers; data go by MPI when a group ends."""

    available = True
    NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64, NCCL_SUM = 6, 7, 8, 0

    def __init__(self) -> None:
        self.group: list[Any] | None = None

    def get_unique_id(self) -> tuple[int, ...]:
        CALLS.append(("get_unique_id",))
        return (-3, 5, 8)

    def groupStart(self) -> None:  # noqa: N802
        self.group = []

    def groupEnd(self) -> None:  # noqa: N802
        from mpi4py import MPI

        assert self.group is not None
        MPI.Request.Waitall([start() for start in self.group])
        self.group = None

    def NcclCommunicator(self, size: int, identifier: tuple[int, ...], rank: int) -> _NcclCommunicator:  # noqa: N802
        return _NcclCommunicator(self, size, identifier, rank)


class _NcclCommunicator:
    def __init__(self, nccl: _Nccl, size: int, identifier: tuple[int, ...], rank: int) -> None:
        from mpi4py import MPI

        self._world, self._nccl = MPI.COMM_WORLD, nccl
        CALLS.append(("communicator", size, identifier, rank, Device().id))
        places = self._world.allgather((MPI.Get_processor_name(), Device().id))
        assert len(set(places)) == size, "NCCL: Duplicate GPU detected"

    def send(self, address: int, count: int, kind: int, peer: int, stream: int) -> None:
        CALLS.append(("send", count, kind, peer, stream))
        self._in_group(lambda: self._world.Isend(_at(address, count, kind), dest=peer))

    def recv(self, address: int, count: int, kind: int, peer: int, stream: int) -> None:
        CALLS.append(("recv", count, kind, peer, stream))
        self._in_group(lambda: self._world.Irecv(_at(address, count, kind), source=peer))

    def bcast(self, address: int, count: int, kind: int, root: int, stream: int) -> None:
        CALLS.append(("bcast", count, kind, root, stream))
        self._world.Bcast(_at(address, count, kind), root=root)

    def allReduce(self, address: int, to: int, count: int, kind: int, op: int, stream: int) -> None:  # noqa: N802
        CALLS.append(("allReduce", count, kind, op, stream))
        assert address == to
        from mpi4py import MPI

        self._world.Allreduce(MPI.IN_PLACE, _at(to, count, kind))

    def check_async_error(self) -> None:
        """There is none."""

    def _in_group(self, start: Any) -> None:
        assert self._nccl.group is not None, "two ranks that send first and receive then would wait for ever"
        self._nccl.group.append(start)


def _at(address: int, count: int, kind: int) -> Any:
    """The numbers in memory at an address."""
    number = {6: ctypes.c_uint16, 7: ctypes.c_float, 8: ctypes.c_double}[kind]
    return np.ctypeslib.as_array((number * count).from_address(address))


nccl = _Nccl()


def stand_in_for_cupy() -> Any:
    """The whole stand-in, as the module "cupy" from now on, and its "cupy.cuda.nccl", which has to be imported.

    Nothing registers the CUDA kernels, which cannot run on it.
    """
    at_first_use.clear()
    path = Path(__file__).parents[1] / "autograd" / "fake_cupy.py"
    spec = importlib.util.spec_from_file_location("cupy", path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["cupy"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["cupy"])
    sys.modules["cupy.cuda.nccl"] = cast(ModuleType, nccl)
    return sys.modules["cupy"]
