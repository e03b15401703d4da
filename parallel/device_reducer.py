"""The sum of gradients that lie on GPUs, through host memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from parallel.communicator import WHOLE, Communicator
from parallel.host_reducer import HostReducer

PINNED_BYTES = 64 << 20  # size of the pinned host buffer; arrays are copied through it in pieces


class DeviceReducer:
    """A reducer of arrays on GPUs without NCCL (see ``GradientReducer``).

    Every rank gets the whole sum and updates all values.  An array is copied from the GPU to host memory, summed there,
    and copied back, piece by piece.

    Args:
        cupy: the module ``cupy``.
        host: the reducer of arrays in host memory.
        is_idle: whether this rank has no gradients to add.
    """

    buckets: Sequence[slice] = WHOLE
    pieces: Sequence[slice] = WHOLE
    seconds_waited = 0.0  # not measured: the time would include that of copies
    why_not_captured: str | None = "gradients travel through pinned host memory, which cannot be part of it"

    def __init__(self, world: Communicator, cupy: Any, host: HostReducer, description: str, *, is_idle: bool) -> None:
        self.description = description
        self._world, self._cupy, self._host, self._is_idle = world, cupy, host, is_idle
        self._pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(PINNED_BYTES), np.uint8, PINNED_BYTES)

    def allocate(self, n: int, dtype: Any) -> tuple[Any, Any]:
        """Return two arrays on this rank's GPU."""
        self._gradients = self._cupy.zeros(n, dtype)
        self._n_at_once = min(n, PINNED_BYTES // self._gradients.dtype.itemsize)
        self._host_values, self._host_gradients = self._host.allocate(self._n_at_once, dtype)
        return self._cupy.zeros(n, dtype), self._gradients

    def begin_sum(self, bucket: slice, wait: Callable[[], None]) -> None:
        """Return at once: a sum now would make the backward pass wait."""

    def reduce_scatter(self) -> None:
        """Replace all gradients with their sum over ranks."""
        if self._is_idle:
            self._gradients[...] = 0
        for start in range(0, self._gradients.size, self._n_at_once):
            self._sum(self._gradients[start : start + self._n_at_once])

    def _sum(self, piece: Any) -> None:
        pinned = self._pinned[: piece.nbytes].view(piece.dtype)
        piece.get(out=pinned)
        self._host_gradients[: len(pinned)], self._host_gradients[len(pinned) :] = pinned, 0
        self._host.reduce_scatter()
        for shard in self._host.pieces:
            self._host_values[shard] = self._host_gradients[shard]
        self._host.all_gather()
        pinned[...] = self._host_values[: len(pinned)]
        piece.set(pinned)
        self._cupy.cuda.get_current_stream().synchronize()  # the pinned memory may be written again

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
