"""Systems compared on the same references: the numbers are those of sacrebleu's own command."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_run import written

from cli.score import score
from minitransformer.data.survey import CorpusError
from minitransformer.extras.report.comparison import compare_systems

WORDS = ["der", "die", "das", "kleine", "Hund", "Katze", "sieht", "schläft", "rote", "Häuser", "drei", "und", ",", "."]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """References of 40 lines, and systems with errors in a twentieth, a tenth and a third of the words."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(3)
    reference = [draw.choices(WORDS, k=draw.randint(4, 12)) for _ in range(40)]
    for name, share in (("A", 0.1), ("B", 0.05), ("C", 0.33), ("ref", 0.0)):
        lines = [[draw.choice(WORDS) if draw.random() < share else word for word in line] for line in reference]
        written(tmp_path / name, "".join(" ".join(line) + "\n" for line in lines))
    return ["A", "B", "C", "ref"]


def sacrebleu_table(files: list[str], test: str) -> tuple[list[list[str]], list[str]]:
    """The numbers of sacrebleu's table, row by row, without the means of resampled scores; and its signatures."""
    *systems, reference = files
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        reference,
        "-i",
        *systems,
        "-m",
        "bleu",
        "chrf",
        "ter",
        test,
        "-w",
        "2",
    ]
    done = subprocess.run([*command, "--format", "latex"], capture_output=True, text=True, check=True)
    table = done.stdout.partition(r"\midrule")[2].partition(r"\bottomrule")[0].strip().splitlines()
    rows = [re.sub(r"[\d.]+ ±", "±", row.partition("&")[2]) for row in table]
    return [re.findall(r"\d+\.\d+\)?\*?", row) for row in rows], re.findall(r"\S*seed:\S*", done.stdout)


@pytest.mark.parametrize(("test", "option"), [("bootstrap", "--paired-bs"), ("randomisation", "--paired-ar")])
def test_numbers_and_signatures_are_those_of_sacrebleus_command(
    files: list[str], test: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files if test == "bootstrap" else ["A", "C", "ref"]  # 10,000 trials take seconds
    rows, signatures = sacrebleu_table(files, option)
    assert score(["compare", *files, "--test", test]) == 0
    _, *lines, _, bleu, chrf, ter = capsys.readouterr().out.splitlines()
    ours = [re.findall(r"\d+\.\d+\*?", line) for line in lines]
    assert ours == [[number.replace(")", "") for number in row] for row in rows]
    assert [line.split()[0] for line in lines] == files[:-1]
    assert any("*" in number for row in ours for number in row)
    assert [line.split()[1] for line in (bleu, chrf, ter)] == signatures


def test_an_equal_system_has_no_p_value(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert score(["compare", "A", "C", "A", "ref"]) == 0
    _, *rows, about, bleu, chrf, ter = capsys.readouterr().out.splitlines()
    assert [row.count("p=") for row in rows] == [0, 3, 0]
    assert rows[0] == rows[2]
    assert about.startswith("p: of the difference from A; * p < 0.05; ")
    assert [line.split()[0] for line in (bleu, chrf, ter)] == ["BLEU", "chrF2", "TER"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["A", "ref"], "expected two files of translations or more, then the references; got 2 files"),
        ([], "got 0 files"),
        (["A", "B", "short"], "short: ends after line 2, but A has 40; line n of one file"),
        (["A", "short", "ref"], "short: ends after line 2, but ref has 40; line n of one file"),
        (["empty", "empty", "empty"], "empty: is empty"),
        (["A", "absent", "ref"], "absent: not found"),
    ],
)
def test_files_that_cannot_be_compared_are_refused(files: list[str], names: list[str], message: str) -> None:
    written(Path("short"), "a\nb\n")
    written(Path("empty"), "")
    with pytest.raises(CorpusError, match=message):
        score(["compare", *names])


def test_what_cannot_be_compared_is_refused_by_the_library() -> None:
    with pytest.raises(ValueError, match="expected two systems or more; got 1"):
        compare_systems([("A", ["a"])], ["a"])
    for lines in (["a"], []):
        with pytest.raises(ValueError, match="as many translations of every system as references"):
            compare_systems([("A", lines), ("B", [])], lines)
