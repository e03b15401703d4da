"""How much memory does it take to make text into batches, and does it grow with the text?

    python benchmarks/input_memory.py SOURCE TARGET [--times 1 4 16] [--sample 50000] [--shard 20000]
    python benchmarks/input_memory.py --pairs 1000000000 [--processes 1 4]

Prepares two files of parallel lines, repeated --times times, and reads the first batch of an epoch; each number of
times runs in a process of its own.  Prints the peak of resident memory in three stages: training the tokenizer, writing
tokens, and reading the batch (in brackets, the memory before the store is opened).  --sample (lines that train the
tokenizer) and --shard (pairs of a shard) replace the real limits, 5,000,000 and 500,000: a small corpus then exceeds
them as tens of millions of pairs exceed the real limits.

With --pairs, random lengths are written, 8 bytes a pair.  The files of tokens are sparse and take no space, because
planning does not read them.  The lengths are dropped from the page cache.  Then --processes processes run as ranks of
one machine: the first one opens the store, and all plan the first group of shards and read the first batch.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from contest import describe_machine

from minitransformer.config import DataConfig
from minitransformer.data import store, tokenizer
from minitransformer.data.batching import BatchOrder, read_batch
from minitransformer.data.prepare import prepare
from minitransformer.data.store import TokenStore
from parallel.communicator import call_on_rank_0
from parallel.launch import communicator

VOCABULARY, BATCH_TOKENS = 10_000, 25_000
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def memory(name: str) -> int:
    """Return megabytes of this process: "VmRSS" is its resident memory, "VmHWM" the peak since the last reset."""
    found = re.search(rf"^{name}:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    assert found
    return int(found[1]) // 1024


def peak() -> int:
    """Return the peak of resident memory since the last call, in megabytes."""
    most = memory("VmHWM")
    _CLEAR.write_text("5")  # man 5 proc: resets the mark
    return most


def first_batch(directory: Path) -> int:
    """Open the training pairs, plan, and read the first batch; return the number of all pairs."""
    pairs = call_on_rank_0(lambda: TokenStore(directory, "train"), communicator().node)
    order = BatchOrder(pairs, BATCH_TOKENS, seed=1)
    batch, (epoch, group, _) = order.next((0, 0, 0))
    read_batch(order.group(epoch, group)[0], batch)
    return len(pairs)


class StageNotes(logging.Handler):
    """A log handler that prints the peak of memory when the tokenizer has been trained."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "writing tokens":
            print(f"{peak():,} |", end=" ", flush=True)


def measure_text(source: str, target: str, times: int) -> None:
    """Print the peaks of the three stages, and the pairs."""
    config = DataConfig(train_source=(source,) * times, train_target=(target,) * times, vocabulary_size=VOCABULARY)
    logging.basicConfig(level=logging.INFO, handlers=[StageNotes()])
    print(f"| {times} |", end=" ", flush=True)
    with tempfile.TemporaryDirectory() as name:
        prepare(config, Path(name))
        print(f"{peak():,} |", end=" ", flush=True)
        before = memory("VmRSS")
        n_pairs = first_batch(Path(name))
        print(f"{peak():,} ({before:,}) | {n_pairs:,} |", flush=True)


def write_lengths(directory: Path, n_pairs: int) -> None:
    """Write shards of random lengths, of 30 tokens a side on average; the files of tokens are sparse."""
    for number, start in enumerate(range(0, n_pairs, store.PAIRS_PER_SHARD)):
        shape = (min(store.PAIRS_PER_SHARD, n_pairs - start), 2)
        lengths = np.random.default_rng(number).integers(1, 60, shape, np.int32)
        np.save(directory / f"train-{number:05d}.lengths.npy", lengths)
        for side, n_tokens in zip(store.SIDES, lengths.sum(axis=0).tolist(), strict=True):
            with (directory / f"train-{number:05d}.{side}.npy").open("wb") as stream:
                header = {"descr": "<u2", "fortran_order": False, "shape": (n_tokens,)}
                np.lib.format.write_array_header_1_0(stream, header)
                stream.truncate(stream.tell() + 2 * n_tokens)


def drop_from_page_cache(directory: Path) -> None:
    """Let the next reader read the lengths from the disk."""
    for path in directory.glob("*.lengths.npy"):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cpu_seconds() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_lengths(n_pairs: int, processes: list[int]) -> None:
    """Print the most memory of a process, the sum over processes, wall time and CPU time."""
    print("| pairs | processes | most of one, MB | all, MB | seconds | CPU seconds of all |\n|-|-|-|-|-|-|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        write_lengths(Path(name), n_pairs)
        for n in processes:
            drop_from_page_cache(Path(name))
            start, cpu = time.perf_counter(), cpu_seconds()
            command = ["mpirun", "-n", str(n), sys.executable, __file__, name, "--here"]
            lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
            seconds, cpu, peaks = time.perf_counter() - start, cpu_seconds() - cpu, list(map(int, lines))
            print(f"| {n_pairs:,} | {n} | {max(peaks):,} | {sum(peaks):,} | {seconds:.1f} | {cpu:.1f} |", flush=True)


def main() -> None:
    """Measure every size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--times", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--sample", type=int, default=tokenizer.MAX_TRAINING_SENTENCES)
    parser.add_argument("--shard", type=int, default=store.PAIRS_PER_SHARD)
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--processes", type=int, nargs="+", default=[1])
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here and len(options.files) == 1:
        first_batch(Path(options.files[0]))
        print(f"{peak()}\n", end="", flush=True)  # in one write, or the lines of ranks mix
    elif options.here:
        tokenizer.MAX_TRAINING_SENTENCES, store.PAIRS_PER_SHARD = options.sample, options.shard
        measure_text(*options.files, options.times[0])
    elif options.pairs:
        describe_machine("numpy")
        measure_lengths(options.pairs, options.processes)
    else:
        describe_machine("sentencepiece")
        print("| times | tokenizer, MB | writing, MB | epoch, MB (before) | pairs |\n|-|-|-|-|-|", flush=True)
        limits = ["--sample", str(options.sample), "--shard", str(options.shard)]
        for times in options.times:
            command = [sys.executable, __file__, *options.files, "--times", str(times), *limits, "--here"]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
