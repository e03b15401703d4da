"""What ranks find out together: where they are, what they agree on, and what a sum costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from autograd import to_device, to_host
from autograd.array import Device, gpu_module
from minitransformer.doctor.finding import Finding
from parallel.agreement import checksum
from parallel.communicator import Communicator, SumOrder, working_ranks
from parallel.placement import Place, described, numbered
from parallel.route import choose_route

N_ELEMENTS = 1 << 22  # float32: 17 MB, so that starting a message does not count
ROUNDS = 5


def together(world: Communicator, places: list[Place], device: Device, n_shards: int, order: SumOrder) -> list[Finding]:
    """The same findings on every rank; all must call."""
    if world.size == 1:
        return [Finding("processes", f"1, on {places[0].host}")]
    route = choose_route(world, gpu_module(device), n_shards, order)
    n_working = working_ranks(world.size, n_shards, order)
    return [
        Finding("processes", "\n".join([f"{world.size} processes", *described(places)])),
        Finding("gradients", route.said.removeprefix("gradients ")),
        sum_over_ranks(world, device, n_working, route.add_up),
    ]


def sum_over_ranks(world: Communicator, device: Device, n_working: int, add_up: Callable[[Any], None]) -> Finding:
    """Adds numbers up, in rounds, whose sum is exact in any order; judges bits and speed."""
    numbers = np.arange(N_ELEMENTS, dtype=np.float32) % 1_021
    expected = checksum(n_working * numbers + n_working * (n_working - 1) // 2)
    mine = to_device(numbers + world.rank if world.rank < n_working else np.zeros_like(numbers), device)
    seconds = []
    for _ in range(ROUNDS):
        array = mine.copy()
        world.barrier()
        start = time.perf_counter()
        add_up(array)
        to_host(array[:1])  # a GPU may still be at work
        seconds.append(time.perf_counter() - start)
    sums = world.all_of(checksum(to_host(array)))
    slowest = max(world.all_of(statistics.median(seconds)))
    wrong = [rank for rank, found_sum in enumerate(sums) if found_sum != expected]
    speed = f"{array.nbytes / 1e6:.0f} MB in {1e3 * slowest:.1f} ms, {array.nbytes / slowest / 1e9:.2f} GB/s"
    if not wrong:
        return Finding("sum", f"{speed}; checksum {expected}, as it must be")
    remedy = "memory, network or MPI library lose data: try --training.sum fast, another library, fewer machines"
    return Finding("sum", f"{speed}; checksum wrong on {numbered('rank', wrong)}: not {expected}", remedy)
