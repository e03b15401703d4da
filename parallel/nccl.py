"""The transport between GPUs through NCCL, NVIDIA's library."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from typing import Any

from parallel.communicator import Communicator

_NOT_READY = 600  # cudaErrorNotReady
_CAPTURES_FROM = 20_900  # NCCL 2.9: docs.nvidia.com/deeplearning/nccl, "Using NCCL with CUDA Graphs"
_SECONDS_BETWEEN_QUERIES = 1e-4


def load_nccl(cupy: Any) -> Any:
    """Import and return CuPy's module of NCCL, which ``import cupy`` does not load (github.com/cupy/cupy/issues/8710).

    If the library is missing, the module's ``available`` is False and CuPy warns how to install it.
    """
    return importlib.import_module(f"{cupy.__name__}.cuda.nccl")


class NcclTransport:
    """A transport between GPUs; every rank must have a GPU of its own.

    All sums are asynchronous, in the current stream of CuPy; ``wait`` waits for them.  ``world`` limits the time of
    calls that wait for other ranks.  If the stream is captured as a CUDA graph, the calls become part of the graph.
    Then all ranks must capture the same calls, and launch their graphs in the same order.

    Args:
        cupy: the module ``cupy``; the rank's GPU must have been chosen.
        world: the communicator that sends NCCL's id to all ranks.
    """

    def __init__(self, cupy: Any, world: Communicator) -> None:
        self.rank, self.size = world.rank, world.size
        self._cuda, self._nccl, self._world = cupy.cuda, load_nccl(cupy), world
        identifier = world.bcast(self._nccl.get_unique_id() if world.rank == 0 else None)
        with world.waiting("ncclCommInitRank"):
            self._communicator = self._nccl.NcclCommunicator(self.size, identifier, self.rank)

    @property
    def why_not_captured(self) -> str | None:
        """The reason why a CUDA graph cannot contain these calls; None if it can."""
        version = self._nccl.get_version()
        return None if version >= _CAPTURES_FROM else f"NCCL before 2.9 cannot be captured (its version is {version})"

    def sendrecv_array(self, sent: Any, received: Any, partner: int) -> None:
        """Send and receive as a group, so that neither rank waits for the other to receive; skip empty arrays."""
        calls = (self._communicator.send, sent), (self._communicator.recv, received)
        calls_with_data = [(call, array) for call, array in calls if array.size]
        if not calls_with_data:
            return
        with self._world.waiting("ncclGroupEnd"):  # two ranks connect when they first exchange messages
            self._nccl.groupStart()
            for call, array in calls_with_data:
                call(array.data.ptr, array.size, self._type(array), partner, self._stream())
            self._nccl.groupEnd()

    def allreduce_array(self, array: Any) -> None:
        """Sum ``array`` over all ranks, in place, along the rings or trees that NCCL chooses."""
        address = array.data.ptr
        with self._world.waiting("ncclAllReduce"):
            self._communicator.allReduce(
                address, address, array.size, self._type(array), self._nccl.NCCL_SUM, self._stream()
            )

    def reduce_scatter_array(self, array: Any) -> None:
        """Cut ``array`` into ``size`` equal shards; sum this rank's shard over ranks in the order that NCCL chooses."""
        n = array.size // self.size
        own = array[self.rank * n : (self.rank + 1) * n].data.ptr
        with self._world.waiting("ncclReduceScatter"):
            self._communicator.reduceScatter(
                array.data.ptr, own, n, self._type(array), self._nccl.NCCL_SUM, self._stream()
            )

    def allgather_arrays(self, arrays: Sequence[Any]) -> None:
        """Cut each array into ``size`` equal shards; copy each rank's shard to all ranks, in place."""
        with self._world.waiting("ncclAllGather"):
            self._nccl.groupStart()
            for array in arrays:
                n = array.size // self.size
                own = array[self.rank * n : (self.rank + 1) * n].data.ptr
                self._communicator.allGather(own, array.data.ptr, n, self._type(array), self._stream())
            self._nccl.groupEnd()

    def wait(self, end: Any) -> None:
        """Wait until this rank's GPU has reached the event ``end``, which was recorded after sums over ranks.

        Raises: CuPy's NcclError if NCCL reports an error; CUDARuntimeError if the GPU does.
        """
        with self._world.waiting("a sum by NCCL"):
            while self._cuda.runtime.eventQuery(end.ptr) == _NOT_READY:
                self._check()
                time.sleep(_SECONDS_BETWEEN_QUERIES)
            end.synchronize()  # returns at once, or raises the GPU's error

    def _check(self) -> None:
        try:
            self._communicator.check_async_error()
        except Exception as error:
            error.add_note("(NCCL reported it while this rank waited for a sum; with NCCL_DEBUG=WARN it prints more)")
            raise

    def _type(self, array: Any) -> Any:
        name = "float16" if array.itemsize == 2 else array.dtype.name  # bits are copied, whatever their type
        return getattr(self._nccl, f"NCCL_{name.upper()}")

    def _stream(self) -> Any:
        return self._cuda.get_current_stream().ptr
