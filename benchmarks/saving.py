"""How long does training stop for a checkpoint, and does writing it slow the updates down?

    python benchmarks/saving.py [--model base] [--every 10] [--rounds 3] [--directory DIR]

A round has ``every`` updates without a checkpoint, then a checkpoint and ``every`` updates while it is written in the
background.  Reports the stall (from the end of an update until the next can begin), the slowdown of the second half of
a round, and the time of the same write without updates.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from contest import describe_machine
from threadpoolctl import threadpool_limits
from workload import WORKLOADS, IdPairs

from autograd import RandomStream
from autograd.malloc import keep_freed_memory
from autograd.optim import Adam
from minitransformer import Batch, Transformer
from minitransformer.system.threads import available_cores
from minitransformer.training.checkpoint import CheckpointWriter, Snapshot
from minitransformer.training.state import TrainingState
from minitransformer.training.update import GradientAccumulator


class Updates:
    """A training without a ``Trainer``, in two micro-batches for each batch."""

    def __init__(self, name: str) -> None:
        self.model = Transformer(WORKLOADS[name].config, seed=1)
        self.adam = Adam(self.model.parameters)
        n_threads = available_cores()
        self._gradient = GradientAccumulator(self.model, n_threads=n_threads)
        self._batches: Iterator[IdPairs] = itertools.cycle(WORKLOADS[name].batches())
        self.step = 0

    def update(self) -> None:
        """Make one update."""
        self.step += 1
        pairs = next(self._batches)
        halves = [Batch.from_token_ids(*map(list, zip(*half, strict=True))) for half in (pairs[0::2], pairs[1::2])]
        self._gradient.compute(halves, [RandomStream(1, self.step, micro_batch) for micro_batch in range(2)])
        self.adam.step(1e-4, self.step)

    def seconds_of(self, n: int) -> float:
        """Return the seconds of ``n`` updates."""
        start = time.perf_counter()
        for _ in range(n):
            self.update()
        return time.perf_counter() - start

    def snapshot(self) -> Snapshot:
        """Return the content of a checkpoint at this update."""
        return Snapshot.of(self.model, self.adam, TrainingState(self.step))


def measure(updates: Updates, run: Path, every: int, rounds: int) -> None:
    """Alternate updates without and with a checkpoint, and print medians."""
    writer = CheckpointWriter(run, keep=1)
    updates.seconds_of(2)
    start = time.perf_counter()
    writer.save(updates.snapshot())
    first_stall = time.perf_counter() - start
    writer.wait()
    alone = time.perf_counter() - start - first_stall
    without, beside, stalls = [], [], []
    for _ in range(rounds):
        without.append(updates.seconds_of(every))
        start = time.perf_counter()
        writer.save(updates.snapshot())
        stalls.append(time.perf_counter() - start)
        beside.append(updates.seconds_of(every))
        writer.wait()
        failure = writer.failure()
        if failure:
            raise failure
    update, stall = statistics.median(without) / every, statistics.median(stalls)
    slower = statistics.median(b / w for b, w in zip(beside, without, strict=True)) - 1
    size = sum(path.stat().st_size for path in run.rglob("*.safetensors"))
    print(f"an update takes {update:.3f} s; a checkpoint has {size / 1e6:,.0f} MB")
    print(f"stall: {1e3 * stall:.0f} ms ({min(stalls):.3f} to {max(stalls):.3f} s), {stall / update:.1%} of an update;")
    print(f"the first one, which makes the room for the copy: {1e3 * first_stall:.0f} ms")
    print(f"the write takes {alone:.2f} s alone; beside it {every} updates take {slower:+.1%} of the time without it")


def main() -> None:
    """Print the stall and the slowdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=WORKLOADS, default="base")
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None, help="on the file system to measure")
    options = parser.parse_args()
    keep_freed_memory()
    describe_machine()
    with tempfile.TemporaryDirectory(dir=options.directory) as name, threadpool_limits(1, user_api="blas"):
        measure(Updates(options.model), Path(name), options.every, options.rounds)


if __name__ == "__main__":
    main()
