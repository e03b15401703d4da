"""Attention from a trained run to a file."""

import importlib
import json
import os
import re
import sys
from pathlib import Path

import pytest
from small_run import Trained, as_command, output_of, translated

from cli.report import report
from minitransformer.extras.report.errors import ReportError


def data_of(page: Path) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found
    return dict(json.loads(found[1]))


def test_a_page_of_the_runs_own_translation(trained: Trained, tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    words = ["attention", "one two", "--run", str(trained.run), "--output", str(page), "--beam", "2"]
    output = output_of(lambda: report(words))
    translation = translated(trained, b"one two\n").decode().strip()
    assert output == f"{translation}\nwrote {page}\n"
    assert data_of(page)["translation"] == translation


def test_a_page_of_all_numbers(trained: Trained, tmp_path: Path) -> None:
    page = tmp_path / "sentence.html"
    words = ["sentence", "one two", "--run", str(trained.run), "--output", str(page), "--beam", "2"]
    translation = translated(trained, b"one two\n").decode().strip()
    assert output_of(lambda: report(words)) == f"{translation}\nwrote {page}\n"
    assert data_of(page)["translation"] == translation
    with pytest.raises(ReportError, match=r"sentence\.png: .*\.html"):
        report(["sentence", "one two", "--run", str(trained.run), "--output", str(tmp_path / "sentence.png")])


def test_arguments_that_are_not_utf8_are_read_with_replacements(trained: Trained, tmp_path: Path) -> None:
    page, word = tmp_path / "page.html", os.fsdecode(b"caf\xe9")
    words = ["attention", f"one {word}", "--run", str(trained.run), "--output", str(page), "--target", f"é <b> {word}"]
    output = output_of(lambda: report(words)).splitlines()
    assert output[:2] == [
        f"warning: the {name} is not UTF-8; read with replacements" for name in ("sentence", "target")
    ]
    assert data_of(page)["translation"] == "é <b> caf\ufffd"


@pytest.mark.parametrize("name", ["a.png", "A.SVG"])
def test_a_picture(name: str, trained: Trained, tmp_path: Path) -> None:
    words = ["attention", "one two", "--run", str(trained.run), "--output", str(tmp_path / name)]
    output_of(lambda: report([*words, "--kinds", "alignment", "decoder", "--heads", "2", "--no-end"]))
    output_of(lambda: report([*words, "--merge-words", "--least-weight", "0.2"]))
    assert (tmp_path / name).stat().st_size > 1_000


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["one", "--output", "a.gif"], "a.gif: the suffix must name the format"),
        (["", "--output", "a.html"], "the sentence is empty"),
        (["one", "--output", "a.png", "--heads", "0"], "--heads: expected numbers from 1 to 2; got 0"),
        (["one", "--output", "a.png", "--layers", "1", "2"], "--layers: expected numbers from 1 to 1; got 2"),
        (["one", "--output", "a.png", "--kinds", "--run", "nowhere"], "--kinds: name at least one kind"),
        (
            ["one", "--output", "a.png", "--least-weight", "20", "--run", "nowhere"],
            "--least-weight: weights are between",
        ),
        (["one", "--no-end"], "--no-end: an option of pictures, but attention.html is a page"),
        (["one", "--layers", "1"], "--layers: an option of pictures, but attention.html is a page"),
        (["one", "--beam", "0"], "beam ≥ n_best ≥ 1"),
        (["one", "--output", f"{__file__}/a.html"], "a.html: cannot be written"),
        (["one", "--output", f"{__file__}/a.png"], "a.png: cannot be written"),
    ],
)
def test_what_cannot_be_drawn_is_reported_in_one_line(
    options: list[str],
    problem: str,
    trained: Trained,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert as_command("report", ["attention", "--run", str(trained.run), *options], monkeypatch) == 1
    output = capsys.readouterr().err
    assert re.fullmatch(r"error: [^\n]+\n", output)
    assert problem in output
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_a_page_can_be_made_and_a_picture_tells_the_remedy(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "minitransformer.extras.report.p"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    importlib.invalidate_caches()
    words = ["attention", "one", "--run", str(trained.run), "--output"]
    assert as_command("report", [*words, str(tmp_path / "a.html")], monkeypatch) == 0
    assert as_command("report", [*words, str(tmp_path / "a.png")], monkeypatch) == 1
    assert '[report]"' in capsys.readouterr().err
