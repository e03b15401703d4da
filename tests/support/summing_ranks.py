"""Programs of ranks that add arrays up."""

import hashlib
import os
import socket
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast
from unittest import mock

import fake_cuda
import numpy as np
import pytest

from parallel.agreement import checksum
from parallel.communicator import ALIGNMENT, Communicator, SentIn, SumOrder, working_ranks
from parallel.reducer import GradientReducer, choose_reducer

ELEMENTS_AT_ONCE = 1 << 16  # in one message of ranks
N_SUMMED = ELEMENTS_AT_ONCE + 5
GPU_ELEMENTS_AT_ONCE, PINNED_BYTES = 46_000, 160_000
N_MICRO_BATCHES = 8

COPIES = ("upload", "read")  # between host and device, as the stand-in for CuPy calls them

NODE_GROUPS: dict[str, Callable[[int], int]] = {
    "shared": lambda local_rank: 0,
    "messages": lambda local_rank: local_rank,
    "pairs": lambda local_rank: local_rank // 2,
    "turns": lambda local_rank: local_rank % 2,
    "unequal": lambda local_rank: local_rank // 3,
}  # which ranks share memory, as if they alone were on one machine


def summand(rank: int) -> Any:
    return np.random.default_rng(rank).standard_normal(N_SUMMED, np.float32)


class Sums:
    def __init__(self, reducer: GradientReducer, size: int) -> None:
        self.reducer = reducer
        self.values, self.gradients = (array[:size] for array in reducer.allocate(size, np.float32))

    def allreduce(self, numbers: Any) -> Any:
        """The sum of all ranks' numbers, on all of them: an update that makes of a value its gradient."""
        self.gradients[...] = numbers
        self.reducer.reduce_scatter()
        for piece in self.reducer.pieces:
            self.values[piece] = self.gradients[piece]
        self.reducer.all_gather()
        return self.values


def sums_of(world: Communicator, size: int, order: SumOrder = "exact", sent_in: SentIn = "float32") -> Sums:
    return Sums(choose_reducer(world, None, N_MICRO_BATCHES, order, sent_in, n_threads=2), size)


def sums_of_each_kind(size: int) -> dict[str, Sums]:
    return {kind: sums_of(world_of_kind(kind), size) for kind in NODE_GROUPS}


def world_of_kind(kind: str) -> Communicator:
    from parallel.mpi import MpiCommunicator

    return MpiCommunicator(node_group=NODE_GROUPS[kind])


def sum_summands(world: Communicator, directory: Path) -> dict[str, Any]:
    """What a rank has in the end, and what rank 0 can put together of shards, by each division into nodes."""
    result: dict[str, Any] = {}
    for kind, sums in sums_of_each_kind(N_SUMMED).items():
        array = sums.allreduce(summand(world.rank))
        whole = sums.reducer.gather(array[sums.reducer.pieces[0]].astype(np.float64))
        assert (whole is not None) == (world.rank == 0)
        assert whole is None or (whole.dtype == np.float64 and (whole == array).all())
        result[kind] = hashlib.blake2b(array).hexdigest()
        assert sums.reducer.seconds_waited > 0
    return result


def sum_rounded(world: Communicator, directory: Path, kind: str) -> str:
    sums = sums_of(world_of_kind(kind), N_SUMMED, sent_in="bfloat16")
    return hashlib.blake2b(sums.allreduce(summand(world.rank))).hexdigest()


def round_what_is_not_float32(world: Communicator, directory: Path) -> str:
    reducer = choose_reducer(world_of_kind("messages"), None, N_MICRO_BATCHES, sent_in="bfloat16")
    with pytest.raises(ValueError, match="only float32 is sent") as error:
        reducer.allocate(9, np.float64)
    return str(error.value)


def count_what_leaves(world: Communicator, directory: Path, kind: str, sent_in: SentIn) -> list[int]:
    """Bytes that this rank sends to ranks of another pair: of gradients, and of values."""
    counting = CountingWorld(world_of_kind(kind))
    sums = sums_of(cast(Communicator, counting), N_SUMMED, sent_in=sent_in)
    sums.reducer.reduce_scatter()
    of_gradients, counting.n_bytes = counting.n_bytes, 0
    sums.reducer.all_gather()
    return [of_gradients, counting.n_bytes]


class WrappedWorld:
    def __init__(self, world: Communicator) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)


class CountingWorld(WrappedWorld):
    """A communicator, and the bytes that are sent out of a pair of ranks."""

    n_bytes = 0

    def sendrecv_array(self, sent: Any, received: Any, partner: int) -> None:
        self.n_bytes += sent.nbytes * (partner // 2 != self.rank // 2)
        self._world.sendrecv_array(sent, received, partner)


def sum_in_fast_order(world: Communicator, directory: Path) -> str:
    """Numbers so small that float32 adds them exactly, in any order; by every division into nodes."""
    numbers = np.arange(N_SUMMED, dtype=np.float32) % 1_021 + world.rank
    found = {checksum(sums_of(world_of_kind(kind), N_SUMMED, order="fast").allreduce(numbers)) for kind in NODE_GROUPS}
    assert len(found) == 1
    return found.pop()


def sum_on_gpus(
    world: Communicator, directory: Path, way: str, order: SumOrder, sent_in: SentIn = "float32", kind: str = "shared"
) -> dict[str, Any]:
    """Add up arrays of a stand-in for CuPy; ``way`` is what there is: "NCCL" or "nothing".

    ``kind`` divides the ranks into machines.
    """
    from minitransformer.system.ranks import choose_placements
    from parallel import device_reducer, nccl_reducer

    fake_cuda.CALLS.clear()
    cupy = fake_cuda.stand_in_for_cupy()
    fake_cuda.N_GPUS = 1 if way == "nothing" else world.size
    nccl_reducer.ELEMENTS_AT_ONCE = GPU_ELEMENTS_AT_ONCE
    device_reducer.PINNED_BYTES, nccl_reducer.RUN = PINNED_BYTES, 64
    placement = choose_placements("cuda", world)[world.rank]
    host = f"{socket.gethostname()}, {NODE_GROUPS[kind](world.rank)}"
    with mock.patch.object(socket, "gethostname", return_value=host):
        chosen = choose_reducer(world, cupy, N_MICRO_BATCHES, order, sent_in)
    sums = Sums(chosen, N_SUMMED)
    fake_cuda.CALLS[:] = [call for call in fake_cuda.CALLS if call[0] not in COPIES]
    cupy.cuda.set_allocator(cupy.cuda.MemoryPool().malloc)  # keeps freed memory for sums that the stream has not made
    array = sums.allreduce(cupy.asarray(summand(world.rank)))
    np.save(directory / f"{world.rank}.npy", array.get())
    exact = sum(summand(rank).astype(np.float64) for rank in range(working_ranks(world.size, N_MICRO_BATCHES, order)))
    return {
        "gpu": placement.gpu,
        "said": chosen.description,
        "calls": [call for call in fake_cuda.CALLS if call[0] not in (*COPIES, "event")],
        "sum": hashlib.blake2b(array.get()).hexdigest(),
        "error": float(np.abs(array.get() - exact).max()),
    }


def sum_often(world: Communicator, directory: Path) -> None:
    """One sum after the other, while now this rank is late, now that one."""
    n = 5 * ALIGNMENT
    for sums in sums_of_each_kind(n).values():
        for i in range(40):
            time.sleep(0.001 * ((i + world.rank) % 5 == 0))
            expected = world.size * np.arange(float(n)) + i * world.size * (world.size - 1) / 2
            assert (sums.allreduce(np.arange(float(n)) + i * world.rank) == expected).all(), i


def begin_with_values(world: Communicator, directory: Path) -> None:
    """Values and gradients begin as zeros, and only with shared memory does one rank see what another writes."""
    for kind in ("shared", "messages"):
        sums = sums_of(world_of_kind(kind), 200)
        assert not sums.values.any()
        assert not sums.gradients.any()
        world.barrier()
        if world.rank == 1:
            sums.values[0] = 7
        world.barrier()
        assert (sums.values[0] == 7) == (kind == "shared" or world.rank == 1)


def share_no_memory(world: Communicator, directory: Path, reason: str) -> str:
    """One rank has no memory to share, or not where it says: then all send messages."""
    name, instead = {
        "no room": ("posix_fallocate", refuse), "another process": ("fstat", lambda file: Path("/").stat())
    }[reason]  # fmt: skip
    with mock.patch.object(os, name, instead) if world.rank == 1 else nullcontext():
        sums = sums_of(world, 99)
    assert (sums.allreduce(np.full(99, world.rank + 1.0)) == 3).all()
    return sums.reducer.description


def refuse(*_: object) -> None:
    raise OSError("no room")
