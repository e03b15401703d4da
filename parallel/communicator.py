"""The communicator of the processes (ranks) that run one program together, and the division of work among them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

Value = TypeVar("Value")
Task = TypeVar("Task")
Result = TypeVar("Result")
SumOrder: TypeAlias = Literal["exact", "fast"]  # "exact": the same order for any number of ranks
SentIn: TypeAlias = Literal["float32", "bfloat16"]  # the type that gradients have in messages

# A multiple of autograd.parameters.ALIGNMENT, so that shards have whole partial sums of the norm; a test compares both.
ALIGNMENT = 64  # elements: shards begin at multiples of this, so that two ranks never write to one cache line
WHOLE = (slice(None),)  # one bucket: no sum begins before the backward pass ends
ELEMENTS_AT_ONCE = 4 << 20  # in one message: large messages are faster in pieces, and buffers stay small
SECONDS_TO_FORWARD = 1.0  # time for mpirun to forward a rank's output before it ends the ranks


class Ranks(Protocol):
    """A group of processes and its collective calls; their names and meanings are those of MPI."""

    rank: int
    """Number of this process in the group, from 0."""
    size: int
    """Number of processes."""

    def allreduce(self, number: float) -> float:
        """Return the sum of one number from each rank, on every rank."""

    def any(self, flag: bool) -> bool:
        """Return on every rank whether the flag is set on any rank."""

    def bcast(self, value: Value) -> Value:
        """Return rank 0's value (anything that can be pickled) on every rank."""

    def allgather(self, value: Value) -> list[Value]:
        """Return every rank's value, in the order of ranks, on every rank."""

    def barrier(self) -> None:
        """Wait until all ranks have called this."""

    def sendrecv_array(self, sent: Any, received: Any, partner: int) -> None:
        """Send the array ``sent`` to rank ``partner``, and write the array that it sends to ``received``."""

    def gatherv_array(self, array: Any, lengths: Sequence[int]) -> Any | None:
        """Concatenate each rank's flat ``array`` on rank 0; return None on the others.

        ``lengths`` has the length of each rank's array.
        """

    def waiting_for_rank_0(self) -> AbstractContextManager[None]:
        """Return a context in which rank 0 works alone; the others wait at its end for as long as rank 0 is alive."""


class Communicator(Ranks, Protocol):
    """The group of all N processes of a program."""

    local_rank: int
    """Number of this process among the processes of its machine, from 0."""
    local_size: int
    """Number of processes on this machine, which share its cores."""
    library: str
    """Name and version of the library that sends the messages."""

    @property
    def node(self) -> Ranks:
        """The ranks that share memory with this one, in the order of their ranks."""

    def waiting(self, what: str) -> AbstractContextManager[None]:
        """Return a context for a call of another library that waits for other ranks; ``what`` names the call.

        If the call takes too long, all ranks are ended.
        """

    def abort(self) -> None:
        """End all ranks at once."""


class SerialCommunicator:
    """The communicator of a single process."""

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1
    library = "none: one process, alone"

    @property
    def node(self) -> SerialCommunicator:
        return self

    def allreduce(self, number: float) -> float:
        return number

    def any(self, flag: bool) -> bool:
        return flag

    def bcast(self, value: Value) -> Value:
        return value

    def allgather(self, value: Value) -> list[Value]:
        return [value]

    def barrier(self) -> None:
        """Return at once."""

    def sendrecv_array(self, sent: Any, received: Any, partner: int) -> None:
        received[...] = sent

    def gatherv_array(self, array: Any, lengths: Sequence[int]) -> Any | None:
        return array

    def waiting(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()

    def waiting_for_rank_0(self) -> AbstractContextManager[None]:
        return nullcontext()

    def abort(self) -> None:
        """Return at once: there is no other rank."""


def working_ranks(size: int, n_micro_batches: int, order: SumOrder = "exact") -> int:
    """Return how many of ``size`` ranks compute micro-batches; these are the first ranks.

    In the exact order this is the largest power of two that is at most ``size`` and ``n_micro_batches``.
    """
    n_most = min(size, n_micro_batches)
    return n_most if order == "fast" else 1 << (n_most.bit_length() - 1)


def micro_batches_of_rank(rank: int, size: int, n_micro_batches: int, order: SumOrder = "exact") -> range:
    """Return the indices of the micro-batches that rank ``rank`` of ``size`` computes, range(0) if it is idle.

    In the exact order they form a subtree of the tree along which gradients are added.
    """
    n_working = working_ranks(size, n_micro_batches, order)
    if rank >= n_working:
        return range(0)
    return range(rank * n_micro_batches // n_working, (rank + 1) * n_micro_batches // n_working)


def call_on_rank_0(function: Callable[[], Result], ranks: Ranks) -> Result:
    """Call ``function`` on rank 0 and return its result on every rank; the other ranks sleep meanwhile.

    All ranks must call this.  The result must be picklable.
    """
    results = list[Result]()
    with ranks.waiting_for_rank_0():
        if ranks.rank == 0:
            results.append(function())
    return ranks.bcast(results)[0]


def work_in_turn(tasks: Iterable[Task], work: Callable[[Task], Result], world: Ranks) -> list[Result]:
    """Divide the tasks among the ranks in turn, and return all results of ``work``, in order of tasks, on every rank.

    All ranks must call this with the same number of tasks.  The ranks exchange results after each rank has done one
    more task, so a rank waits at most as long as one task takes.
    """
    results, mine = list[Result](), list[Result]()
    for number, task in enumerate(tasks):
        if number % world.size == world.rank:
            mine.append(work(task))
        if number % world.size == world.size - 1:
            results.extend(itertools.chain(*world.allgather(mine)))
            mine = []
    return [*results, *itertools.chain(*world.allgather(mine))]


def shard_of_rank(rank: int, size: int, n_elements: int) -> slice:
    """Return the shard of rank ``rank`` of ``size``: its slice of a flat array of ``n_elements``.

    Shards have nearly equal sizes and begin at multiples of ALIGNMENT (64).
    """
    n_blocks = -(-n_elements // ALIGNMENT)
    bounds = (min(n_elements, n_blocks * r // size * ALIGNMENT) for r in (rank, rank + 1))
    return slice(*bounds)
