"""Whoever reads a file is fed with corrupt ones: a short run of tests/fuzz.py, and the whole of it as a slow test."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import READERS, fuzz, main

FUZZ = Path(__file__).parent / "fuzz.py"


@pytest.mark.parametrize("reader", READERS)
def test_corrupt_files_end_in_our_own_errors(reader: str) -> None:
    counts = fuzz(READERS[reader], reader, 0, range(80))
    assert (counts["accepted"] + counts["refused"], counts["fault"]) == (80, 0)


@pytest.mark.slow
def test_many_corrupt_files_end_in_our_own_errors() -> None:
    command = [sys.executable, str(FUZZ), "--inputs", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr
    assert re.findall(r"^(\S+): 1,000 inputs, .* 0 faults", done.stdout, re.MULTILINE) == list(READERS)


def test_an_input_can_be_repeated_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tests.fuzz.try_input", lambda reader, directory, files, key: key)
    fuzz(READERS["run"], "run", 3, range(17, 19))
    assert re.findall(r"^fault .*:\n(.*)", capsys.readouterr().out, re.MULTILINE) == ["3 run 17", "3 run 18"]


def test_other_failures_are_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["fuzz.py", "--inputs", "40", "--reader", "run"])
    monkeypatch.setitem(READERS, "run", dataclasses.replace(READERS["run"], read=lambda directory: 1 / 0))
    assert main() == 1
    output = capsys.readouterr().out
    assert "40 faults" in output
    assert "fault (--reader run --seed 0, input 0)" in output
