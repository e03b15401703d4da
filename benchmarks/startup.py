"""How long does it take from the command to the first translation?

    python benchmarks/startup.py [--rounds 7]

A unit of work is a process of its own that imports the package, loads a base model from disk and translates one line.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from contest import describe_machine

from minitransformer import ModelConfig, Transformer
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.files import MODEL_FILES
from minitransformer.system.checksums import check_files

CONFIG = ModelConfig(37_000)
WORDS = 30_000  # different ones, so that the tokenizer finds as many pieces
SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in "aeiou"]


def save_run(directory: Path) -> None:
    """Save a base model with random weights and a tokenizer of invented words, as a training run does."""
    random = np.random.default_rng(1)
    words = ["".join(random.choice(SYLLABLES, n)) for n in random.integers(2, 6, WORDS)]
    lines = [" ".join(random.choice(words, 12)) for _ in range(WORDS)]
    tokenizer = Tokenizer.train([(line, line) for line in lines], vocabulary_size=CONFIG.vocabulary_size)
    tokenizer.save(directory)
    Transformer(CONFIG).save(directory)


def seconds_to_first_line(run: Path) -> float:
    """Return the seconds from the start of ``minitransformer-translate`` to its first line, with greedy search."""
    command = [str(Path(sys.executable).with_name("minitransformer-translate")), "--run", str(run), "--beam", "1"]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"bada kelo\n")
    process.stdin.close()
    process.stdout.readline()
    seconds = time.perf_counter() - start
    process.wait()
    return seconds


def seconds_to_check(run: Path) -> float:
    """Compare configuration and weights with their checksums."""
    start = time.perf_counter()
    check_files(run, MODEL_FILES)
    return time.perf_counter() - start


def main() -> None:
    """Measure, and report median and spread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    describe_machine()
    with tempfile.TemporaryDirectory() as name:
        save_run(Path(name))
        seconds = [seconds_to_first_line(Path(name)) for _ in range(rounds)]
        checking = [seconds_to_check(Path(name)) for _ in range(rounds)]
    print(f"checksums of configuration and weights: {statistics.median(checking):.2f} s")
    print(f"first line after {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})")


if __name__ == "__main__":
    main()
