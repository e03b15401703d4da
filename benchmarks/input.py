"""How fast is text made into batches?

    python benchmarks/input.py [SOURCE TARGET] [--rounds 5]

Prepares two files of parallel lines (or the demonstration's corpus), on one core: trains sentencepiece, encodes the
text, writes the tokens.
Then compares the time to plan, cut and read a batch with the time of an update of the small-1024 model.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from contest import describe_machine
from training import ours
from workload import WORKLOADS

from minitransformer.config import DataConfig
from minitransformer.data.batching import cut_into_micro_batches, plan_epoch, read_batch
from minitransformer.data.prepare import PreparedData, prepare
from minitransformer.data.store import Pairs
from minitransformer.inference.task import task_of

VOCABULARY = 10_000


def prepared(files: list[str], directory: Path) -> PreparedData:
    """Prepare both files, or the demonstration's corpus, from scratch; print the pairs per minute."""
    config = DataConfig()
    if files:
        source, target = files
        config = DataConfig(train_source=(source,), train_target=(target,), vocabulary_size=VOCABULARY)
    start = time.perf_counter()
    data = prepare(config, directory, task_of(config).corpus)
    minutes = (time.perf_counter() - start) / 60
    n_pairs = len(data.stores["train"])
    print(f"prepare: {n_pairs:,} pairs in {60 * minutes:.1f} s on one core: {n_pairs / minutes:,.0f} pairs a minute")
    return data


def seconds_of_a_batch(pairs: Pairs, batch_tokens: int) -> float:
    """Return the mean seconds of a batch: its share of the epoch's plan, cutting and reading it."""
    start = time.perf_counter()
    plan = plan_epoch(pairs.lengths, batch_tokens, seed=1, epoch=0)
    for batch in plan:
        for micro_batch in cut_into_micro_batches(batch, pairs.lengths, 2):
            read_batch(pairs, micro_batch)
    return (time.perf_counter() - start) / len(plan)


def main() -> None:
    """Measure the input and an update, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    describe_machine("sentencepiece")
    workload, cores = WORKLOADS["small-1024"], os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as name:
        os.sched_setaffinity(0, {min(cores)})
        data = prepared(options.files, Path(name))
        os.sched_setaffinity(0, cores)
        of_batch = seconds_of_a_batch(data.stores["train"].read(), workload.batch_tokens)
    (_, updates), n_batches, seconds = ours(workload), len(workload.batches()), []
    for _ in range(options.rounds):
        start = time.perf_counter()
        updates()
        seconds.append((time.perf_counter() - start) / n_batches)
    of_update = statistics.median(seconds)
    print(f"input of a batch of {workload.batch_tokens:,} tokens: {1e3 * of_batch:.1f} ms,", end=" ")
    print(f"{100 * of_batch / of_update:.1f} % of an update of the small-1024 model ({1e3 * of_update:.0f} ms)")


if __name__ == "__main__":
    main()
