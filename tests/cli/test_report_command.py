"""Attention from a trained run to a file."""

import importlib
import os
import sys
from pathlib import Path

import pytest
from small_run import Command, Trained, output_of, translated

from cli.report import report
from tests.cli.test_report_training import data_of


@pytest.mark.parametrize("kind", ["attention", "sentence"])
def test_a_page_of_the_runs_own_translation(kind: str, trained: Trained, tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    words = [kind, "one two", "--run", str(trained.run), "--output", str(page), "--beam", "2"]
    translation = translated(trained, b"one two\n").decode().strip()
    assert output_of(lambda: report(words)) == f"{translation}\nwrote {page}\n"
    assert data_of(page)["translation"] == translation


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
        (["sentence", "one", "--output", "a.png"], "a.png: the suffix must name the format; expected one of .html"),
        (["attention", "one", "--output", "a.gif"], "a.gif: the suffix must name the format"),
        (["attention", "", "--output", "a.html"], "the sentence is empty"),
        (["attention", "one", "--output", "a.png", "--heads", "0"], "--heads: expected numbers from 1 to 2; got 0"),
        (
            ["attention", "one", "--output", "a.png", "--layers", "1", "2"],
            "--layers: expected numbers from 1 to 1; got 2",
        ),
        (["attention", "one", "--output", "a.png", "--kinds", "--run", "nowhere"], "--kinds: name at least one kind"),
        (
            ["attention", "one", "--output", "a.png", "--least-weight", "20", "--run", "nowhere"],
            "--least-weight: weights are between",
        ),
        (["attention", "one", "--no-end"], "--no-end: an option of pictures, but attention.html is a page"),
        (["attention", "one", "--layers", "1"], "--layers: an option of pictures, but attention.html is a page"),
        (["attention", "one", "--beam", "0"], "beam ≥ n_best ≥ 1"),
        (["attention", "one", "--output", f"{__file__}/a.html"], "a.html: cannot be written"),
        (["attention", "one", "--output", f"{__file__}/a.png"], "a.png: cannot be written"),
    ],
)
def test_what_cannot_be_drawn_is_reported_in_one_line(
    options: list[str],
    problem: str,
    trained: Trained,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, *others = options
    assert problem in command("report", kind, "--run", str(trained.run), *others).refusal
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_a_page_can_be_made_and_a_picture_tells_the_remedy(
    trained: Trained, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "minitransformer.extras.report.p"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    importlib.invalidate_caches()
    words = ["attention", "one", "--run", str(trained.run), "--output"]
    assert command("report", *words, str(tmp_path / "a.html")).status == 0
    assert '[report]"' in command("report", *words, str(tmp_path / "a.png")).refusal
