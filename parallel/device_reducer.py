"""The sum of gradients that lie on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from parallel.communicator import WHOLE, Communicator, Value
from parallel.host_reducer import HostReducer
from parallel.nccl import NcclTransport

BUCKET = 1 << 23  # elements summed at once by NCCL: a smaller sum takes little less time, a larger one begins later
PINNED_BYTES = 64 << 20  # size of the pinned host buffer; arrays are copied through it in pieces


class DeviceReducer:
    """A reducer of arrays on GPUs (see ``GradientReducer``): every rank gets the whole sum and updates all values.

    NCCL sums on a stream of its own, bucket by bucket, while the backward pass goes on.  Within a capture these sums
    become part of the graph.

    Args:
        cupy: the module ``cupy``.
        allreduce: a function that replaces a flat array on the GPU with its sum over ranks.
        nccl: the transport of ``allreduce`` if that is NCCL; None if ``allreduce`` waits until its sum is finished.
        is_idle: whether this rank has no gradients to add.
    """

    buckets: Sequence[slice] = WHOLE
    shard = slice(None)
    seconds_waited = 0.0  # not measured: the libraries wait internally

    def __init__(
        self,
        world: Communicator,
        cupy: Any,
        allreduce: Callable[[Any], None],
        nccl: NcclTransport | None,
        description: str,
        why_not_captured: str | None,
        *,
        is_idle: bool,
    ) -> None:
        self.description = description
        self._world, self._cupy, self._is_idle = world, cupy, is_idle
        self._allreduce, self._nccl = allreduce, nccl
        self._stream = None if nccl is None else cupy.cuda.Stream(non_blocking=True)
        self._n_begun = 0  # buckets of this update
        self.why_not_captured = why_not_captured

    def allocate(self, n: int, dtype: Any) -> tuple[Any, Any]:
        """Return two arrays on this rank's GPU."""
        self._gradients = self._cupy.zeros(n, dtype)
        if self._nccl is not None:
            self.buckets = [slice(start, min(n, start + BUCKET)) for start in range(0, n, BUCKET)]
        return self._cupy.zeros(n, dtype), self._gradients

    def begin_sum(self, bucket: slice, wait: Callable[[], None]) -> None:
        """Enqueue the sum of a bucket on the stream of sums; without NCCL the sum begins in ``reduce_scatter``."""
        if self._stream is not None:
            self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
            with self._stream:
                wait()
                self._allreduce(self._gradients[bucket])
            self._n_begun += 1

    def reduce_scatter(self) -> None:
        """Replace all gradients with their sum over ranks."""
        if self._is_idle:
            self._gradients[...] = 0
        if self._stream is None:
            self._allreduce(self._gradients)
            return
        for bucket in self.buckets[self._n_begun :]:
            self.begin_sum(bucket, lambda: None)
        self._n_begun = 0
        self._cupy.cuda.get_current_stream().wait_event(self._stream.record())

    def allreduce(self, number: Any) -> Any:
        """Return the sum of one number from each rank.

        With NCCL it stays on the GPU.  Unless its stream is captured, the call waits for the GPU.
        """
        if self._nccl is None:
            return self._world.allreduce(float(number))
        total = self._sum_along_tree(number, self._nccl)
        stream = self._cupy.cuda.get_current_stream()
        if not stream.is_capturing():
            self._nccl.wait(stream.record())
        return total

    def _sum_along_tree(self, number: Any, nccl: NcclTransport) -> Any:
        """Add the ranks' numbers along a binary tree over the ranks, which is that of their gradients.

        NCCL chooses the order in which it adds.  Here it only collects the numbers: it adds zeros to each, which
        changes no bit in any order.
        """
        numbers = self._cupy.zeros(1 << (nccl.size - 1).bit_length())
        numbers[nccl.rank] = number
        nccl.allreduce_array(numbers)
        while len(numbers) > 1:
            numbers = numbers[::2] + numbers[1::2]
        return numbers[0]

    def wait(self, end: Any) -> None:
        """Wait for an event behind sums; see ``GradientReducer``."""
        if self._nccl is None:
            end.synchronize()
        else:
            self._nccl.wait(end)

    def all_gather(self) -> None:
        """Return at once: every rank has updated all values."""

    def gather(self, shard: Any) -> Any:
        return shard

    def allgather_of_shards(self, value: Value) -> list[Value]:
        """Return a list that contains only this value, because all ranks have the same shard."""
        return [value]


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
            self._values[self._host.shard] = self._gradients[self._host.shard]
            self._host.all_gather()
            pinned[...] = self._values[: len(pinned)]
            piece.set(pinned)
            self._cuda.get_current_stream().synchronize()  # the pinned memory may be written again
