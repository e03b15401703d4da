"""What share of an update do ranks spend on adding gradients up?

    python benchmarks/communication.py [tiny small base] [--ranks 2] [--rounds 5]

Starts mpirun itself.  Updates are those of the training benchmark; the time of a sum includes waiting for the slower
ranks to arrive.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from contest import describe_machine
from training import ours
from workload import WORKLOADS


def be_rank(name: str, rounds: int) -> None:
    """Update in rounds; rank 0 prints a row."""
    from mpi4py import MPI  # noqa: PLC0415 (importing it starts MPI, which only ranks shall do)

    from parallel.mpi import MpiCommunicator  # noqa: PLC0415

    class Timed(MpiCommunicator):
        """Adds up the seconds of sums, and of waiting before them."""

        waiting = adding = 0.0

        def sum_in_tree(self, array: Any, n_working: int) -> None:
            """See ``MpiCommunicator``."""
            start = time.perf_counter()
            MPI.COMM_WORLD.Barrier()
            together = time.perf_counter()
            super().sum_in_tree(array, n_working)
            self.waiting += together - start
            self.adding += time.perf_counter() - together

    world = Timed()
    work = ours(WORKLOADS[name], world)
    work()
    times = []
    for _ in range(rounds):
        world.waiting = world.adding = 0.0
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        times.append((seconds, world.adding, world.waiting))
    seconds, adding, waiting = (statistics.median(column) for column in zip(*times, strict=True))
    n_updates = len(WORKLOADS[name].batches())
    shares = [100 * world.sum_of_numbers(part / seconds) / world.size for part in (adding, waiting)]
    if world.rank == 0:
        per_update = [1e3 * part / n_updates for part in (seconds, adding)]
        row = [name, f"{per_update[0]:.0f}", f"{per_update[1]:.1f}", *(f"{share:.1f} %" for share in shares)]
        print(f"| {' | '.join(row)} |", flush=True)


def main() -> None:
    """Measure, or be a rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rank", action="store_true")
    options = parser.parse_args()
    if options.rank:
        be_rank(options.workloads[0], options.rounds)
        return
    describe_machine("mpi4py", "mpich")
    columns = [f"{options.ranks} ranks", "update, ms", "sum, ms", "its share", "waiting for the slower rank"]
    print(f"\n| {' | '.join(columns)} |\n{'|-' * 5}|", flush=True)
    mpirun = Path(sys.executable).with_name("mpirun")
    for name in options.workloads:
        words = [__file__, name, "--rank", "--rounds", str(options.rounds)]
        subprocess.run([mpirun, "-n", str(options.ranks), sys.executable, *words], check=True)


if __name__ == "__main__":
    main()
