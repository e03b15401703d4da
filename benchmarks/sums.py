"""What does it cost to add up gradients over ranks, compared with MPI's and PyTorch's own sums?

    python benchmarks/sums.py [2 4 8] [--rounds 7] [--elements 65000000]

Starts mpirun itself, once for every number of ranks.  The methods take turns within one run.  Ours gives the same bits
for any number of ranks; the others do not promise that.  Ours does the steps of an update: a reduce_scatter of the
gradients, a copy of each shard into the values (in the place of Adam), and an all_gather of the values, after which
every rank has the whole sum.  The time is that of the slowest rank.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from contest import describe_machine

from parallel.communicator import ELEMENTS_AT_ONCE
from parallel.reducer import choose_reducer


@dataclass
class Way:
    """A method to add up ``summands`` over ranks; the sums are then in ``sums`` on every rank."""

    summands: np.ndarray
    add_up: Callable[[], None]
    sums: np.ndarray


def ours(n_elements: int, node_group: Callable[[int], int]) -> Way:
    """Return the method of our reducer; ranks of one node group share memory."""
    from parallel.mpi import MpiCommunicator  # noqa: PLC0415 (importing it starts MPI, which only ranks shall do)

    world = MpiCommunicator(node_group=node_group)
    reducer = choose_reducer(world, None, world.size)
    values, gradients = (array[:n_elements] for array in reducer.allocate(n_elements, np.float32))

    (shard,) = reducer.pieces

    def add_up() -> None:
        reducer.reduce_scatter()
        values[shard] = gradients[shard]
        reducer.all_gather()

    return Way(gradients, add_up, values)


def ways(directory: Path, array: np.ndarray) -> dict[str, Way]:
    """Return every method to add up an array over all ranks, by name."""
    from mpi4py import MPI  # noqa: PLC0415

    world = MPI.COMM_WORLD

    def in_pieces() -> None:
        for start in range(0, array.size, ELEMENTS_AT_ONCE):
            world.Allreduce(MPI.IN_PLACE, array[start : start + ELEMENTS_AT_ONCE])

    found = {
        "ours": ours(array.size, lambda local_rank: 0),
        "ours, by messages, as between machines": ours(array.size, lambda local_rank: local_rank),
        "MPI.Allreduce in pieces": Way(array, in_pieces, array),
        "MPI.Allreduce at once": Way(array, lambda: world.Allreduce(MPI.IN_PLACE, array), array),
    }
    if importlib.util.find_spec("torch"):
        import torch  # noqa: PLC0415
        from torch import distributed  # noqa: PLC0415

        torch.set_num_threads(1)
        store = f"file://{directory / 'gloo'}"
        distributed.init_process_group("gloo", init_method=store, rank=world.rank, world_size=world.size)
        found["torch.distributed, gloo"] = Way(array, lambda: distributed.all_reduce(torch.from_numpy(array)), array)
    return found


def be_rank(directory: Path, rounds: int, n_elements: int) -> None:
    """Time all methods in turns, as one of the ranks; rank 0 writes the seconds of the slowest rank."""
    from mpi4py import MPI  # noqa: PLC0415

    world = MPI.COMM_WORLD
    seconds: dict[str, list[float]] = {}
    all_ways = ways(directory, np.zeros(n_elements, np.float32))
    for number in range(rounds + 1):
        for name, way in all_ways.items():
            way.summands[...] = world.rank
            world.Barrier()
            start = time.perf_counter()
            way.add_up()
            slowest = world.allreduce(time.perf_counter() - start, op=MPI.MAX)
            assert (way.sums == world.size * (world.size - 1) / 2).all(), name
            world.Barrier()
            if number:
                seconds.setdefault(name, []).append(slowest)
    if world.rank == 0:
        (directory / "seconds.json").write_text(json.dumps(seconds), encoding="utf-8")


def bench(n_ranks: int, rounds: int, n_elements: int) -> None:
    """Start the ranks, and print a table."""
    mpirun = Path(sys.executable).with_name("mpirun")
    with tempfile.TemporaryDirectory() as name:
        words = [__file__, "--rank-of", name, "--rounds", str(rounds), "--elements", str(n_elements)]
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        subprocess.run([mpirun, "-n", str(n_ranks), sys.executable, *words], check=True, env=environment)
        seconds = json.loads((Path(name) / "seconds.json").read_text(encoding="utf-8"))
    ours = statistics.median(seconds["ours"])
    print(f"\n| {n_ranks} ranks | ms, median (least to greatest) | ours takes … of its time |\n|-|-|-|")
    for way, times in seconds.items():
        median = statistics.median(times)
        spread = f"{1e3 * median:.0f} ({1e3 * min(times):.0f} to {1e3 * max(times):.0f})"
        print(f"| {way} | {spread} | {ours / median:.2f} |", flush=True)


def main() -> None:
    """Start the ranks, or run as one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ranks", nargs="*", type=int, default=[2, 4, 8])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--elements", type=int, default=65_000_000)
    parser.add_argument("--rank-of", type=Path)
    options = parser.parse_args()
    if options.rank_of:
        be_rank(options.rank_of, options.rounds, options.elements)
        return
    describe_machine("mpi4py", "mpich")
    print(f"{options.elements:,} float32 ({4e-6 * options.elements:,.0f} MB)")
    for n_ranks in options.ranks:
        bench(n_ranks, options.rounds, options.elements)


if __name__ == "__main__":
    main()
