"""The sum of gradients that lie on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from parallel.communicator import WHOLE, Communicator
from parallel.host_reducer import HostReducer

PINNED_BYTES = 64 << 20  # size of the pinned host buffer; arrays are copied through it in pieces


class DeviceReducer:
    """A reducer of arrays on GPUs without NCCL (see ``GradientReducer``).

    Every rank gets the whole sum and updates all values.

    Args:
        cupy: the module ``cupy``.
        allreduce: a function that replaces a flat array on the GPU with its sum over ranks, and waits for it.
        is_idle: whether this rank has no gradients to add.
    """

    buckets: Sequence[slice] = WHOLE
    pieces: Sequence[slice] = WHOLE
    seconds_waited = 0.0  # not measured: the libraries wait internally

    def __init__(
        self,
        world: Communicator,
        cupy: Any,
        allreduce: Callable[[Any], None],
        description: str,
        why_not_captured: str,
        *,
        is_idle: bool,
    ) -> None:
        self.description = description
        self.why_not_captured: str | None = why_not_captured
        self._world, self._cupy, self._is_idle, self._allreduce = world, cupy, is_idle, allreduce

    def allocate(self, n: int, dtype: Any) -> tuple[Any, Any]:
        """Return two arrays on this rank's GPU."""
        self._gradients = self._cupy.zeros(n, dtype)
        return self._cupy.zeros(n, dtype), self._gradients

    def begin_sum(self, bucket: slice, wait: Callable[[], None]) -> None:
        """Return at once: a sum now would make the backward pass wait."""

    def reduce_scatter(self) -> None:
        """Replace all gradients with their sum over ranks."""
        if self._is_idle:
            self._gradients[...] = 0
        self._allreduce(self._gradients)

    def map_shards(self, function: Callable[[Any], Any], array: Any) -> Any:
        return function(array)

    def allreduce(self, number: Any) -> float:
        return self._world.allreduce(float(number))

    def wait(self, end: Any) -> None:
        end.synchronize()

    def all_gather(self, low_precision: Any | None = None, vectors: Any | None = None) -> None:
        """Return at once: every rank has updated all values."""

    def complete(self) -> None:
        """Return at once: every rank has all values."""

    def gather(self, shard: Any) -> Any:
        return shard


class MpiTransport:
    """A transport through an MPI library that reads the memory of GPUs.

    MPI does not wait until the GPU has written an array, so each call synchronises the stream first.
    """

    def __init__(self, cupy: Any, world: Communicator) -> None:
        self.rank, self.size = world.rank, world.size
        self._cuda, self._world = cupy.cuda, world

    def sendrecv_array(self, sent: Any, received: Any, partner: int) -> None:
        self._cuda.get_current_stream().synchronize()
        self._world.sendrecv_array(sent, received, partner)

    def allreduce_array(self, array: Any) -> None:
        """Sum ``array`` over all ranks, in place, in the order that the library chooses."""
        self._cuda.get_current_stream().synchronize()
        self._world.allreduce_array(array)


class PinnedAllreduce:
    """A sum over ranks in host memory: an array is copied from the GPU, summed, and copied back, piece by piece."""

    def __init__(self, cupy: Any, host: HostReducer) -> None:
        self._cuda, self._host = cupy.cuda, host
        self._pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(PINNED_BYTES), np.uint8, PINNED_BYTES)
        self._values = self._gradients = np.empty(0)

    def __call__(self, flat: Any) -> None:
        """Sum ``flat`` over ranks, in place."""
        n = min(flat.size, PINNED_BYTES // flat.dtype.itemsize)
        if (len(self._values), self._values.dtype) != (n, flat.dtype):
            self._values, self._gradients = self._host.allocate(n, flat.dtype)
        for start in range(0, flat.size, n):
            piece = flat[start : start + n]
            pinned = self._pinned[: piece.nbytes].view(piece.dtype)
            piece.get(out=pinned)
            self._gradients[: len(pinned)], self._gradients[len(pinned) :] = pinned, 0
            self._host.reduce_scatter()
            for shard in self._host.pieces:
                self._values[shard] = self._gradients[shard]
            self._host.all_gather()
            pinned[...] = self._values[: len(pinned)]
            piece.set(pinned)
            self._cuda.get_current_stream().synchronize()  # the pinned memory may be written again
