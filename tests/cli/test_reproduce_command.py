"""The paper's tables from the command line."""

from __future__ import annotations

import errno
import io
import json
import re
import sys
from pathlib import Path

import pytest
from small_run import as_command

from cli.reproduce import reproduce


def test_table_1_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(["table1", "--quick", "--repeats", "1", "--output", str(tmp_path / "new")]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("| Layer type ")
    assert "O(n² · d)" in printed.out
    assert re.search(r"wrote table1.json and table1.svg into .*new; code ", printed.err)
    assert len(json.loads((tmp_path / "new" / "table1.json").read_text())["rows"]) == 5
    assert "<svg" in (tmp_path / "new" / "table1.svg").read_text(encoding="utf-8")


def test_a_directory_that_cannot_be_written_is_known_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert as_command("reproduce", ["table1", "--output", str(tmp_path / "file" / "new")], monkeypatch) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"error: [^\n]*table1\.json: cannot be written [^\n]*\n", printed.err)


def test_standard_output_that_takes_nothing_is_not_mistaken_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(OSError, match="^.Errno"):
        reproduce(["table1", "--quick", "--repeats", "1", "--output", str(tmp_path)])
    assert (tmp_path / "table1.json").exists()


def test_without_matplotlib_nothing_is_measured_and_the_remedy_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "minitransformer.extras.report."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert as_command("reproduce", ["table1", "--output", str(tmp_path)], monkeypatch) == 1
    assert re.fullmatch(r'error: [^\n]*pip install -e "/.*\[report\]"[^\n]*\n', capsys.readouterr().err)


def test_repeats_must_be_some(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_command("reproduce", ["table1", "--repeats", "0"], monkeypatch) == 1
    assert capsys.readouterr().err == "error: --repeats must be at least 1, got 0\n"
