"""What a process must know of the others: its rank, and how to add arrays up with them."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias, TypeVar

Value = TypeVar("Value")
SumOrder: TypeAlias = Literal["exact", "fast"]  # one fixed order of additions, or whichever a library likes

SECONDS_TO_FORWARD = 1.0  # mpirun passes on what a rank prints, but drops what is on its way when ranks are ended


class Communicator(Protocol):
    """N processes that run the same program; rank 0 speaks for all."""

    rank: int
    """This process among all, from 0."""
    size: int
    """Processes in all."""
    node_rank: int
    """This process among those of its machine, from 0."""
    node_size: int
    """Processes on this machine, which share its cores."""
    library: str
    """Which library carries the messages, with its version."""

    def sum_in_tree(self, array: Any, n_working: int) -> None:
        """Add up ``array`` over the first ``n_working`` ranks, a power of two, in place, along a fixed binary tree.

        Every rank, the idle ones too, ends with the same bits: (r₀ + r₁) + (r₂ + r₃) …
        """

    def sum_in_any_order(self, array: Any) -> None:
        """Add up ``array`` over all ranks, in place, in the order that the library likes: bits depend on ``size``."""

    def send_and_receive(self, outgoing: Any, incoming: Any, partner: int) -> None:
        """Send ``outgoing`` to a rank that does the same with this one, and receive its array into ``incoming``.

        Arrays of a GPU, too, if the library can read them.
        """

    def broadcast_array(self, array: Any) -> None:
        """Overwrite ``array`` by rank 0's."""

    def sum_of_numbers(self, number: float) -> float:
        """The sum of one number a rank, on every rank."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank, on every rank."""

    def broadcast(self, value: Value) -> Value:
        """Rank 0's value (anything that can be pickled), on every rank."""

    def all_of(self, value: Value) -> list[Value]:
        """Every rank's value, in the order of ranks, on every rank."""

    def barrier(self) -> None:
        """Return when all ranks have called."""

    def abort(self) -> None:
        """End all ranks at once, because this one cannot go on."""


class SerialCommunicator:
    """One process, alone."""

    rank = 0
    size = 1
    node_rank = 0
    node_size = 1
    library = "none: one process, alone"

    def sum_in_tree(self, array: Any, n_working: int) -> None:
        """Nothing to add."""

    def sum_in_any_order(self, array: Any) -> None:
        """Nothing to add."""

    def send_and_receive(self, outgoing: Any, incoming: Any, partner: int) -> None:
        """The only partner is this rank itself."""
        incoming[...] = outgoing

    def broadcast_array(self, array: Any) -> None:
        """Nobody to tell."""

    def sum_of_numbers(self, number: float) -> float:
        """The number itself."""
        return number

    def any(self, flag: bool) -> bool:
        """The flag itself."""
        return flag

    def broadcast(self, value: Value) -> Value:
        """The value itself."""
        return value

    def all_of(self, value: Value) -> list[Value]:
        """The value alone."""
        return [value]

    def barrier(self) -> None:
        """Nobody to wait for."""

    def abort(self) -> None:
        """Nobody else to end."""


def working_ranks(size: int, n_shards: int, order: SumOrder = "exact") -> int:
    """How many of ``size`` ranks get shards.

    In the exact order the largest power of two that neither ranks nor shards fall short of; else all, if there are
    shards for all.
    """
    n_most = min(size, n_shards)
    return n_most if order == "fast" else 1 << (n_most.bit_length() - 1)


def shards_of_rank(rank: int, size: int, n_shards: int, order: SumOrder = "exact") -> range:
    """The shards that a rank computes, in the exact order a whole subtree of the summation; none for an idle rank."""
    n_working = working_ranks(size, n_shards, order)
    if rank >= n_working:
        return range(0)
    return range(rank * n_shards // n_working, (rank + 1) * n_shards // n_working)
