"""What do tape, dispatch and Python cost?

    python benchmarks/overhead.py [--rounds 21]

The small-1024 model's layers with one number where it has hundreds, and sentences of one token: what is left of a
micro-batch's forward and backward pass is what does not depend on the size of arrays.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable

from contest import describe_machine
from threadpoolctl import threadpool_limits
from workload import WORKLOADS

from autograd import RandomStream, backward
from minitransformer import Batch, Transformer
from minitransformer.system.memory import keep_freed_memory


def micro_batch_pass(model: Transformer, batch: Batch) -> Callable[[], None]:
    """Forward and backward of a micro-batch, as a thread of training does them."""
    return lambda: backward(model.loss(batch, RandomStream(1)))


def median_seconds(work: Callable[[], None], rounds: int) -> float:
    """Of ``rounds`` calls, after one that does not count."""
    seconds = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def main() -> None:
    """Measure both, and report their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    keep_freed_memory()
    describe_machine()
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
