"""Pages of a run and of its attention by the command, and the documented keys of the run's files."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from small_run import Trained, log_of, output_of, results_of, translated

from cli.report import report

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "watching.md").read_text(encoding="utf-8")


def data_of(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found
    return dict(json.loads(found[1]))


def test_the_page_has_the_losses_and_scores_of_the_run(trained: Trained, tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    assert output_of(lambda: report(["training", str(trained.run), "--output", str(page)])) == f"wrote {page}\n"
    assert (trained.run / "report.html").read_bytes() == page.read_bytes()  # training leaves the same
    data = data_of(page)
    for curve, kind in zip(data["panels"][0]["curves"][0], ("training", "validation"), strict=True):
        assert curve["values"] == pytest.approx([line["loss"] for line in log_of(trained.run, kind)], rel=1e-5)
    validation = results_of(trained.run)["validation"]
    (final,) = (row["values"][0] for row in data["facts"]["Result"] if row["name"] == "final score, validation")
    assert final == f"BLEU {validation['bleu']:.2f}\n{validation['signature']}"


def documented(heading: str) -> set[str]:
    """The keys in the first column of the table that has this heading."""
    (table,) = re.findall(rf"^\| {heading} \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", GUIDE, re.MULTILINE)
    return {key for row in table.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_guide_names_the_keys_of_log_results_and_translations(trained: Trained) -> None:
    assert documented("key in training") == set(log_of(trained.run, "training")[0])
    (validation, *_) = log_of(trained.run, "validation")
    assert documented("key in validation") == set(validation) | {"f1"}
    assert set(validation["samples"][0]) == {"source", "reference", "translation"}
    results = results_of(trained.run)
    assert documented("key") == set(results) | {"test", "pretrained"}
    for key in ("data", "validation"):
        (row,) = re.findall(rf"^\| `{key}` \| (.*) \|$", GUIDE, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) - {"f1"} == set(results[key])
    (line, *_) = map(json.loads, (trained.run / "translations.jsonl").read_text().splitlines())
    section = GUIDE.split("### Translations\n")[1].split("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", section)) == set(line)


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
