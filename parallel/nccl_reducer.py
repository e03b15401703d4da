"""The sum of gradients by NCCL, during the backward pass, and Adam sharded over GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from parallel.communicator import SumOrder, shard_of_rank
from parallel.exact_sum import exact_sum, sum_by_machines
from parallel.nccl import NcclTransport

BUCKET = 1 << 23  # elements summed at once: a smaller sum takes little less time, a larger one begins later
ELEMENTS_AT_ONCE = 1 << 24  # in one message of an exact sum: so many that its latency does not count

# Pieces consist of whole runs.  One block of the kernel of the norm sums a run; a test compares the two numbers.
RUN = 1 << 14  # elements


class NcclReducer:
    """A reducer of arrays on GPUs that NCCL sums (see ``GradientReducer``).

    The flat arrays are cut into buckets, and each bucket into equal pieces, one for each rank.  Buckets are summed on a
    second stream while the backward pass goes on.  Each rank gets the sums of its pieces, updates its pieces of the
    values, and has moments of its pieces only.  Then all ranks get all low-precision weights, and the values that the
    forward pass reads in float32.  Each rank has an array of all values, because validation reads all values in
    float32.  Until ``complete``, the pieces of other ranks in this array may be out of date.  Within a capture all
    calls become part of the graph.

    Args:
        cupy: the module ``cupy``.
        n_working: number of ranks that have gradients to add; these are the first ranks.
        order: "exact" sums by messages along the tree of ranks; "fast" as NCCL chooses.
        n_local: ranks of each machine, if sums of the exact order are first added within machines, else None.
        rounds: whether messages of the exact order round to bfloat16; with ``n_local`` only messages between machines.
    """

    seconds_waited = 0.0  # not measured: NCCL waits internally

    def __init__(
        self,
        cupy: Any,
        nccl: NcclTransport,
        n_working: int,
        order: SumOrder,
        description: str,
        *,
        n_local: int | None,
        rounds: bool,
    ) -> None:
        self._cupy, self._nccl, self._n_working, self._order = cupy, nccl, n_working, order
        self.description, self._n_local, self._rounds = description, n_local, rounds
        self.why_not_captured = nccl.why_not_captured
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._n_begun = 0  # buckets of this update
        self._own_vectors: Any = None

    def allocate(self, n: int, dtype: Any) -> tuple[Any, Any]:
        """Return two arrays on this rank's GPU; their length is a multiple of RUN times the number of ranks."""
        rank, size, self._n = self._nccl.rank, self._nccl.size, n
        n_padded, length = (-(-x // (size * RUN)) * size * RUN for x in (n, BUCKET))
        self.buckets: Sequence[slice] = [
            slice(start, min(n_padded, start + length)) for start in range(0, n_padded, length)
        ]
        pieces = [shard_of_rank(rank, size, bucket.stop - bucket.start) for bucket in self.buckets]
        self.pieces: Sequence[slice] = [
            slice(bucket.start + piece.start, bucket.start + piece.stop)
            for bucket, piece in zip(self.buckets, pieces, strict=True)
        ]
        self._values, self._gradients = self._cupy.zeros(n_padded, dtype), self._cupy.zeros(n_padded, dtype)
        return self._values, self._gradients

    def begin_sum(self, bucket: slice, wait: Callable[[], None]) -> None:
        """Enqueue the sum of a bucket on the stream of sums."""
        self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
        with self._stream:
            wait()
            self._sum(self._gradients[bucket])
        self._n_begun += 1

    def _sum(self, bucket: Any) -> None:
        if self._order == "fast":
            self._nccl.reduce_scatter_array(bucket)
            return
        how = {"n_working": self._n_working, "n_at_once": ELEMENTS_AT_ONCE, "rounds": self._rounds, "xp": self._cupy}
        if self._n_local:
            sum_by_machines(bucket, self._nccl, n_local=self._n_local, **how)
        else:
            exact_sum(bucket, self._nccl, **how).sum_by_messages()

    def reduce_scatter(self) -> None:
        """Begin the sums that have not begun; let the current stream wait for all of them."""
        if self._nccl.rank >= self._n_working:
            self._gradients[...] = 0
        for bucket in self.buckets[self._n_begun :]:
            self.begin_sum(bucket, lambda: None)
        self._n_begun = 0
        self._cupy.cuda.get_current_stream().wait_event(self._stream.record())

    def map_shards(self, function: Callable[[Any], Any], array: Any) -> Any:
        """Apply ``function`` to each rank's pieces of ``array``; see ``GradientReducer``."""
        results = [function(array[piece]) for piece in self.pieces]
        whole, start = self._cupy.zeros(self._nccl.size * sum(map(len, results)), results[0].dtype), 0
        for result in results:  # for more than eight arrays CuPy's concatenate copies addresses from the host
            own = start + self._nccl.rank * len(result)
            whole[own : own + len(result)] = result
            start += self._nccl.size * len(result)
        self._nccl.allreduce_array(whole)  # adds zeros to each number, which changes no bit in any order
        run = len(array) // len(whole)
        return whole[: -(-self._n // run)]  # without the results of the padding

    def allreduce(self, number: Any) -> Any:
        """Return the sum of one number from each rank, on the GPU.

        NCCL only collects the numbers; they are added along a binary tree over the ranks, as gradients are.  Unless the
        current stream is captured, the call waits for the GPU.
        """
        numbers = self._cupy.zeros(1 << (self._nccl.size - 1).bit_length())
        numbers[self._nccl.rank] = number
        self._nccl.allreduce_array(numbers)
        while len(numbers) > 1:
            numbers = numbers[::2] + numbers[1::2]
        self._wait_unless_captured()
        return numbers[0]

    def _wait_unless_captured(self) -> None:
        stream = self._cupy.cuda.get_current_stream()
        if not stream.is_capturing():
            self._nccl.wait(stream.record())

    def wait(self, end: Any) -> None:
        """Wait for an event that was recorded after sums; see ``GradientReducer``."""
        self._nccl.wait(end)

    def all_gather(self, low_precision: Any | None = None, vectors: Any | None = None) -> None:
        """Copy low-precision weights and the values at ``vectors`` to all ranks; if either is None, copy all values."""
        if low_precision is None or vectors is None:
            self._gather(self._values)
            return
        self._gather(low_precision)
        if self._own_vectors is None:
            is_own = np.zeros(len(self._values), bool)
            for piece in self.pieces:
                is_own[piece] = True
            with self._cupy.cuda.using_allocator(self._cupy.get_default_memory_pool().malloc):
                self._own_vectors = self._cupy.asarray(is_own[vectors.get()])
        numbers = self._cupy.where(self._own_vectors, self._values[vectors], 0)
        self._nccl.allreduce_array(numbers)
        self._values[vectors] = numbers

    def complete(self) -> None:
        """Copy every rank's pieces of the values to all ranks; wait for the GPU."""
        self._gather(self._values)
        self._wait_unless_captured()

    def gather(self, shard: Any) -> Any:
        """Return an array with the pieces of all ranks, on every rank."""
        whole, end = self._cupy.zeros(len(self._values), shard.dtype), 0
        for piece in self.pieces:
            start, end = end, end + piece.stop - piece.start
            whole[piece] = shard[start:end]
        self._gather(whole)
        return whole

    def _gather(self, array: Any) -> None:
        self._nccl.allgather_arrays([array[bucket] for bucket in self.buckets])
