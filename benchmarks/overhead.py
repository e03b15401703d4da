"""What do tape, dispatch and Python cost, and a loop written by hand, compared with the trainer's update?

    python benchmarks/overhead.py [--rounds 21] [--busy 1]

First, a model with as many layers as small-1024, but widths of at most 4, and sentences of one token: the time of its
forward and backward pass is the part that does not depend on the size of arrays.

Then the loop of docs/learn/library.md, while ``--busy`` other processes compute: the same update by the trainer, by
hand, and by hand with every matrix product on all threads of BLAS.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from contest import describe_machine
from threadpoolctl import threadpool_limits
from workload import WORKLOADS

from autograd import RandomStream, backward, blas
from autograd.malloc import keep_freed_memory
from autograd.optim import Adam
from minitransformer import Batch, Transformer, presets
from minitransformer.config import TrainingConfig
from minitransformer.training.update import GradientAccumulator, TrainingStep
from parallel.reducer import LocalReducer

UPDATES = 3  # of the loop, in one measurement


def micro_batch_pass(model: Transformer, batch: Batch) -> Callable[[], None]:
    """Return the forward and backward pass of a micro-batch, as a thread of training computes it."""
    return lambda: backward(model.loss(batch, RandomStream(1)))


def median_seconds(work: Callable[[], None], rounds: int) -> float:
    """Return the median seconds of ``rounds`` calls, after one call that does not count."""
    seconds = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


@contextmanager
def busy_processes(n: int) -> Iterator[None]:
    """Let ``n`` other processes compute within this context."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def updates_of_a_loop() -> dict[str, Callable[[], None]]:
    """Return three versions of an update of the loop of docs/learn/library.md."""
    model, random = Transformer(presets.tiny(vocabulary_size=13)), np.random.default_rng(1)
    sources = random.integers(3, 13, (32, 6)).tolist()
    batch = Batch.from_token_ids(sources, targets=[source[::-1] for source in sources])
    adam = Adam(model.parameters)
    step = TrainingStep(
        GradientAccumulator(model, n_threads=1), LocalReducer(), adam, TrainingConfig(n_micro_batches=1), [0]
    )
    lengths = [np.full((32, 2), 7)]

    def by_trainer() -> None:
        assert step([batch], 1, lengths).is_finite

    def by_hand() -> None:
        backward(model.loss(batch, RandomStream(seed=1, update=1)))
        adam.step(learning_rate=1e-3, step=1, n_tokens=batch.n_target_tokens, max_norm=1.0)

    def on_all_threads() -> None:
        blas.SMALL, small = 0, blas.SMALL
        try:
            by_hand()
        finally:
            blas.SMALL = small

    return {"the trainer's": by_trainer, "by hand": by_hand, "by hand, products on all threads": on_all_threads}


def measure_loop(rounds: int, n_busy: int) -> None:
    """Report the times of the three updates, made in turns."""
    updates = updates_of_a_loop()
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in updates}
    with busy_processes(n_busy):
        for _ in range(rounds + 1):
            for name, update in updates.items():
                start, cpu = time.perf_counter(), time.process_time()
                for _ in range(UPDATES):
                    update()
                seconds[name].append((time.perf_counter() - start, time.process_time() - cpu))
    medians = {
        name: [1e3 / UPDATES * statistics.median(column) for column in zip(*times[1:], strict=True)]
        for name, times in seconds.items()
    }
    base = medians["the trainer's"]
    print(f"an update of a loop written by hand, beside {n_busy} busy processes; processor time in brackets")
    for name, (wall, cpu) in medians.items():
        print(f"{name}: {wall:.1f} ms ({cpu:.1f}), {wall / base[0]:.2f} ({cpu / base[1]:.2f}) times the trainer's")


def main() -> None:
    """Measure the overhead, then the loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--busy", type=int, default=1)
    options = parser.parse_args()
    keep_freed_memory()
    describe_machine()
    measure_overhead(options.rounds)
    measure_loop(options.rounds, options.busy)


def measure_overhead(rounds: int) -> None:
    """Report the time of a micro-batch, and the part of it that does not depend on the size of arrays."""
    workload = WORKLOADS["small-1024"]
    minute = dataclasses.replace(workload.config, vocabulary_size=4, d_model=4, d_ff=4, d_k=1, d_v=1)
    sources, targets = zip(*workload.batches()[0][::2], strict=True)
    with threadpool_limits(1, user_api="blas"):
        empty = median_seconds(micro_batch_pass(Transformer(minute), Batch.from_token_ids([[3]], [[3]])), rounds)
        full = median_seconds(
            micro_batch_pass(Transformer(workload.config), Batch.from_token_ids(list(sources), list(targets))),
            rounds // 3,
        )
    print(
        f"a micro-batch of the small-1024 model: {1e3 * full:.0f} ms, of which {1e3 * empty:.2f} ms"
        f" ({100 * empty / full:.1f} %)"
    )
    print("do not depend on the size of arrays: tape, dispatch, Python, the calls of NumPy")


if __name__ == "__main__":
    main()
