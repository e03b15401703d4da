"""Whoever reads a file is fed with corrupt ones: a short run of tests/fuzz.py, and the whole of it as a slow test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from fuzzed_readers import READERS

FUZZ = Path(__file__).parent / "fuzz.py"


def fuzzed(n_inputs: int, *options: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FUZZ), "--inputs", str(n_inputs), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr
    counted = re.findall(rf"^(\S+): {n_inputs:,} inputs, .* 0 faults", done.stdout, re.MULTILINE)
    assert counted == (list(READERS) if not options else [options[1]])


@pytest.mark.parametrize("reader", READERS)
def test_corrupt_files_end_in_our_own_errors(reader: str) -> None:
    fuzzed(200, "--reader", reader)


@pytest.mark.slow
def test_many_corrupt_files_end_in_our_own_errors() -> None:
    fuzzed(1_000)


def test_an_input_can_be_repeated_alone() -> None:
    code = f"""
import runpy, sys
sys.path[:0] = [{str(FUZZ.parent / "support")!r}, {str(FUZZ.parent.parent)!r}]
fuzz = runpy.run_path({str(FUZZ)!r})
fuzz["fuzz"].__globals__["try_input"] = lambda reader, directory, files, key: key
print(fuzz["fuzz"](fuzz["READERS"]["run"], "run", 3, range(17, 19)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert re.findall(r"^fault .*:\n(.*)", done.stdout, re.MULTILINE) == ["3 run 17", "3 run 18"], done.stderr


def test_a_reader_that_fails_otherwise_is_found() -> None:
    code = f"""
import dataclasses, runpy, sys
sys.path[:0] = [{str(FUZZ.parent / "support")!r}, {str(FUZZ.parent.parent)!r}]
from fuzzed_readers import READERS
sys.argv[1:] = ["--inputs", "40", "--reader", "run"]
READERS["run"] = dataclasses.replace(READERS["run"], read=lambda directory: 1 / 0)
runpy.run_path({str(FUZZ)!r}, run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "40 faults" in done.stdout
    assert "fault (--reader run --seed 0, input 0)" in done.stdout
