"""The exact sum: ranks' arrays are added along one binary tree, so it has the same bits for any number of ranks.

Arrays are flat, of NumPy or CuPy; ``xp`` is their module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from parallel.communicator import shard_of_rank

FlatArray: TypeAlias = Any  # of NumPy or CuPy
Tree: TypeAlias = "FlatArray | tuple[Tree, Tree]"

CHUNK = 1 << 15  # elements added or rounded at once, so that intermediate arrays stay in the CPU's cache


class Transport(Protocol):
    """A way to send flat arrays between ranks; the arrays may lie on a GPU."""

    rank: int
    size: int

    def sendrecv_array(self, sent: Any, received: Any, partner: int) -> None:
        """Send one array to a rank and receive another from it; either may be empty."""


class Subgroup:
    """A transport between some of the ranks of another transport, renumbered from 0."""

    def __init__(self, transport: Transport, ranks: Sequence[int]) -> None:
        self._transport, self._ranks = transport, ranks
        self.rank, self.size = ranks.index(transport.rank), len(ranks)

    def sendrecv_array(self, sent: Any, received: Any, partner: int) -> None:
        self._transport.sendrecv_array(sent, received, self._ranks[partner])


@dataclass(frozen=True)
class SendReceive:
    """One sendrecv call between this rank and a partner on another node; at least one of the two sends."""

    partner: int
    sends: bool
    """True if this rank sends its node's sums to the partner."""
    receives: bool
    """True if the partner sends its node's sums to this rank."""


def send_receive_schedule(nodes: Sequence[Sequence[int]], rank: int) -> Iterator[SendReceive]:
    """Yield this rank's sendrecv calls in an order that is free of deadlocks.

    Every rank receives from one rank of every other node, and the ranks of a node share the sending.  Ranks with the
    same index in their nodes are partners.  If a node has fewer ranks than another, some of its ranks have several
    partners.

    Args:
        nodes: for each node the ranks that share memory; every rank is in one node.
    """
    own_node = next(number for number, ranks in enumerate(nodes) if rank in ranks)
    index, n_own = nodes[own_node].index(rank), len(nodes[own_node])
    for distance in range(1, 1 << (len(nodes) - 1).bit_length()):
        if own_node ^ distance < len(nodes):
            others = nodes[own_node ^ distance]
            for their_index, partner in enumerate(others):
                call = SendReceive(partner, their_index % n_own == index, index % len(others) == their_index)
                if call.sends or call.receives:
                    yield call


def subtrees_within(ranks: Collection[int], whole: range) -> list[range]:
    """Return the largest subtrees of the tree over ``whole`` whose leaves are all among these ranks."""
    if all(rank in ranks for rank in whole):
        return [whole]
    return [] if len(whole) == 1 else [subtree for half in _halves(whole) for subtree in subtrees_within(ranks, half)]


def tree_of(whole: range, sums: Mapping[range, FlatArray], first: int) -> Tree:
    """Return the tree over ``whole``, whose leaves are the subtrees with known sums.

    A subtree that contains rank ``first`` is the left one of two siblings.  Addition commutes, so bits do not change.
    """
    if whole in sums:
        return sums[whole]
    left, right = _halves(whole)
    if first in right:
        left, right = right, left
    return tree_of(left, sums, first), tree_of(right, sums, first)


def _halves(whole: range) -> tuple[range, range]:
    middle = (whole.start + whole.stop) // 2
    return range(whole.start, middle), range(middle, whole.stop)


def slice_tree(tree: Tree, within: slice) -> Tree:
    """Return the same tree with each array cut to the slice ``within``."""
    return (slice_tree(tree[0], within), slice_tree(tree[1], within)) if isinstance(tree, tuple) else tree[within]


def add_along_tree(tree: Tree, out: FlatArray, xp: Any = np) -> None:
    """Write (s₀ + s₁) + (s₂ + s₃) to ``out`` for the tree ((s₀, s₁), (s₂, s₃)); ``out`` may be s₀."""
    for chunk in _chunks(out):
        _add(slice_tree(tree, chunk), out[chunk], xp)


def _chunks(x: FlatArray) -> Iterator[slice]:
    """Yield slices of CHUNK elements; on a GPU one slice of all elements."""
    n = CHUNK if isinstance(x, np.ndarray) else max(1, len(x))
    for start in range(0, len(x), n):
        yield slice(start, start + n)


def _add(tree: Tree, out: FlatArray, xp: Any) -> None:
    if not isinstance(tree, tuple):
        out[...] = tree
        return
    left, right = tree
    if isinstance(left, tuple):
        _add(left, out, xp)
        left = out
    if isinstance(right, tuple):
        right_sum = xp.empty(len(out), out.dtype)
        _add(right, right_sum, xp)
        right = right_sum
    xp.add(left, right, out=out)


def round_to_bfloat16(x: FlatArray, bits: FlatArray) -> None:
    """Write float32 numbers to ``bits``, rounded to the nearest bfloat16, ties to even; NaN stays NaN.

    A bfloat16 is the upper half of a float32.  The bits are uint16, which every library can send.  (The module
    ``autograd.precision`` rounds by ``ml_dtypes``, which training in float32 does not need.  A test compares the bits.)
    """
    for chunk in _chunks(x):
        wide = x[chunk].view(np.uint32)
        is_nan = ((wide & 0x7FFF_FFFF) > 0x7F80_0000).astype(np.uint32)
        upper = (wide + ((wide >> 16 & 1) + 0x7FFF)) >> 16
        bits[chunk] = (upper | is_nan * 0x7FC0).astype(np.uint16)


def upcast_to_float32(bits: FlatArray, out: FlatArray) -> None:
    """Write bfloat16 to ``out`` as float32, exactly."""
    wide = out.view(np.uint32)
    wide[...] = bits
    wide <<= 16


class ExactSum:
    """The sum of the working ranks' flat arrays; each rank computes its shard of the sum in its own array.

    Ranks of a node read each other's arrays.  A rank sends each of its partners on other nodes the sums over the
    subtrees whose ranks are all on its own node.

    Args:
        nodes: for each node the ranks that read each other's arrays; every rank is in one node.
        n_working: number of ranks whose arrays are added; these are the first ranks.
        arrays: the arrays of the ranks of this rank's node.
        n_at_once: elements in one piece, counted over the shards of all ranks.
        rounds: whether messages round sums to bfloat16.
    """

    def __init__(
        self,
        transport: Transport,
        nodes: Sequence[Sequence[int]],
        n_working: int,
        arrays: Mapping[int, FlatArray],
        n_at_once: int,
        *,
        rounds: bool = False,
        xp: Any = np,
    ) -> None:
        self._transport, self._rank, self._all = transport, transport.rank, range(n_working)
        self._array, self._rounds, self._xp = arrays[transport.rank], rounds, xp
        self._n_at_once = n_at_once // transport.size
        self.shards = [shard_of_rank(rank, transport.size, len(self._array)) for rank in range(transport.size)]
        self.schedule = list(send_receive_schedule(nodes, self._rank))
        self._leaves = {range(rank, rank + 1): array for rank, array in arrays.items() if rank in self._all}
        self._subtrees = {rank: subtrees_within(ranks, self._all) for ranks in nodes for rank in ranks}
        self._trees_of_node = [tree_of(subtree, self._leaves, self._rank) for subtree in self._subtrees[self._rank]]

    def sum_in_place(self, within: slice) -> None:
        """Sum a slice of this rank's shard; all arrays must be on one node."""
        shard = self.shards[self._rank]
        tree = slice_tree(slice_tree(self._trees_of_node[0], shard), within)
        add_along_tree(tree, self._array[shard][within], self._xp)

    def sum_by_messages(self) -> None:
        """Sum this rank's shard piece by piece, on one thread, because messages take longer than additions."""
        n_received = sum(len(self._subtrees[call.partner]) for call in self.schedule if call.receives)
        n_rows = n_received + len(self._trees_of_node)
        longest = min(self._n_at_once, max(map(_length, self.shards)))
        buffer = self._xp.empty(n_rows * longest, self._array.dtype)
        for shards in self._pieces():
            mine = shards[self._rank]
            sums, free = {leaf: array[mine] for leaf, array in self._leaves.items()}, buffer
            for call in self.schedule:
                subtrees = self._subtrees[call.partner] if call.receives else []
                received, free = _take_rows(free, len(subtrees), _length(mine))
                sent = self._sums_of_node(shards[call.partner], free) if call.sends else free[:0]
                self._exchange(sent, received, call.partner)
                sums.update(zip(subtrees, received, strict=True))
            add_along_tree(tree_of(self._all, sums, self._rank), self._array[mine], self._xp)

    def _sums_of_node(self, shard: slice, buffer: FlatArray) -> FlatArray:
        """Add this node's values of another rank's shard along its subtrees; return one row for each subtree."""
        trees = [slice_tree(tree, shard) for tree in self._trees_of_node]
        if len(trees) == 1 and not isinstance(trees[0], tuple):
            return trees[0]
        rows, _ = _take_rows(buffer, len(trees), _length(shard))
        for tree, row in zip(trees, rows, strict=True):
            add_along_tree(tree, row, self._xp)
        return rows

    def exchange_shards(self, values: FlatArray) -> None:
        """Exchange the shards of ``values`` with other nodes; ``values`` need not be the array that was summed."""
        for shards in self._pieces():
            mine = values[shards[self._rank]]
            for call in self.schedule:
                received = values[shards[call.partner]] if call.sends else mine[:0]
                self._transport.sendrecv_array(mine if call.receives else mine[:0], received, call.partner)

    def _exchange(self, sent: FlatArray, received: FlatArray, partner: int) -> None:
        if not self._rounds:
            self._transport.sendrecv_array(sent, received, partner)
            return
        bits, received_bits = self._xp.empty(sent.size, np.uint16), self._xp.empty(received.size, np.uint16)
        round_to_bfloat16(sent.reshape(-1), bits)
        self._transport.sendrecv_array(bits, received_bits, partner)
        upcast_to_float32(received_bits, received.reshape(-1))

    def _pieces(self) -> Iterator[list[slice]]:
        """Cut the shards of all ranks into pieces; for each piece yield one slice per rank."""
        n = self._n_at_once
        for i in range(0, max(map(_length, self.shards)), n):
            yield [slice(min(s.start + i, s.stop), min(s.start + i + n, s.stop)) for s in self.shards]


def exact_sum(
    flat: FlatArray, transport: Transport, n_working: int, n_at_once: int, *, rounds: bool = False, xp: Any = np
) -> ExactSum:
    """Return an ``ExactSum`` of ``flat`` over ranks that share no memory."""
    nodes = [(rank,) for rank in range(transport.size)]
    return ExactSum(transport, nodes, n_working, {transport.rank: flat}, n_at_once, rounds=rounds, xp=xp)


def sum_by_machines(
    flat: FlatArray,
    transport: Transport,
    n_working: int,
    n_at_once: int,
    n_local: int,
    *,
    rounds: bool = False,
    xp: Any = np,
) -> None:
    """Sum this rank's shard of ``flat`` in place: first within each machine, then between the machines.

    The ranks of a machine are a subtree, so the sum has the same bits as that of ``exact_sum`` (unless ``rounds``).  A
    rank sends to only one rank of each other machine.  ``rounds`` rounds messages between machines only.

    Args:
        flat: an array of ``transport.size`` equal shards.
        n_local: the number of ranks of each machine, which are consecutive: a power of two that divides ``n_working``.
    """
    machine, index = divmod(transport.rank, n_local)
    n_machines, length = transport.size // n_local, len(flat) // transport.size
    neighbours = range(machine * n_local, (machine + 1) * n_local)
    partners = range(index, transport.size, n_local)  # the ranks with the same index on their machines
    shards = xp.empty((n_local, n_machines, length), flat.dtype)  # the shards of a rank and its partners are adjacent
    shards[...] = flat.reshape(n_machines, n_local, length).swapaxes(0, 1)
    if transport.rank < n_working:
        exact_sum(shards.reshape(-1), Subgroup(transport, neighbours), n_local, n_at_once, xp=xp).sum_by_messages()
    between, n_working_machines = Subgroup(transport, partners), n_working // n_local
    mine = shards[index]
    exact_sum(mine.reshape(-1), between, n_working_machines, n_at_once, rounds=rounds, xp=xp).sum_by_messages()
    flat[transport.rank * length : (transport.rank + 1) * length] = mine[machine]


def _length(of: slice) -> int:
    return int(of.stop - of.start)


def _take_rows(buffer: FlatArray, n_rows: int, length: int) -> tuple[FlatArray, FlatArray]:
    """Return the first elements of a buffer as rows, and the remaining elements."""
    return buffer[: n_rows * length].reshape(n_rows, length), buffer[n_rows * length :]
