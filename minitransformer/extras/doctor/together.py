"""Checks of all ranks together: their placements, the reducer of gradients, and the speed and bits of a sum."""

from __future__ import annotations

import statistics
import time

import numpy as np

from autograd import namespace, to_host
from autograd.array import Device, gpu_module
from minitransformer.extras.doctor.finding import Finding
from parallel.agreement import checksum
from parallel.communicator import Communicator, SumOrder, working_ranks
from parallel.placement import Placement, describe, named_ranks
from parallel.reducer import GradientReducer, choose_reducer

N_ELEMENTS = 1 << 22  # float32: 17 MB, so that the latency of messages does not count
ROUNDS = 5


def together(
    world: Communicator, placements: list[Placement], device: Device, n_micro_batches: int, order: SumOrder
) -> list[Finding]:
    """Check all ranks together; return the same findings on every rank.  All ranks must call this."""
    if world.size == 1:
        return [Finding("processes", f"1, on {placements[0].host}")]
    reducer = choose_reducer(world, gpu_module(device), n_micro_batches, order)
    found = sum_over_ranks(world, reducer, working_ranks(world.size, n_micro_batches, order))
    return [
        Finding("processes", "\n".join([f"{world.size} processes", *describe(placements)])),
        Finding("gradients", reducer.description.removeprefix("gradients ")),
        found,
    ]


def sum_over_ranks(world: Communicator, reducer: GradientReducer, n_working: int) -> Finding:
    """Sum arrays over ranks several times; measure the speed and check the bits of the sum.

    The arrays hold small integers, so that the sum is exact in any order.
    """
    values, gradients = (array[:N_ELEMENTS] for array in reducer.allocate(N_ELEMENTS, np.float32))
    numbers = namespace(gradients).arange(N_ELEMENTS, dtype=np.float32) % 1_021
    expected = checksum(to_host(n_working * numbers + n_working * (n_working - 1) // 2))
    seconds = []
    for _ in range(ROUNDS):
        gradients[...] = numbers + world.rank
        world.barrier()
        start = time.perf_counter()
        reducer.reduce_scatter()
        for piece in reducer.pieces:
            values[piece] = gradients[piece]
        reducer.all_gather()
        to_host(values[:1])  # wait for the GPU
        seconds.append(time.perf_counter() - start)
    sums = world.allgather(checksum(to_host(values)))
    slowest = max(world.allgather(statistics.median(seconds)))
    wrong = [rank for rank, found_sum in enumerate(sums) if found_sum != expected]
    speed = f"{values.nbytes / 1e6:.0f} MB in {1e3 * slowest:.1f} ms, {values.nbytes / slowest / 1e9:.2f} GB/s"
    if not wrong:
        return Finding("sum", f"{speed}; checksum {expected}, as expected")
    remedy = 'memory, network or MPI library lose data: try training.sum = "fast", another library, fewer machines'
    return Finding("sum", f"{speed}; checksum wrong on {named_ranks(wrong)}: not {expected}", remedy)
