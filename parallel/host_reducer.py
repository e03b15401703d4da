"""The sum of gradients in host memory: in place where ranks share memory, by messages where they do not."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from parallel.bfloat16 import round_to_bfloat16, upcast_to_float32
from parallel.communicator import ELEMENTS_AT_ONCE, Communicator, Value, shard_of_rank
from parallel.send_receive_schedule import SendReceive, send_receive_schedule
from parallel.shared_memory import NoSharedMemoryError, allocate_shared
from parallel.tree import FlatArray, add_along_tree, slice_tree, subtrees_within, tree_of


class HostReducer:
    """A reducer of arrays in host memory (see ``GradientReducer``).

    Within a node, ranks share memory: each rank adds its shard of all gradients in place, and updates its shard of
    the one array of values.  One rank of every other node sends it the sums of that node over subtrees.  So a node
    sends each sum and each updated value to another node only once.

    Args:
        n_working: number of ranks that have gradients to add; these are the first ranks.
        order: a phrase about the order of additions, for ``description``.
        rounds: whether gradients are sent from node to node in bfloat16.
        n_threads: threads that add.
    """

    shard: slice
    description: str
    why_not_captured: str | None = "gradients lie in the host's memory"

    def __init__(
        self, world: Communicator, n_working: int, order: str, *, rounds: bool = False, n_threads: int = 1
    ) -> None:
        self.seconds_waited = 0.0
        self._world, self._all, self._order, self._rounds = world, range(n_working), order, rounds
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
        self._values, self._gradients, self._shares_memory = values, gradients[world.rank], len(gradients) > 1
        self._shards = [shard_of_rank(rank, world.size, n) for rank in range(world.size)]
        self.shard = self._shards[world.rank]
        self._schedule: list[SendReceive] = list(send_receive_schedule(nodes, world.rank))
        self._leaves = {range(rank, rank + 1): array for rank, array in gradients.items() if rank in self._all}
        self._subtrees = {rank: subtrees_within(ranks, self._all) for ranks in nodes for rank in ranks}
        self._trees_of_node = [tree_of(subtree, self._leaves, world.rank) for subtree in self._subtrees[world.rank]]
        return self._values, self._gradients

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

    def reduce_scatter(self) -> None:
        """Wait until all ranks have their gradients, then sum this rank's shard of them."""
        start = time.perf_counter()
        self._world.barrier()
        self.seconds_waited += time.perf_counter() - start
        if self._schedule:
            self._sum_by_messages()
        else:
            list(self._executor.map(self._sum_in_place, range(self._n_threads)))

    def allreduce(self, number: Any) -> float:
        """Return the sum of one number from each rank."""
        return self._world.allreduce(float(number))

    def wait(self, end: Any) -> None:
        """Return at once: each call has waited for its sums."""

    def all_gather(self) -> None:
        """Copy the shards of other nodes, and wait until no rank reads this rank's gradients any more."""
        for shards in self._pieces() if self._schedule else []:
            self._exchange_values(shards)
        if self._shares_memory:
            self._world.node.barrier()

    def gather(self, shard: FlatArray) -> FlatArray | None:
        """Concatenate the shards of all ranks on rank 0; return None on the others."""
        whole: FlatArray | None = self._world.gatherv_array(shard, [_length(rank_shard) for rank_shard in self._shards])
        return whole

    def allgather_of_shards(self, value: Value) -> list[Value]:
        """Return every rank's value."""
        return self._world.allgather(value)

    def _sum_in_place(self, thread: int) -> None:
        """Sum one thread's slice of the shard."""
        within = shard_of_rank(thread, self._n_threads, _length(self.shard))
        tree = slice_tree(slice_tree(self._trees_of_node[0], self.shard), within)
        add_along_tree(tree, self._gradients[self.shard][within])

    def _sum_by_messages(self) -> None:
        """Sum the shard piece by piece, on one thread, because messages take longer than additions."""
        n_received = sum(len(self._subtrees[call.partner]) for call in self._schedule if call.receives)
        n_rows = n_received + len(self._trees_of_node)
        buffer = np.empty(n_rows * self._elements_at_once, self._gradients.dtype)
        for shards in self._pieces():
            mine = shards[self._world.rank]
            sums, free = {leaf: gradients[mine] for leaf, gradients in self._leaves.items()}, buffer
            for call in self._schedule:
                subtrees = self._subtrees[call.partner] if call.receives else []
                received, free = _take_rows(free, len(subtrees), _length(mine))
                sent = self._sums_of_node(shards[call.partner], free) if call.sends else free[:0]
                self._exchange_gradients(sent, received, call.partner)
                sums.update(zip(subtrees, received, strict=True))
            add_along_tree(tree_of(self._all, sums, self._world.rank), self._gradients[mine])

    def _sums_of_node(self, shard: slice, buffer: FlatArray) -> FlatArray:
        """Return the sums of another rank's shard over this node's subtrees, one row for each subtree."""
        trees = [slice_tree(tree, shard) for tree in self._trees_of_node]
        if len(trees) == 1 and not isinstance(trees[0], tuple):
            return trees[0]
        rows, _ = _take_rows(buffer, len(trees), _length(shard))
        for tree, row in zip(trees, rows, strict=True):
            add_along_tree(tree, row)
        return rows

    def _exchange_gradients(self, sent: FlatArray, received: FlatArray, partner: int) -> None:
        if not self._rounds:
            self._world.sendrecv_array(sent, received, partner)
            return
        bits, received_bits = np.empty(sent.size, np.uint16), np.empty(received.size, np.uint16)
        round_to_bfloat16(sent.reshape(-1), bits)
        self._world.sendrecv_array(bits, received_bits, partner)
        upcast_to_float32(received_bits, received.reshape(-1))

    def _exchange_values(self, shards: Sequence[slice]) -> None:
        mine = self._values[shards[self._world.rank]]
        for call in self._schedule:
            sent = mine if call.receives else mine[:0]
            received = self._values[shards[call.partner]] if call.sends else mine[:0]
            self._world.sendrecv_array(sent, received, call.partner)

    @property
    def _elements_at_once(self) -> int:
        """Number of elements of each shard in one piece."""
        return ELEMENTS_AT_ONCE // self._world.size

    def _pieces(self) -> list[list[slice]]:
        """Cut the shards of all ranks into pieces; return the slices of all ranks for each piece."""
        longest, n = max(map(_length, self._shards)), self._elements_at_once
        return [
            [slice(min(shard.start + i, shard.stop), min(shard.start + i + n, shard.stop)) for shard in self._shards]
            for i in range(0, longest, n)
        ]


def _length(of: slice) -> int:
    return int(of.stop - of.start)


def _take_rows(buffer: FlatArray, n_rows: int, length: int) -> tuple[FlatArray, FlatArray]:
    """Return the first elements of a buffer as rows, and the remaining elements."""
    return buffer[: n_rows * length].reshape(n_rows, length), buffer[n_rows * length :]
