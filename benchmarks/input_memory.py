"""How much memory does it take to make text into batches, and does it grow with the text?

    python benchmarks/input_memory.py SOURCE TARGET [--times 1 4 16] [--sample 50000] [--shard 20000]

Prepares two files of parallel lines, repeated so many times, each time in a process of its own, and plans an epoch of
them.  Reports the greatest resident memory until the tokenizer was trained, while tokens were written, and while the
epoch was planned; the last one beside what it was before the store was opened.  --sample and --shard are the lines that
train the tokenizer and the pairs of a shard, in the place of the real numbers (5,000,000 and 500,000): so that a corpus
of this size is to them what one of tens of millions is to the real ones.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from contest import describe_machine

from minitransformer.config import DataConfig
from minitransformer.data import store, tokenizer
from minitransformer.data.batching import plan_epoch
from minitransformer.data.prepare import prepare

VOCABULARY, BATCH_TOKENS = 10_000, 25_000
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def memory(name: str) -> int:
    """Megabytes of this process: "VmRSS", what is resident, or "VmHWM", the most that was since the last reset."""
    found = re.search(rf"^{name}:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    assert found
    return int(found[1]) // 1024


def peak() -> int:
    """The greatest resident memory since the last call, in megabytes."""
    most = memory("VmHWM")
    _CLEAR.write_text("5")  # man 5 proc: resets the mark
    return most


def measure(source: str, target: str, times: int) -> None:
    """Print the peaks of the three stages, and the pairs."""
    config = DataConfig(train_source=(source,) * times, train_target=(target,) * times, vocabulary_size=VOCABULARY)

    def tell_of_tokenizer(line: str) -> None:
        if line == "writing tokens":
            print(f"| {times} | {peak():,} |", end=" ", flush=True)

    with tempfile.TemporaryDirectory() as name:
        data = prepare(config, Path(name), tell_of_tokenizer)
        print(f"{peak():,} |", end=" ", flush=True)
        before, pairs = memory("VmRSS"), data.store("train")
        plan_epoch(pairs.lengths, BATCH_TOKENS, seed=1, epoch=0)
        print(f"{peak():,} ({before:,}) | {len(pairs):,} |", flush=True)


def main() -> None:
    """Measure every size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs=2)
    parser.add_argument("--times", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--sample", type=int, default=tokenizer.MAX_TRAINING_SENTENCES)
    parser.add_argument("--shard", type=int, default=store.PAIRS_PER_SHARD)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        tokenizer.MAX_TRAINING_SENTENCES, store.PAIRS_PER_SHARD = options.sample, options.shard
        measure(*options.files, options.times[0])
        return
    describe_machine("sentencepiece")
    print("| times | tokenizer, MB | writing, MB | epoch, MB (before) | pairs |\n|-|-|-|-|-|", flush=True)
    limits = ["--sample", str(options.sample), "--shard", str(options.shard)]
    for times in options.times:
        command = [sys.executable, __file__, *options.files, "--times", str(times), *limits, "--here"]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
