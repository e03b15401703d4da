"""The transport between GPUs through NCCL, NVIDIA's library."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from parallel.communicator import Communicator


def load_nccl(cupy: Any) -> Any:
    """Import and return CuPy's module of NCCL, which ``import cupy`` does not load (github.com/cupy/cupy/issues/8710).

    If the library is missing, the module's ``available`` is False and CuPy warns how to install it.
    """
    return importlib.import_module(f"{cupy.__name__}.cuda.nccl")


class NcclTransport:
    """A transport between GPUs; every rank must have a GPU of its own.

    All calls are asynchronous, in the current stream of CuPy.  If a rank does not call, the watchdog reports it at the
    end of the update, where ranks wait in MPI.

    Args:
        cupy: the module ``cupy``; the rank's GPU must have been chosen.
        world: the communicator that sends NCCL's id to all ranks.
    """

    def __init__(self, cupy: Any, world: Communicator) -> None:
        self.rank, self.size = world.rank, world.size
        self._cuda, self._nccl = cupy.cuda, load_nccl(cupy)
        identifier = world.bcast(self._nccl.get_unique_id() if world.rank == 0 else None)
        self._communicator = self._nccl.NcclCommunicator(self.size, identifier, self.rank)

    def sendrecv_array(self, sent: Any, received: Any, partner: int) -> None:
        """Send and receive as a group, so that neither rank waits for the other to receive."""
        self._nccl.groupStart()
        self._communicator.send(sent.data.ptr, sent.size, self._type(sent), partner, self._stream())
        self._communicator.recv(received.data.ptr, received.size, self._type(received), partner, self._stream())
        self._nccl.groupEnd()

    def bcast_array(self, array: Any) -> None:
        """Overwrite ``array`` with the array of rank 0."""
        self._communicator.bcast(array.data.ptr, array.size, self._type(array), 0, self._stream())

    def allreduce_array(self, array: Any) -> None:
        """Sum ``array`` over all ranks, in place, along the rings or trees that NCCL chooses."""
        address = array.data.ptr
        self._communicator.allReduce(
            address, address, array.size, self._type(array), self._nccl.NCCL_SUM, self._stream()
        )

    def _type(self, array: Any) -> Any:
        name = "float16" if array.dtype == np.uint16 else array.dtype.name  # bits are copied, whatever their type
        return getattr(self._nccl, f"NCCL_{name.upper()}")

    def _stream(self) -> Any:
        return self._cuda.get_current_stream().ptr
