"""Progress of the translation or the parsing of a file: lines in a log, a bar on a terminal."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest
from rich.console import Console
from small_run import Trained, translated

from cli import console as console_module
from cli.console import Counter
from cli.counting import counting
from cli.translate import translate
from minitransformer.training.callbacks import ProgressBar

LINE = re.compile(r"^\d\d:\d\d:\d\d (\d+)(?: of (\d+))? lines(?:, \d+ (?:s|min) left)?$", re.MULTILINE)
TEXT = b"one two.\nsix!\n\nthree four. one.\nfive\n"


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_module, "LOG_INTERVAL", 0)


def counts(text: str) -> list[tuple[str, str]]:
    return LINE.findall(text)


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
        lines = re.split(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]", re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue()))
        assert all(len(line) <= 80 for line in lines)
        assert any(line.startswith(expected) and "lines" in line and "left" in line for line in lines)


@pytest.mark.parametrize("options", [(), ("--split-sentences", "en"), ("--sample", "--n-best", "2")])
def test_the_lines_of_a_file_are_counted(
    trained: Trained, tmp_path: Path, shown_at_once: None, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    (tmp_path / "in").write_bytes(TEXT)
    translated(trained, b"", "--input", str(tmp_path / "in"), *options)
    found = counts(capsys.readouterr().err)
    assert found[0] == ("0", "5")
    assert found[-1] == ("5", "5")
    assert len(found) > 2


def test_the_count_goes_on_where_a_translation_was_interrupted(
    trained: Trained, tmp_path: Path, shown_at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--run", str(trained.run), "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--resume"]
    for n_lines, expected in ((2, [("0", "2"), ("2", "2")]), (5, [("2", "5"), ("5", "5")])):
        (tmp_path / "in").write_bytes(b"".join(TEXT.splitlines(keepends=True)[:n_lines]))
        assert translate(words, io.BytesIO(), io.BytesIO()) == 0
        found = counts(capsys.readouterr().err)
        assert [found[0], found[-1]] == expected


def test_standard_input_has_no_known_end(
    trained: Trained, shown_at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    translated(trained, TEXT)
    assert counts(capsys.readouterr().err)[-1] == ("5", "")


def test_no_count_disturbs_translations_on_a_terminal(
    trained: Trained, tmp_path: Path, shown_at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_bytes(TEXT)
    run = ["--run", str(trained.run)]
    translate([*run, "--input", str(tmp_path / "in")], io.BytesIO(), Terminal())
    translate(run, Terminal(TEXT), io.BytesIO())
    assert counts(capsys.readouterr().err) == []


def test_a_warning_stands_above_the_bar_and_results_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
