"""What a process must know of the others: its rank, and how to add arrays up with them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

Value = TypeVar("Value")
InSlices: TypeAlias = Callable[[Callable[[slice], None]], None]
SumOrder: TypeAlias = Literal["exact", "fast"]  # one fixed order of additions, or whichever a library likes

SentIn: TypeAlias = Literal["float32", "bfloat16"]  # as what gradients travel

ORDER_IN_WORDS = {
    "exact": "added in one fixed order (--training.sum exact)",
    "fast": "added in no fixed order: last bits depend on the number of processes (--training.sum fast)",
}

RUN = 64  # elements that are never divided between ranks: a few lines of a cache, of which two would fight over one
SECONDS_TO_FORWARD = 1.0  # mpirun passes on what a rank prints, but drops what is on its way when ranks are ended


class Exchange(Protocol):
    """What N ranks exchange in an update.

    Every rank gets a part of the sum of gradients, and updates this part of the values for all.
    """

    values: Any
    """The flat values, in whatever memory they now lie."""
    gradients: Any
    """This rank's own flat gradients, in whatever memory they now lie."""
    part: slice
    """What this rank has of both."""

    @property
    def said(self) -> str:
        """How gradients travel, in which order they are added, and why: a line for people."""

    @property
    def seconds_waited(self) -> float:
        """Seconds that this rank has waited so far for the slowest one to have its gradients."""

    def sum_gradients(self, in_slices: InSlices) -> None:
        """Replace this rank's part of its gradients by the sum along a fixed binary tree: (r₀ + r₁) + (r₂ + r₃) …

        ``in_slices`` calls a function with slices that cover the part, on as many threads as it likes.
        """

    def share_values(self) -> None:
        """Let every rank have all values, after each has changed its part; gradients may be overwritten from then."""

    def of_all_parts(self, value: Value) -> list[Value]:
        """One value of every part that the whole is made of, in the order of parts; all must call."""

    def gather(self, part: Any) -> Any | None:
        """Another flat array put together of every rank's part, on rank 0; elsewhere None, or what is at hand."""


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

    def exchange(
        self, values: Any, new_gradients: Callable[[], Any], n_working: int, sent_in: SentIn = "float32"
    ) -> Exchange:
        """What ranks need to update flat arrays together; all must call.

        Args:
            values: the same on all ranks.
            new_gradients: makes zeros of their shape and dtype; called if gradients need no particular memory.
            n_working: so many of the first ranks, a power of two, have gradients to add.
            sent_in: what gradients are rounded to where messages carry them; they are added up in float32 all the same.
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

    def waiting_for_rank_0(self) -> AbstractContextManager[None]:
        """A context in which rank 0 does what the others skip, for as long as it takes; they wait at its end."""

    def abort(self) -> None:
        """End all ranks at once, because this one cannot go on."""


class SerialCommunicator:
    """One process, alone."""

    rank = 0
    size = 1
    node_rank = 0
    node_size = 1
    library = "none: one process, alone"

    def exchange(
        self, values: Any, new_gradients: Callable[[], Any], n_working: int, sent_in: SentIn = "float32"
    ) -> Exchange:
        """With nobody."""
        return SerialExchange(values, new_gradients())

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

    def waiting_for_rank_0(self) -> AbstractContextManager[None]:
        """Nobody waits."""
        return nullcontext()

    def abort(self) -> None:
        """Nobody else to end."""


class SerialExchange:
    """One process, whose part is all there is."""

    said = "gradients stay where they are"
    seconds_waited = 0.0

    def __init__(self, values: Any, gradients: Any) -> None:
        self.values, self.gradients, self.part = values, gradients, slice(len(values))

    def sum_gradients(self, in_slices: InSlices) -> None:
        """Nothing to add."""

    def share_values(self) -> None:
        """Nobody to share with."""

    def of_all_parts(self, value: Value) -> list[Value]:
        """That of the only part."""
        return [value]

    def gather(self, part: Any) -> Any | None:
        """The part itself."""
        return part


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


def part_of_rank(rank: int, size: int, n_elements: int) -> slice:
    """The stretch of a flat array that belongs to a rank: even ones, which begin at multiples of 64 elements."""
    n_runs = -(-n_elements // RUN)
    return slice(min(n_elements, n_runs * rank // size * RUN), min(n_elements, n_runs * (rank + 1) // size * RUN))
