"""Measure what training costs besides the arithmetic of its updates, and what texts cost beside their search.

    python benchmarks/costs.py python                          tape, dispatch and Python
    python benchmarks/costs.py input [SOURCE TARGET] [--noise capitals=0.05 …]           text made into batches
    python benchmarks/costs.py checkpoint [tiny small-1024 base] [--directory DIR]
    python benchmarks/costs.py exchange [tiny small-1024 base] [--ranks 2] [--messages]
    python benchmarks/costs.py texts [RUN]                 the road between a text and the sentences of a search

Updates are those of ``training.py``.

- ``python``: a model with as many layers as small-1024, but widths of at most 4, and sentences of one token, shows the
  part of an update that does not depend on the size of arrays.
- ``input``: two files of parallel lines (or the demonstration's corpus) are prepared on one core: sentencepiece is
  trained, the text encoded, the tokens written.  Then batches are planned, cut and read; noise is put into an epoch.
- ``checkpoint``: the stall, from the end of an update until the next can begin, and how much slower updates are while
  the checkpoint is written.
- ``exchange``: a barrier before each reduce_scatter and all_gather separates the time that ranks wait for the slowest
  one from the time of the exchange.  Starts mpirun itself.
- ``texts``: held-out lines of one sentence are translated by ``translate`` and by the model alone, in turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from contest import describe_machine
from training import ours
from workload import WORKLOADS

from autograd import RandomStream, backward
from autograd.blas import product_threads
from minitransformer import Batch, Transformer, Translator
from minitransformer.config import DataConfig, TrainingConfig
from minitransformer.data.batching import cut_into_micro_batches, plan_epoch, read_batch
from minitransformer.data.prepare import PreparedData, prepare
from minitransformer.data.store import Pairs
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.task import task_of
from minitransformer.training.checkpoint import CheckpointWriter, Snapshot
from minitransformer.training.noisy_pairs import NoisyPairs

SMALL = WORKLOADS["small-1024"]
VOCABULARY, N_LINES = 10_000, 10_000


def seconds_of(work: Callable[[], object]) -> float:
    """Return the time of some work."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median_seconds(work: Callable[[], object], rounds: int) -> float:
    """Return the median seconds of ``rounds`` calls, after one call that does not count."""
    work()
    return statistics.median(seconds_of(work) for _ in range(rounds))


def measure_python(options: argparse.Namespace) -> None:
    """Report the time of a micro-batch, and the part of it that does not depend on the size of arrays."""
    minute = dataclasses.replace(SMALL.config, vocabulary_size=4, d_model=4, d_ff=4, d_k=1, d_v=1)
    sources, targets = map(list, zip(*SMALL.batches()[0][::2], strict=True))

    def update(model: Transformer, batch: Batch) -> Callable[[], None]:
        return lambda: backward(model.loss(batch, RandomStream(1)))

    with product_threads(1):  # as a thread of training computes it
        empty = median_seconds(update(Transformer(minute), Batch.from_token_ids([[3]], [[3]])), 7 * options.rounds)
        full = median_seconds(update(Transformer(SMALL.config), Batch.from_token_ids(sources, targets)), options.rounds)
    print(f"a micro-batch of the small-1024 model: {1e3 * full:.0f} ms, of which {1e3 * empty:.2f} ms", end=" ")
    print(f"({100 * empty / full:.1f} %)\ndo not depend on the size of arrays: tape, dispatch, Python, calls of NumPy")


def measure_input(options: argparse.Namespace) -> None:
    """Report the pairs prepared in a minute, and the time of a batch beside that of an update."""
    cores = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as name:
        os.sched_setaffinity(0, {min(cores)})
        data = prepared(options.of, Path(name))
        if options.noise:
            measure_noise(options.noise, data)
        os.sched_setaffinity(0, cores)
        of_batch = seconds_of_a_batch(data.stores["train"].read(), SMALL.batch_tokens)
    of_update = median_seconds(ours(SMALL)[1], options.rounds) / len(SMALL.batches())
    print(f"input of a batch of {SMALL.batch_tokens:,} tokens: {1e3 * of_batch:.1f} ms,", end=" ")
    print(f"{100 * of_batch / of_update:.2f} % of an update of the small-1024 model ({1e3 * of_update:.0f} ms)")


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


def measure_noise(noise: list[str], data: PreparedData) -> None:
    """Report the CPU time that noise of ``training.noise`` takes for a batch: its share of an epoch's."""
    store, shares = data.stores["train"], TrainingConfig(noise=tuple(noise)).noise_shares
    pairs = NoisyPairs(store, data.tokenizer, shares, [None, None], 5 * store.longest, seed=1)
    start = time.process_time()
    noisy = pairs.read(range(len(pairs.shard_sizes)), 0)
    seconds = time.process_time() - start
    of_batch = seconds / len(plan_epoch(noisy.lengths, SMALL.batch_tokens, seed=1, epoch=0))
    print(f"noise in a batch of {SMALL.batch_tokens:,} tokens: {1e3 * of_batch:.2f} ms of CPU time")


def seconds_of_a_batch(pairs: Pairs, batch_tokens: int) -> float:
    """Return the mean seconds of a batch: its share of the epoch's plan, cutting and reading it."""
    start = time.perf_counter()
    plan = plan_epoch(pairs.lengths, batch_tokens, seed=1, epoch=0)
    for batch in plan:
        for micro_batch in cut_into_micro_batches(batch, pairs.lengths, 2):
            read_batch(pairs, micro_batch)
    return (time.perf_counter() - start) / len(plan)


def measure_checkpoints(options: argparse.Namespace) -> None:
    """Measure each workload's checkpoints."""
    for name in options.of or WORKLOADS:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            measure_checkpoint(name, options.rounds, Path(directory))


def measure_checkpoint(name: str, rounds: int, directory: Path) -> None:
    """Alternate updates without and with a checkpoint, and report medians."""
    trainer, updates = ours(WORKLOADS[name])
    writer = CheckpointWriter(directory, keep=1)
    updates()

    def save() -> None:
        writer.save(Snapshot.of(trainer.model, trainer.optimizer, trainer.state))

    first_stall, alone = seconds_of(save), seconds_of(writer.wait)
    without, stalls, beside = [], [], []
    for _ in range(rounds):
        without.append(seconds_of(updates))
        stalls.append(seconds_of(save))
        beside.append(seconds_of(updates))
        writer.wait()
        if failure := writer.failure():
            raise failure
    n, size = len(WORKLOADS[name].batches()), sum(path.stat().st_size for path in directory.rglob("*.safetensors"))
    update, stall = statistics.median(without) / n, statistics.median(stalls)
    slower = statistics.median(b / w for b, w in zip(beside, without, strict=True)) - 1
    print(f"{name}: an update takes {update:.3f} s; a checkpoint has {size / 1e6:,.0f} MB")
    print(f"stall: {1e3 * stall:.0f} ms ({min(stalls):.3f} to {max(stalls):.3f} s), {stall / update:.1%} of an update")
    print(f"the first stall, which allocates the copy: {1e3 * first_stall:.0f} ms")
    print(f"the write takes {alone:.2f} s alone; beside it {n} updates take {slower:+.1%} of the time without it")


def measure_exchange(options: argparse.Namespace) -> None:
    """Start the ranks for each workload; rank 0 prints its row of the table."""
    columns = "update, ms", "exchange, ms", "its share", "waiting for the slower rank", "memory of all, MB"
    print(f"\n| {' | '.join([f'{options.ranks} ranks', *columns])} |\n{'|-' * 6}|", flush=True)
    mpirun = Path(sys.executable).with_name("mpirun")
    for name in options.of or WORKLOADS:
        words = [__file__, "rank", name, "--rounds", str(options.rounds), *["--messages"] * options.messages]
        subprocess.run([mpirun, "-n", str(options.ranks), sys.executable, *words], check=True)


def be_rank(options: argparse.Namespace) -> None:
    """Time updates in rounds, as one of the ranks; rank 0 prints a row of the table."""
    from mpi4py import MPI  # noqa: PLC0415 (importing it starts MPI, which only ranks shall do)

    from parallel.mpi import MpiCommunicator  # noqa: PLC0415

    world = MpiCommunicator(node_group=lambda local_rank: local_rank * options.messages)
    (name,) = options.of
    trainer, updates = ours(WORKLOADS[name], world)
    waits, exchanges = [0.0], [0.0]

    def timed(step: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            waits[-1] += seconds_of(MPI.COMM_WORLD.Barrier)
            exchanges[-1] += seconds_of(lambda: step(*arguments))

        return run

    reducer = trainer.reducer
    reducer.reduce_scatter, reducer.all_gather = timed(reducer.reduce_scatter), timed(reducer.all_gather)
    updates()
    times = []
    for _ in range(options.rounds):
        waits.append(0.0)
        exchanges.append(0.0)
        times.append(seconds_of(updates))
    seconds, exchange, wait = (statistics.median(x[-options.rounds :]) for x in (times, exchanges, waits))
    shares = [100 * world.allreduce(part / seconds) / world.size for part in (exchange, wait)]
    megabytes = world.allreduce(proportional_kilobytes() / 1024)
    if world.rank == 0:
        per_update = [1e3 * part / len(WORKLOADS[name].batches()) for part in (seconds, exchange)]
        figures = [f"{per_update[0]:.0f}", f"{per_update[1]:.1f}", *(f"{share:.1f} %" for share in shares)]
        print(f"| {' | '.join([name, *figures, f'{megabytes:,.0f}'])} |", flush=True)


def proportional_kilobytes() -> int:
    """Return this process's memory in kB; each page shared by n processes counts 1/n (Linux's Pss)."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def measure_texts(options: argparse.Namespace) -> None:
    """Report how much longer the road takes than the model alone: one by one, and for many lines."""
    run = Path(*options.of or ["runs/demo"])
    translator, rows = Translator.load(run), (run / "translations.jsonl").read_text(encoding="utf-8").splitlines()
    lines = [line for row in rows if not re.search(r"[.?!][\"“”]? ", line := json.loads(row)["source"])]
    many = (lines * (N_LINES // len(lines) + 1))[:N_LINES]
    works: dict[str, Callable[[Callable[[list[str]], object]], object]] = {
        "one sentence": lambda translate: [translate([line]) for line in lines[:200]],
        f"{N_LINES:,} lines": lambda translate: translate(many),
    }
    ways = translator.translate, lambda lines: translator.n_best(lines, SearchConfig())
    for name, work in works.items():
        turns = [[seconds_of(partial(work, each)) for each in ways] for _ in range(7)]
        ratios = [road / search for road, search in turns]
        spread = f"({min(ratios):.3f} to {max(ratios):.3f})"
        print(f"{name}: {statistics.median(ratios):.3f} times the model alone {spread}")


COSTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "python": measure_python,
    "input": measure_input,
    "checkpoint": measure_checkpoints,
    "exchange": measure_exchange,
    "texts": measure_texts,
}


def main() -> None:
    """Measure a cost, or run as a rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cost", choices=[*COSTS, "rank"])
    parser.add_argument("of", nargs="*", help="workloads, files of text, or a run")
    parser.add_argument("--noise", nargs="*", default=[], help="kinds and shares, as in training.noise")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="on the file system to measure")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--messages", action="store_true", help="as between machines")
    options = parser.parse_args()
    if options.cost == "rank":
        be_rank(options)
        return
    describe_machine(*(["mpi4py", "mpich"] if options.cost == "exchange" else ["sentencepiece"]))
    COSTS[options.cost](options)


if __name__ == "__main__":
    main()
