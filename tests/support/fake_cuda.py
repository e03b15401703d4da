"""Part of a stand-in for ``cupy.cuda``: GPUs that are chosen thread by thread, pinned memory, and NCCL over MPI.

Every name exists in CuPy.  Devices are but numbers: all arrays lie in the host's memory.
"""

import importlib
import math
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
from fake_nccl import Nccl

from autograd.kernel_registry import at_first_use

N_GPUS = 1
CALLS: list[tuple[Any, ...]] = []  # what was asked of streams, memory and NCCL, in order
NEVER_REACHED: set[int] = set()  # addresses of events behind a sum that waits for ever


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
    CUDARuntimeError=CUDARuntimeError,
    getDeviceCount=_count,
    getDeviceProperties=lambda number: {"name": b"CPU", "l2CacheSize": 512},
    memGetInfo=lambda: (min(2 * 10**9, LIMIT - Memory.used), 8 * 10**9),
    eventQuery=lambda pointer: 600 if pointer in NEVER_REACHED else 0,
    driverGetVersion=lambda: 13_000,
)


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
        type(self).used -= self.size  # at the end of a process the module's names are gone


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


nccl = Nccl(CALLS, lambda: Device().id)


def stand_in_for_cupy() -> Any:
    """The whole stand-in, as the module "cupy" from now on, and its "cupy.cuda.nccl", which has to be imported.

    Nothing registers the CUDA kernels, which cannot run on it.
    """
    at_first_use("cuda", lambda: None)
    sys.modules["cupy"] = importlib.import_module("fake_cupy")
    importlib.import_module("fake_streams").reset()
    sys.modules["cupy.cuda.nccl"] = cast(ModuleType, nccl)
    return sys.modules["cupy"]
