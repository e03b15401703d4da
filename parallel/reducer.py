"""The sum of gradients over ranks: one protocol, and the choice among its implementations."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from parallel.communicator import WHOLE, Communicator, SentIn, SumOrder, working_ranks
from parallel.device_reducer import DeviceReducer
from parallel.host_reducer import HostReducer
from parallel.nccl import NcclTransport, load_nccl
from parallel.nccl_reducer import NcclReducer
from parallel.placement import named_ranks, ranks_per_host

_ORDERS = {
    "exact": 'added in one fixed order (training.sum = "exact")',
    "fast": 'added in an order that depends on the number of processes, and so do last bits (training.sum = "fast")',
}


class GradientReducer(Protocol):
    """A sum of gradients over ranks, and an exchange of the updated values.

    In an update every rank computes its gradients and calls ``reduce_scatter``.  It then updates its shard of the
    values from its shard of the gradients, and calls ``all_gather``.  All ranks must make these calls in the same
    order.  Only calls of ``begin_sum`` may differ: a rank may stop after any bucket.
    """

    buckets: Sequence[slice]
    """Slices that cover the gradients, in the order in which ``begin_sum`` takes them; known after ``allocate``."""
    pieces: Sequence[slice]
    """The slices of the flat arrays that this rank updates, which are its shard; known after ``allocate``."""
    description: str
    """One line for the log: the transport, the order of additions, and the reason for both."""
    seconds_waited: float
    """Seconds that this rank has waited for the gradients of slower ranks; 0 if that is not measured."""
    why_not_captured: str | None
    """The reason why a CUDA graph cannot contain the calls; None if it can."""

    def allocate(self, n: int, dtype: Any) -> tuple[Any, Any]:
        """Return two flat arrays of at least n zeros, values and gradients, in memory that this reducer can use."""

    def begin_sum(self, bucket: slice, wait: Callable[[], None]) -> None:
        """Begin to sum a bucket of the gradients while the backward pass goes on, if the transport allows it.

        ``wait`` makes the current stream wait for gradients that kernels have deferred.  The reducer calls it on the
        stream that sums.
        """

    def reduce_scatter(self) -> None:
        """Begin the remaining sums, and replace this rank's pieces of the gradients with the sums over ranks.

        The rank's other gradients are then undefined.
        """

    def allreduce(self, number: Any) -> Any:
        """Return the sum of one number from each rank; with one rank the number stays on its device."""

    def wait(self, end: Any) -> None:
        """Wait until the GPU has reached the event ``end``, which was recorded after sums over ranks.

        If the sums wait for other ranks too long, all ranks are ended.
        """

    def map_shards(self, function: Callable[[Any], Any], array: Any) -> Any:
        """Apply ``function`` to each rank's pieces of ``array``; return the results of all ranks on every rank.

        ``function`` returns a flat array with one number per block of consecutive values, such as
        ``autograd.optim.sum_squares``.  The results have the order of ``array``.
        """

    def all_gather(self, low_precision: Any | None = None, vectors: Any | None = None) -> None:
        """Copy the values that every rank has updated to all ranks.

        Args:
            low_precision: the low-precision weights, of which every rank has updated its pieces; afterwards all are up
                to date.  A reducer may then copy only these weights and the values at ``vectors``; call ``complete``
                before anything reads all values.
            vectors: indices of the values that the next forward pass reads beside the low-precision weights.
        """

    def complete(self) -> None:
        """Copy to all ranks the values that ``all_gather`` has not copied; all ranks must call this."""

    def gather(self, shard: Any) -> Any | None:
        """Concatenate the shards of all ranks to one flat array on rank 0.

        The other ranks get None or the same array.
        """


class LocalReducer:
    """The reducer of a single process: its shard is the whole array."""

    buckets: Sequence[slice] = WHOLE
    pieces: Sequence[slice] = WHOLE
    description = "gradients stay in one process"
    seconds_waited = 0.0
    why_not_captured: str | None = None

    def __init__(self, array_module: Any = np) -> None:
        self._array_module = array_module

    def allocate(self, n: int, dtype: Any) -> tuple[Any, Any]:
        return self._array_module.zeros(n, dtype), self._array_module.zeros(n, dtype)

    def begin_sum(self, bucket: slice, wait: Callable[[], None]) -> None:
        """Leave the gradients as they are."""

    def reduce_scatter(self) -> None:
        """Leave the gradients as they are."""

    def allreduce(self, number: Any) -> Any:
        return number

    def wait(self, end: Any) -> None:
        end.synchronize()

    def map_shards(self, function: Callable[[Any], Any], array: Any) -> Any:
        return function(array)

    def all_gather(self, low_precision: Any | None = None, vectors: Any | None = None) -> None:
        """Leave the values as they are."""

    def complete(self) -> None:
        """Leave the values as they are."""

    def gather(self, shard: Any) -> Any:
        return shard


def choose_reducer(
    world: Communicator,
    cupy: Any | None,
    n_micro_batches: int,
    order: SumOrder = "exact",
    sent_in: SentIn = "float32",
    *,
    n_threads: int = 1,
) -> GradientReducer:
    """Return the fastest reducer that all ranks can use.  All ranks must call this, each after it has chosen its GPU.

    Args:
        cupy: the module ``cupy`` if the arrays lie on GPUs; None if they lie in host memory.
        n_micro_batches: micro-batches of one batch, over all ranks.
        order: "exact" adds along one tree for any number of ranks.  "fast" uses all ranks, and between GPUs NCCL
            chooses the order.
        sent_in: the type of gradients in messages; if NCCL chooses the order, nothing is rounded.
        n_threads: threads of this rank that may add gradients in host memory.
    """
    if world.size == 1:
        return LocalReducer(np if cupy is None else cupy)
    n_working, rounds = working_ranks(world.size, n_micro_batches, order), sent_in == "bfloat16"
    host = HostReducer(world, n_working, _ORDERS[order], rounds=rounds, n_threads=n_threads)
    if cupy is None:
        return host
    rank_facts = world.allgather((socket.gethostname(), cupy.cuda.Device().pci_bus_id, bool(load_nccl(cupy).available)))
    without_nccl = _obstacle_to_nccl(rank_facts)
    rounding = ", rounded to bfloat16 in messages" if rounds else ""
    if without_nccl is not None:
        travel = f"gradients travel through pinned host memory, because {without_nccl}{rounding}"
        is_idle = world.rank >= n_working
        return DeviceReducer(world, cupy, host, f"{travel}; {_ORDERS[order]}", is_idle=is_idle)
    if rounds and order == "fast":
        rounding = ", where nothing is rounded to bfloat16"
    travel = f"gradients travel through NCCL, because every rank has a GPU of its own{rounding}"
    n_local, nccl = _ranks_per_machine(rank_facts, n_working), NcclTransport(cupy, world)
    return NcclReducer(cupy, nccl, n_working, order, f"{travel}; {_ORDERS[order]}", n_local=n_local, rounds=rounds)


def _ranks_per_machine(rank_facts: Sequence[tuple[str, str, bool]], n_working: int) -> int | None:
    """Return the number of ranks of each machine if exact sums are first added within machines, else None."""
    n_local = ranks_per_host([host for host, *_ in rank_facts])
    return n_local if 1 < n_local < len(rank_facts) and n_working % n_local == 0 else None


def _obstacle_to_nccl(rank_facts: Sequence[tuple[str, str, bool]]) -> str | None:
    """Return the reason why NCCL cannot sum the gradients; None if it can.

    ``rank_facts`` has for every rank its host, its GPU's address, and whether it has NCCL.
    """
    sharing = _ranks_that_share([(host, address) for host, address, _ in rank_facts])
    if sharing:
        return f"{named_ranks(sharing)} share a GPU, which NCCL refuses"
    missing = [rank for rank, (_, _, available) in enumerate(rank_facts) if not available]
    return f"CuPy finds no NCCL on {named_ranks(missing)}" if missing else None


def _ranks_that_share(gpus: Sequence[tuple[str, str]]) -> list[int]:
    """Return the ranks on the first GPU that more than one rank uses; [] if each rank has its own GPU."""
    for gpu in gpus:
        if gpus.count(gpu) > 1:
            return [rank for rank, other in enumerate(gpus) if other == gpu]
    return []
