"""What share of an update do ranks spend on exchanging gradients and parameters, and how much memory do they take?

    python benchmarks/communication.py [tiny small-1024 base] [--ranks 2] [--rounds 5] [--messages]

Starts mpirun itself.  Updates are those of the training benchmark.  A barrier before each reduce_scatter and all_gather
separates the time that ranks wait for the slowest one from the time of the exchange.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contest import describe_machine
from training import ours
from workload import WORKLOADS


def be_rank(name: str, rounds: int, node_group: Callable[[int], int]) -> None:
    """Time updates in rounds, as one of the ranks; rank 0 prints a row of the table."""
    from mpi4py import MPI  # noqa: PLC0415 (importing it starts MPI, which only ranks shall do)

    from parallel.mpi import MpiCommunicator  # noqa: PLC0415

    world = MpiCommunicator(node_group=node_group)
    trainer, work = ours(WORKLOADS[name], world)
    waiting_for, exchanging_for = Clock(), Clock()

    def timed(step: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            with waiting_for:
                MPI.COMM_WORLD.Barrier()
            with exchanging_for:
                step(*arguments)

        return run

    reducer = trainer.reducer
    reducer.reduce_scatter, reducer.all_gather = timed(reducer.reduce_scatter), timed(reducer.all_gather)
    work()
    times = []
    for _ in range(rounds):
        waiting_for.seconds = exchanging_for.seconds = 0.0
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start, exchanging_for.seconds, waiting_for.seconds))
    seconds, exchanging, waiting = (statistics.median(column) for column in zip(*times, strict=True))
    n_updates = len(WORKLOADS[name].batches())
    shares = [100 * world.allreduce(part / seconds) / world.size for part in (exchanging, waiting)]
    megabytes = world.allreduce(proportional_kilobytes() / 1024)
    if world.rank == 0:
        per_update = [1e3 * part / n_updates for part in (seconds, exchanging)]
        figures = [f"{per_update[0]:.0f}", f"{per_update[1]:.1f}", *(f"{share:.1f} %" for share in shares)]
        print(f"| {' | '.join([name, *figures, f'{megabytes:,.0f}'])} |", flush=True)


class Clock:
    """A context that adds up the seconds spent in it."""

    seconds = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start


def proportional_kilobytes() -> int:
    """Return this process's memory in kB; each page shared by n processes counts 1/n (Linux's Pss)."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def main() -> None:
    """Start the ranks, or run as one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", action="store_true", help="as between machines")
    parser.add_argument("--rank", action="store_true")
    options = parser.parse_args()
    if options.rank:
        be_rank(options.workloads[0], options.rounds, lambda local_rank: local_rank * options.messages)
        return
    describe_machine("mpi4py", "mpich")
    columns = [
        f"{options.ranks} ranks",
        "update, ms",
        "exchange, ms",
        "its share",
        "waiting for the slower rank",
        "memory of all, MB",
    ]
    print(f"\n| {' | '.join(columns)} |\n{'|-' * 6}|", flush=True)
    mpirun = Path(sys.executable).with_name("mpirun")
    for name in options.workloads:
        words = [__file__, name, "--rank", "--rounds", str(options.rounds), *["--messages"] * options.messages]
        subprocess.run([mpirun, "-n", str(options.ranks), sys.executable, *words], check=True)


if __name__ == "__main__":
    main()
