"""Programs of ranks that add arrays up."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_cuda
import numpy as np
import pytest

from minitransformer.place import take_place
from parallel.agreement import checksum
from parallel.communicator import RUN, Communicator, Exchange, SentIn, SumOrder, working_ranks
from parallel.cuda_aware import reads_gpu_memory
from parallel.messages import PIECE
from parallel.route import choose_route

N_SUMMED = PIECE + 5  # more than is sent at once
N_SHARDS = 8

COPIES = ("upload", "read")  # between host and device, as the stand-in for CuPy calls them

NEIGHBOURHOODS: dict[str, Callable[[int], int]] = {
    "shared": lambda place: 0,
    "messages": lambda place: place,
    "pairs": lambda place: place // 2,
    "turns": lambda place: place % 2,
    "unequal": lambda place: place // 3,
}  # which ranks share memory, as if they alone were on one machine


def summand(rank: int) -> Any:
    return np.random.default_rng(rank).standard_normal(N_SUMMED, np.float32)


def zeros_in(world: Communicator, size: int, n_working: int) -> Exchange:
    return world.exchange(np.zeros(size, np.float32), lambda: np.zeros(size, np.float32), n_working)


def exchange_of_each_kind(world: Communicator, size: int, n_working: int) -> dict[str, Exchange]:
    return {kind: zeros_in(world_of_kind(kind), size, n_working) for kind in NEIGHBOURHOODS}


def world_of_kind(kind: str) -> Communicator:
    from parallel.mpi import MpiCommunicator

    return MpiCommunicator(neighbourhood=NEIGHBOURHOODS[kind])


def in_two_slices(add: Callable[[slice], None]) -> None:
    add(slice(2, None))
    add(slice(2))


def add_up(exchange: Exchange, numbers: Any) -> Any:
    """The sum of all ranks' numbers, on all of them: an update that makes of a value its gradient."""
    exchange.gradients[...] = numbers
    exchange.sum_gradients(in_two_slices)
    exchange.values[exchange.part] = exchange.gradients[exchange.part]
    exchange.share_values()
    return exchange.values


def sum_summands(world: Communicator, directory: Path) -> dict[str, Any]:
    """What a rank has in the end, both ways, and what rank 0 can put together of parts."""
    result: dict[str, Any] = {}
    for kind, exchange in exchange_of_each_kind(world, N_SUMMED, working_ranks(world.size, N_SHARDS)).items():
        array = add_up(exchange, summand(world.rank))
        whole = exchange.gather(array[exchange.part].astype(np.float64))
        assert (whole is not None) == (world.rank == 0)
        assert whole is None or (whole.dtype == np.float64 and (whole == array).all())
        result[kind] = hashlib.blake2b(array).hexdigest()
        assert exchange.seconds_waited > 0
    return result


def sum_rounded(world: Communicator, directory: Path, kind: str) -> str:
    """The sum of what travels in bfloat16."""
    exchange = world_of_kind(kind).exchange(np.zeros(N_SUMMED, np.float32), new_zeros, world.size, "bfloat16")
    return hashlib.blake2b(add_up(exchange, summand(world.rank))).hexdigest()


def new_zeros() -> Any:
    return np.zeros(N_SUMMED, np.float32)


def round_what_is_not_float32(world: Communicator, directory: Path) -> str:
    with pytest.raises(ValueError, match="only float32 is sent") as error:
        world_of_kind("messages").exchange(np.zeros(9), lambda: np.zeros(9), world.size, "bfloat16")
    return str(error.value)


def count_what_leaves(world: Communicator, directory: Path, kind: str, sent_in: SentIn) -> list[int]:
    """Bytes that this rank sends to ranks of another pair: of gradients, and of values."""
    exchange = world_of_kind(kind).exchange(np.zeros(N_SUMMED, np.float32), new_zeros, world.size, sent_in)
    exchange._ranks = counting = CountingRanks(exchange._ranks, world.rank)  # type: ignore[attr-defined]
    exchange.sum_gradients(in_two_slices)
    of_gradients, counting.n_bytes = counting.n_bytes, 0
    exchange.share_values()
    return [of_gradients, counting.n_bytes]


class CountingRanks:
    """MPI's communicator, and the bytes that are sent out of a pair of ranks."""

    n_bytes = 0

    def __init__(self, ranks: Any, rank: int) -> None:
        self._ranks, self._rank = ranks, rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ranks, name)

    def Sendrecv(self, sent: Any, dest: int, recvbuf: Any, source: int) -> None:  # noqa: N802
        self.n_bytes += sent.nbytes * (dest // 2 != self._rank // 2)
        self._ranks.Sendrecv(sent, dest=dest, recvbuf=recvbuf, source=source)


def sum_in_any_order(world: Communicator, directory: Path) -> str:
    """Numbers so small that float32 adds them exactly, in any order."""
    array = np.arange(N_SUMMED, dtype=np.float32) % 1_021 + world.rank
    world.sum_in_any_order(array)
    return checksum(array)


def sum_on_gpus(
    world: Communicator, directory: Path, way: str, order: SumOrder, sent_in: SentIn = "float32"
) -> dict[str, Any]:
    """Add up arrays of a stand-in for CuPy; ``way`` is what there is: "NCCL", "MPI" that reads GPUs, or "nothing"."""
    from parallel import nccl, route

    cupy = fake_cuda.stand_in_for_cupy()
    fake_cuda.N_GPUS = 1 if way == "nothing" else world.size
    fake_cuda.nccl.available = way != "MPI"
    nccl.PIECE, route.PINNED_BYTES = 3_000_000, 10_000_000
    route.reads_gpu_memory = lambda: way == "MPI"
    place = take_place("cuda", world)[world.rank]
    there = choose_route(GpuAwareWorld(world), cupy, N_SHARDS, order, sent_in)
    working = world.rank in ranks_that_work(world, order)
    array = cupy.asarray(summand(world.rank) if working else np.zeros(N_SUMMED, np.float32))
    there.add_up(array)
    np.save(directory / f"{world.rank}.npy", array.get())
    return {
        "gpu": place.gpu, "said": there.said, "calls": [call for call in fake_cuda.CALLS if call[0] not in COPIES],
        "sum": hashlib.blake2b(array.get()).hexdigest(), "error": distance_of_sum(array.get(), world, order),
    }  # fmt: skip


def ranks_that_work(world: Communicator, order: SumOrder) -> range:
    return range(working_ranks(world.size, N_SHARDS, order))


def distance_of_sum(found: Any, world: Communicator, order: SumOrder) -> float:
    expected = sum(summand(rank).astype(np.float64) for rank in ranks_that_work(world, order))
    return float(np.abs(found - expected).max())


class GpuAwareWorld:
    """MPI that reads the stand-in's memory, and insists that the GPU has finished before."""

    def __init__(self, world: Communicator) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def send_and_receive(self, outgoing: Any, incoming: Any, partner: int) -> None:
        self._world.send_and_receive(self._read(outgoing), incoming._values, partner)

    def broadcast_array(self, array: Any) -> None:
        self._world.broadcast_array(self._read(array))

    def sum_in_any_order(self, array: Any) -> None:
        on_host = isinstance(array, np.ndarray)
        self._world.sum_in_any_order(array if on_host else self._read(array))

    def _read(self, array: Any) -> Any:
        assert fake_cuda.CALLS[-1] == ("synchronize",)
        fake_cuda.CALLS.append(("MPI", array.size))
        return array._values


def ask_whether_mpi_reads_gpus(world: Communicator, directory: Path) -> bool | None:
    return reads_gpu_memory()


def sum_often(world: Communicator, directory: Path) -> None:
    """One sum after the other, while now this rank is late, now that one."""
    for exchange in exchange_of_each_kind(world, 5 * RUN, world.size).values():
        for i in range(150):
            time.sleep(0.001 * ((i + world.rank) % 5 == 0))
            numbers = np.arange(5.0 * RUN) + i * world.rank
            expected = world.size * np.arange(5.0 * RUN) + i * world.size * (world.size - 1) / 2
            assert (add_up(exchange, numbers) == expected).all(), i


def begin_with_values(world: Communicator, directory: Path) -> None:
    """The values that ranks begin with are kept, and only with shared memory does one see what another writes."""
    initial = np.arange(200, dtype=np.float32)
    for kind in ("shared", "messages"):
        exchange = world_of_kind(kind).exchange(initial.copy(), lambda: np.zeros_like(initial), 2)
        assert (exchange.values == initial).all()
        assert not exchange.gradients.any()
        world.barrier()
        if world.rank == 1:
            exchange.values[0] = 7
        world.barrier()
        assert (exchange.values[0] == 7) == (kind == "shared" or world.rank == 1)


def share_no_memory(world: Communicator, directory: Path, reason: str) -> str:
    """One rank has no memory to share, or not where it says: then all send messages."""
    if world.rank == 1 and reason == "no room":
        os.posix_fallocate = refuse  # type: ignore[assignment]
    if world.rank == 1 and reason == "another process":
        os.fstat = lambda file: Path("/").stat()  # type: ignore[assignment]
    exchange = zeros_in(world, 99, 2)
    assert (add_up(exchange, np.full(99, world.rank + 1.0)) == 3).all()
    return exchange.said


def refuse(*_: object) -> None:
    raise OSError("no room")
