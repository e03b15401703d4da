"""The sum of gradients in host memory: in place where ranks share memory, by messages where they do not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from parallel.communicator import ELEMENTS_AT_ONCE, WHOLE, Communicator, shard_of_rank
from parallel.exact_sum import ExactSum, FlatArray
from parallel.shared_memory import NoSharedMemoryError, allocate_shared


class HostReducer:
    """A reducer of arrays in host memory (see ``GradientReducer``).

    Within a node, ranks share memory: each rank sums its shard of the node's gradients in place, and updates its shard
    of the node's one array of values.  A rank receives the sums of another node from one rank of that node.  So a
    node sends each sum and each updated value to another node only once.

    Args:
        n_working: number of ranks that have gradients to add; these are the first ranks.
        order: a phrase about the order of additions, for ``description``.
        rounds: whether gradients are sent from node to node in bfloat16.
        n_threads: threads that add.
    """

    buckets: Sequence[slice] = WHOLE
    pieces: Sequence[slice]  # one, the shard
    description: str
    why_not_captured: str | None = "gradients lie in the host's memory"

    def __init__(
        self, world: Communicator, n_working: int, order: str, *, rounds: bool = False, n_threads: int = 1
    ) -> None:
        self.seconds_waited = 0.0
        self._world, self._n_working, self._order, self._rounds = world, n_working, order, rounds
        self._executor = ThreadPoolExecutor(n_threads, thread_name_prefix="sum")
        self._n_threads = n_threads

    def allocate(self, n: int, dtype: Any) -> tuple[FlatArray, FlatArray]:
        """Return values and gradients, in memory that the ranks of a node share if the system allows it.

        Raises: ValueError if gradients that are not float32 are to be sent in bfloat16.
        """
        if self._rounds and np.dtype(dtype) != np.float32:
            raise ValueError(f"HostReducer: only float32 is sent in bfloat16; got gradients of {np.dtype(dtype)}")
        world = self._world
        values, gradients, obstacle = self._allocate_for_node(n, dtype)
        allocations = world.allgather((tuple(gradients), obstacle))
        nodes = list(dict.fromkeys(ranks for ranks, _ in allocations))
        obstacles = [obstacle for _, obstacle in allocations if obstacle]
        self.description = f"gradients travel {self._transport(nodes, obstacles)}; {self._order}"
        self._values, self._shares_memory = values, len(gradients) > 1
        self._sum = ExactSum(world, nodes, self._n_working, gradients, ELEMENTS_AT_ONCE, rounds=self._rounds)
        shard = self._sum.shards[world.rank]
        self.pieces = (shard,)
        n_mine, n_threads = shard.stop - shard.start, self._n_threads
        self._slices = [shard_of_rank(thread, n_threads, n_mine) for thread in range(n_threads)]
        return values, gradients[world.rank]

    def _allocate_for_node(self, n: int, dtype: Any) -> tuple[FlatArray, Mapping[int, FlatArray], str | None]:
        """Return values, gradients by rank, and the obstacle to sharing memory.

        The obstacle is None if memory is shared or the node has one rank.
        """
        node, obstacle = self._world.node, None
        if node.size > 1:
            try:
                return *allocate_shared(node, node.allgather(self._world.rank), n, dtype), None
            except NoSharedMemoryError as error:
                obstacle = str(error)
        return np.zeros(n, dtype), {self._world.rank: np.zeros(n, dtype)}, obstacle

    def _transport(self, nodes: list[tuple[int, ...]], obstacles: list[str]) -> str:
        world = self._world
        if len(nodes) == 1:
            return "through shared memory" + (", where nothing is rounded to bfloat16" if self._rounds else "")
        transport = "through shared memory on a machine and " if len(nodes) < world.size else ""
        transport += f"by messages of {world.library}"
        if world.local_size < world.size:
            transport += " between machines"
        if self._rounds:
            transport += ", rounded to bfloat16"
        return transport + (f", because ranks cannot share memory ({obstacles[0]})" if obstacles else "")

    def begin_sum(self, bucket: slice, wait: Callable[[], None]) -> None:
        """Return at once: no rank adds before all have their gradients."""

    def reduce_scatter(self) -> None:
        """Wait until all ranks have their gradients, then sum this rank's shard of them."""
        start = time.perf_counter()
        self._world.barrier()
        self.seconds_waited += time.perf_counter() - start
        if self._sum.schedule:
            self._sum.sum_by_messages()
        else:
            list(self._executor.map(self._sum.sum_in_place, self._slices))

    def allreduce(self, number: Any) -> float:
        return self._world.allreduce(float(number))

    def wait(self, end: Any) -> None:
        """Return at once: each call has waited for its sums."""

    def all_gather(self, low_precision: Any | None = None, vectors: Any | None = None) -> None:
        """Copy the shards of other nodes, and wait until no rank reads this rank's gradients any more."""
        self._sum.exchange_shards(self._values)
        if self._shares_memory:
            self._world.node.barrier()
        if low_precision is not None:  # other ranks have changed the rest of the values
            low_precision[...] = self._values.astype(low_precision.dtype)

    def gather(self, shard: FlatArray) -> FlatArray | None:
        return self._world.gatherv_array(shard, [other.stop - other.start for other in self._sum.shards])

    def complete(self) -> None:
        """Return at once: every rank has all values."""

    def map_shards(self, function: Callable[[FlatArray], FlatArray], array: FlatArray) -> FlatArray:
        return np.concatenate(self._world.allgather(function(array[self.pieces[0]])))
