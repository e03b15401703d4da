"""Which operations take the time of an update, and how much does a second thread slow the first?

    python benchmarks/operations.py [tiny] [--rounds 20]

Measures forward and backward of a micro-batch (half a batch), operation by operation: alone, then while another thread
computes the other micro-batch.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from contest import describe_machine
from threadpoolctl import threadpool_limits
from workload import WORKLOADS

from autograd import RandomStream, backward
from autograd.malloc import keep_freed_memory
from autograd.op import Operation, observed
from minitransformer import Batch, Transformer

ALL, REST = "everything", "gradients of weights, and what is no operation"


class Stopwatch(threading.local):
    """A stopwatch with the seconds of each operation on this thread."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` so that its time is added to that of ``name``."""

        def run(*arguments: Any, **static: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments, **static)
            self.seconds[name] += time.perf_counter() - start
            return result

        return run


WATCH = Stopwatch()


def timed(operation: Operation, run: Callable[..., Any], *arguments: Any, **static: Any) -> Any:
    """Run an observed operation and time it, forward and backward."""
    value, of_value = WATCH.timed(operation.__name__, run)(*arguments, **static)
    return value, WATCH.timed(operation.__name__, of_value)


def measure(micro_batches: list[Callable[[], None]], rounds: int) -> dict[str, float]:
    """Run all ``micro_batches`` in parallel; return the median seconds of the first one, by operation."""
    kept: list[Counter[str]] = []

    def work(micro_batch: Callable[[], None], keep: bool) -> None:
        for _ in range(rounds + 1):
            WATCH.seconds.clear()
            with observed(timed):
                WATCH.timed(ALL, micro_batch)()
            WATCH.seconds[REST] = 2 * WATCH.seconds[ALL] - WATCH.seconds.total()
            if keep:
                kept.append(Counter(WATCH.seconds))

    threads = [threading.Thread(target=work, args=(micro_batch, i == 0)) for i, micro_batch in enumerate(micro_batches)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: statistics.median(seconds[name] for seconds in kept[1:]) for name in kept[-1]}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", nargs="?", choices=list(WORKLOADS), default="tiny")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    keep_freed_memory()
    describe_machine()
    workload = WORKLOADS[options.workload]
    model, pairs = Transformer(workload.config), workload.batches()[0]
    gradients = [model.parameters.gradients, model.parameters.gradients.copy()]

    def micro_batch(i: int) -> Callable[[], None]:
        sources, targets = zip(*pairs[i::2], strict=True)
        batch = Batch.from_token_ids(list(sources), list(targets))
        return lambda: backward(model.loss(batch, RandomStream(1, 1, i)), into=gradients[i])

    with threadpool_limits(1, user_api="blas"):
        alone = measure([micro_batch(0)], options.rounds)
        beside = measure([micro_batch(0), micro_batch(1)], options.rounds)
    print("\n| ms | alone | beside another thread |\n|-|-|-|")
    for name in sorted(beside, key=lambda name: -beside[name]):
        print(f"| {name} | {1e3 * alone[name]:.1f} | {1e3 * beside[name]:.1f} |")


if __name__ == "__main__":
    main()
