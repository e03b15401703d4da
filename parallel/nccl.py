"""Sums of arrays on GPUs through NCCL, NVIDIA's library for traffic between them."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from parallel.communicator import Communicator

PIECE = 1 << 25  # elements summed at once: so large that starting a message does not count


def load_nccl(cupy: Any) -> Any:
    """Import and return CuPy's module of NCCL, which ``import cupy`` does not load (github.com/cupy/cupy/issues/8710).

    Where the library is missing, its ``available`` is False and CuPy warns how to install it.
    """
    return importlib.import_module(f"{cupy.__name__}.cuda.nccl")


class Nccl:
    """A messenger between GPUs, of which every rank must have one of its own.

    All calls are asynchronous, in the current stream of CuPy.  A rank that does not come is noticed where ranks speak
    through MPI, at the end of the update.

    Args:
        cupy: the module; the rank's GPU must have been chosen.
        world: over which the ranks agree on an id.
    """

    def __init__(self, cupy: Any, world: Communicator) -> None:
        self.rank, self.size = world.rank, world.size
        self._cuda, self._nccl = cupy.cuda, load_nccl(cupy)
        identifier = world.broadcast(self._nccl.get_unique_id() if world.rank == 0 else None)
        self._communicator = self._nccl.NcclCommunicator(self.size, identifier, self.rank)

    def sum_in_any_order(self, array: Any) -> None:
        """NCCL's own sum over all ranks, in place; rings or trees, as it likes."""
        address = array.data.ptr
        self._communicator.allReduce(
            address, address, array.size, self._type(array), self._nccl.NCCL_SUM, self._stream()
        )

    def send_and_receive(self, outgoing: Any, incoming: Any, partner: int) -> None:
        """Send and receive as a group, so that neither waits for the other to receive."""
        self._nccl.groupStart()
        self._communicator.send(outgoing.data.ptr, outgoing.size, self._type(outgoing), partner, self._stream())
        self._communicator.recv(incoming.data.ptr, incoming.size, self._type(incoming), partner, self._stream())
        self._nccl.groupEnd()

    def broadcast_array(self, array: Any) -> None:
        """Overwrite ``array`` by rank 0's."""
        self._communicator.bcast(array.data.ptr, array.size, self._type(array), 0, self._stream())

    def _type(self, array: Any) -> Any:
        name = "float16" if array.dtype == np.uint16 else array.dtype.name  # moved as they are, bits are bits
        return getattr(self._nccl, f"NCCL_{name.upper()}")

    def _stream(self) -> Any:
        return self._cuda.get_current_stream().ptr
