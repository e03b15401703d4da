"""The processes that run one program together, called ranks, and what each of them computes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

Value = TypeVar("Value")
SumOrder: TypeAlias = Literal["exact", "fast"]  # the same order for any number of ranks, or one that depends on it
SentIn: TypeAlias = Literal["float32", "bfloat16"]  # the type that gradients have in messages

ALIGNMENT = 64  # elements of a flat array that one shard holds whole: two ranks never write to one line of a cache
SECONDS_TO_FORWARD = 1.0  # mpirun forwards what a rank prints, but drops what is in its pipes when ranks are ended


class Ranks(Protocol):
    """Processes that call each other's collective functions, which have the names and meanings of MPI's."""

    rank: int
    """This process among them, from 0."""
    size: int
    """Number of processes."""

    def allreduce(self, number: float) -> float:
        """Return the sum of one number from each rank, on every rank."""

    def any(self, flag: bool) -> bool:
        """Return on every rank whether the flag is set on any."""

    def bcast(self, value: Value) -> Value:
        """Return rank 0's value (anything that can be pickled) on every rank."""

    def allgather(self, value: Value) -> list[Value]:
        """Return every rank's value, in the order of ranks, on every rank."""

    def barrier(self) -> None:
        """Return when all ranks have called."""

    def allreduce_array(self, array: Any) -> None:
        """Sum ``array`` over all ranks, in place.  The library chooses the order, so bits depend on ``size``."""

    def bcast_array(self, array: Any) -> None:
        """Overwrite ``array`` with rank 0's."""

    def sendrecv_array(self, sent: Any, received: Any, partner: int) -> None:
        """Send one array to a rank and receive another from it.  On a GPU, too, if the library reads its memory."""

    def gatherv_array(self, array: Any, lengths: Sequence[int]) -> Any | None:
        """Concatenate flat arrays of these lengths, one from each rank, on rank 0; return None on the others."""


class Communicator(Ranks, Protocol):
    """All N processes of a program."""

    local_rank: int
    """This process among those of its machine, from 0."""
    local_size: int
    """Number of processes on this machine, which share its cores."""
    library: str
    """Name and version of the library that carries the messages."""

    @property
    def node(self) -> Ranks:
        """The ranks that share memory with this one, in the order of their ranks."""

    def waiting_for_rank_0(self) -> AbstractContextManager[None]:
        """Return a context in which rank 0 works alone.  The others wait at its end, for as long as rank 0 is alive."""

    def abort(self) -> None:
        """End all ranks at once."""


class SerialCommunicator:
    """One process, alone."""

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1
    library = "none: one process, alone"

    @property
    def node(self) -> SerialCommunicator:
        """The process itself."""
        return self

    def allreduce(self, number: float) -> float:
        """Return the number."""
        return number

    def any(self, flag: bool) -> bool:
        """Return the flag."""
        return flag

    def bcast(self, value: Value) -> Value:
        """Return the value."""
        return value

    def allgather(self, value: Value) -> list[Value]:
        """Return a list of this value."""
        return [value]

    def barrier(self) -> None:
        """Return at once."""

    def allreduce_array(self, array: Any) -> None:
        """Leave the array as it is."""

    def bcast_array(self, array: Any) -> None:
        """Leave the array as it is."""

    def sendrecv_array(self, sent: Any, received: Any, partner: int) -> None:
        """Copy ``sent`` to ``received``."""
        received[...] = sent

    def gatherv_array(self, array: Any, lengths: Sequence[int]) -> Any | None:
        """Return the array."""
        return array

    def waiting_for_rank_0(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def abort(self) -> None:
        """Return at once: there is no other rank."""


def working_ranks(size: int, n_micro_batches: int, order: SumOrder = "exact") -> int:
    """Return how many of ``size`` ranks compute micro-batches; they are the first ones.

    In the exact order it is the largest power of two that is at most ``size`` and ``n_micro_batches``.
    """
    n_most = min(size, n_micro_batches)
    return n_most if order == "fast" else 1 << (n_most.bit_length() - 1)


def micro_batches_of_rank(rank: int, size: int, n_micro_batches: int, order: SumOrder = "exact") -> range:
    """Return the micro-batches that a rank computes: in the exact order those of one subtree; none if it is idle."""
    n_working = working_ranks(size, n_micro_batches, order)
    if rank >= n_working:
        return range(0)
    return range(rank * n_micro_batches // n_working, (rank + 1) * n_micro_batches // n_working)


def shard_of_rank(rank: int, size: int, n_elements: int) -> slice:
    """Return the slice of a flat array that belongs to a rank.  Shards are even and begin at multiples of ALIGNMENT."""
    n_blocks = -(-n_elements // ALIGNMENT)
    bounds = (min(n_elements, n_blocks * r // size * ALIGNMENT) for r in (rank, rank + 1))
    return slice(*bounds)
