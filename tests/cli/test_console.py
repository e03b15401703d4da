"""The progress of a training, a translation and a parsing: plain lines in a file, a bar on a terminal."""

import dataclasses
import errno
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import numpy as np
import pytest
from rich.console import Console
from small_run import Command, Trained, changed, results_of, translated
from waiting import TIME_LIMIT

from cli import console as console_module
from cli.command import counting
from cli.console import Counter, log_console
from cli.translate import translate
from minitransformer.config import ModelConfig
from minitransformer.inference.bleu import Score
from minitransformer.model.transformer import Transformer
from minitransformer.training.callbacks import Callbacks, MetricsFile, TrainingReport, ValidationReport
from minitransformer.training.progress_bar import ProgressBar
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult

ROOT = Path(__file__).parents[2]
TRAINING_REPORT = TrainingReport(5, 0, 1.5, 1e-3, 0.25, 4_000.0, 2.0, 10**9)
SCORE = Score("BLEU", 17.5, "signature", "detail")
VALIDATION_REPORT = ValidationReport(5, 1.25, 3.49, SCORE, True, 0.5, measures={"chrF++": 45.25})


MODEL = Transformer(ModelConfig(vocabulary_size=4, n_layers=1, d_model=2, d_ff=2, n_heads=1), seed=None)
RESULT = StepResult(9, lambda: np.array([1.0, 2.0, 0.1]))


def monitored(folder: Path, console: Console, first_step: int = 0) -> None:
    bar = ProgressBar(console)
    called = Callbacks([MetricsFile(folder), bar])
    called.begin(TrainingState(step=first_step), 1_000)
    bar.print("something [to] read")
    called.after_step(RESULT, TrainingState(step=5), MODEL)
    called.report(TRAINING_REPORT)
    called.report(VALIDATION_REPORT)
    called.end()


def test_off_a_terminal_there_are_plain_lines(tmp_path: Path) -> None:
    shown = io.StringIO()
    monitored(tmp_path, Console(file=shown, highlight=False))
    assert re.sub(r"(?m)^\d\d:\d\d:\d\d ", "(clock) ", shown.getvalue()) == (
        "something [to] read\n"
        "(clock) step 5 of 1,000, epoch 0: loss 1.5000, 4,000 tokens/s, learning rate 1.00e-03, 7 min left\n"
        "(clock) step 5: validation loss 1.2500, perplexity 3.49, greedy BLEU 17.50 [signature],"
        " chrF++ 45.25, the best so far\n"
    )


@pytest.mark.parametrize(
    ("seconds", "left"),
    [(2.0, "7 min left"), (0.2, "40 s left"), (200.0, "11 h 03 min left"), (2e5, "11055 h 33 min left")],
)
def test_the_time_left_follows_from_the_speed(seconds: float, left: str) -> None:
    shown = io.StringIO()
    bar = ProgressBar(Console(file=shown, highlight=False))
    bar.begin(TrainingState(step=0, seconds=10.0), 1_000)
    bar.report(dataclasses.replace(TRAINING_REPORT, seconds=10.0 + seconds))
    assert left in shown.getvalue()


def test_the_time_left_follows_from_the_last_minute_of_a_long_training() -> None:
    """100 updates took 1,000 s, and the last 50 only 100 s: the other 850 take 1,700 s, and not 8,500 s."""
    shown = io.StringIO()
    bar = ProgressBar(Console(file=shown, highlight=False))
    bar.begin(TrainingState(), 1_000)
    for step, seconds in ((100, 1_000.0), (125, 1_050.0), (150, 1_100.0)):
        bar.report(dataclasses.replace(TRAINING_REPORT, step=step, seconds=seconds))
    assert shown.getvalue().splitlines()[-1].endswith("28 min left")
    bar.go_back(TrainingState(step=100, seconds=1_200.0))  # after a divergence
    bar.report(dataclasses.replace(TRAINING_REPORT, step=150, seconds=1_250.0))
    assert shown.getvalue().splitlines()[-1].endswith("14 min left")


def lines_on(terminal: io.StringIO) -> list[str]:
    """The lines that were shown one after the other, without colours."""
    return re.split(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]", re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()))


def test_the_bar_fits_80_columns_and_shows_the_progress_of_a_validation() -> None:
    shown = io.StringIO()
    bar = ProgressBar(Console(file=shown, force_terminal=True, width=80, highlight=False))
    bar.begin(TrainingState(step=99_999), 100_000)
    bar.report(dataclasses.replace(TRAINING_REPORT, target_tokens_per_second=123_456))
    bar.end()
    bar.begin(TrainingState(step=99_999), 100_000)
    bar.validating(312, 1_000)
    bar.end()
    lines = lines_on(shown)
    assert all(len(line) <= 80 for line in lines)
    assert any("99,999/100,000" in line and "loss 1.500, 123,456 tokens/s" in line for line in lines)
    assert any("validating 312/1,000" in line and "left" in line for line in lines)


def test_on_a_terminal_a_progress_bar_with_the_figures_begins_where_the_run_stands(tmp_path: Path) -> None:
    shown = io.StringIO()
    monitored(tmp_path, Console(file=shown, force_terminal=True, width=160, highlight=False), first_step=3)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    assert "\x1b[" in shown.getvalue()
    for each in ("3/1,000", "5/1,000", "loss 1.500, 4,000 tokens/s", "step 5: validation loss 1.2500", "[to] read"):
        assert each in text
    assert "step 5 of" not in text


class HungUp(io.StringIO):
    """A terminal that has gone."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str = "") -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def flush(self) -> None:
        self.write()


def test_what_cannot_be_shown_on_a_terminal_is_lost_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", HungUp())
    console = log_console(quiet=False)
    assert console.is_terminal
    monitored(tmp_path, console)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def two_updates(trained: Trained, run: Path) -> list[str]:
    data = ["--data.directory", str(trained.run / "data")]
    return changed([*trained.arguments, *data], "--run", str(run), "--training.max-updates", "2")


def test_training_goes_on_without_a_reader_of_its_log(
    unwritable: TextIO, trained: Trained, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", unwritable)
    assert command("train", *two_updates(trained, tmp_path))[:2] == (0, "")
    assert results_of(tmp_path)["updates"] == 2


def test_training_goes_on_with_a_closed_standard_error(trained: Trained, tmp_path: Path) -> None:
    """In a process of its own, in which a file that is opened could get the number of standard error."""
    program = [sys.executable, "-c", "import sys, cli.train; sys.exit(cli.train.main())"]
    shell = ["sh", "-c", 'exec "$@" 2>&-', "sh", *program, *two_updates(trained, tmp_path)]
    done = subprocess.run(shell, stdout=subprocess.PIPE, cwd=ROOT, check=False, timeout=TIME_LIMIT)
    assert (done.returncode, done.stdout) == (0, b"")
    assert results_of(tmp_path)["updates"] == 2


LINE = re.compile(r"^\d\d:\d\d:\d\d (\d+)(?: of (\d+))? lines(?:, \d+ (?:s|min) left)?$", re.MULTILINE)
TEXT = b"one two.\nsix!\n\nthree four. one.\nfive\n"


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


Counts = Callable[[], list[tuple[str, str]]]


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Counts:
    """Show a line for every count; return those that were shown."""
    monkeypatch.setattr(console_module, "LOG_INTERVAL", 0)
    return lambda: LINE.findall(capsys.readouterr().err)


def test_off_a_terminal_a_line_follows_when_the_time_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    shown = io.StringIO()
    with Counter(Console(file=shown), "lines", 10_000) as counter:
        for clock.now in (0.0, 10.0, 29.0, 31.0, 40.0, 60.0, 62.0):
            counter.advance(1_000)
    assert re.sub(r"(?m)^\d\d:\d\d:\d\d|, \d+ s left", "", shown.getvalue()) == (
        " 4,000 of 10,000 lines\n 7,000 of 10,000 lines\n"
    )


def test_on_a_terminal_a_bar_shows_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for total, expected in ((20_000, "1,500/20,000"), (None, "1,500 ")):
        shown = io.StringIO()
        with Counter(Console(file=shown, force_terminal=True, width=80), "lines", total) as counter:
            counter.advance(1_500)
        lines = lines_on(shown)
        assert all(len(line) <= 80 for line in lines)
        assert any(line.startswith(expected) and "lines" in line and "left" in line for line in lines)


@pytest.mark.parametrize("options", [(), ("--split-sentences", "en"), ("--sample", "--n-best", "2")])
def test_the_lines_of_a_file_are_counted(
    trained: Trained, tmp_path: Path, counts: Counts, options: tuple[str, ...]
) -> None:
    (tmp_path / "in").write_bytes(TEXT)
    translated(trained, b"", "--input", str(tmp_path / "in"), *options)
    found = counts()
    assert (found[0], found[-1], len(found) > 2) == (("0", "5"), ("5", "5"), True)


def test_the_count_goes_on_after_an_interruption(trained: Trained, tmp_path: Path, counts: Counts) -> None:
    words = ["--run", str(trained.run), "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--resume"]
    for n_lines, expected in ((2, [("0", "2"), ("2", "2")]), (5, [("2", "5"), ("5", "5")])):
        (tmp_path / "in").write_bytes(b"".join(TEXT.splitlines(keepends=True)[:n_lines]))
        assert translate(words, io.BytesIO(), io.BytesIO()) == 0
        found = counts()
        assert [found[0], found[-1]] == expected


def test_standard_input_has_no_end(trained: Trained, counts: Counts) -> None:
    translated(trained, TEXT)
    assert counts()[-1] == ("5", "")


def test_no_count_disturbs_translations_on_a_terminal(trained: Trained, tmp_path: Path, counts: Counts) -> None:
    (tmp_path / "in").write_bytes(TEXT)
    run = ["--run", str(trained.run)]
    translate([*run, "--input", str(tmp_path / "in")], io.BytesIO(), Terminal())
    translate(run, Terminal(TEXT), io.BytesIO())
    assert counts() == []


def test_a_warning_is_above_the_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=80)
    monkeypatch.setattr(console_module, "log_console", lambda *, quiet: terminal)
    with counting("lines", 5, shown=True) as advance:
        console_module.sys.stderr.write("a warning\n")
        print("a result")
        advance(1)
    assert "a warning" in shown.getvalue()
    assert capsys.readouterr().out == "a result\n"


def test_a_validation_is_followed_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    shown = io.StringIO()
    bar = ProgressBar(Console(file=shown))
    for clock.now, n_done in ((1.0, 0), (31.0, 250), (40.0, 300), (70.0, 500), (101.0, 1_000)):
        bar.validating(n_done, 1_000)
    assert re.findall(r"validating .*", shown.getvalue()) == ["validating 250/1,000", "validating 500/1,000"]
