"""The commands' help explains every option."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_run import as_command, plain

from cli.completion import options_of_commands
from cli.options import options_in

COMMANDS = options_of_commands()


def lines_of_help(name: str) -> list[str]:
    """The help of a command, such as "score bleu"."""
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(shown), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        command, *kind = name.split()
        with pytest.raises(SystemExit) as caught:
            as_command(command, [*kind, "--help"], patch)
    assert caught.value.code == 0
    return shown.buffer.getvalue().decode().splitlines()  # type: ignore[attr-defined]


def help_of(name: str) -> str:
    return plain("\n".join(lines_of_help(name)))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_all_options_fits_the_terminal_breaks_no_word(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of values are broken after a comma, so blanks after commas do not count."""
    texts = {}
    for width in (80, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = lines_of_help(name)
        assert [line for line in lines if len(line) > width] == []
        texts[width] = plain("\n".join(lines))
    assert texts[80].replace(", ", ",") == texts[100].replace(", ", ",")
    known = [", ".join(option.names) or option.path.upper() for option in options_in(COMMANDS[name])]
    for option in [*known, "--debug"]:
        explained = re.search(rf" {option} (?!--|\|)(.*?)\((?:default|required)", texts[100])
        assert explained, option
        assert re.search(r" [A-Za-z]{2,}", explained[1]), option


@pytest.mark.parametrize(
    ("name", "in_order"),
    [
        ("train", ["--run", "--preset", "--config", "--device", "--compat", "--verify-resume", "--debug"]),
        ("train", ["data", "--data.train-source", "--data.vocabulary-size", "--data.raw", "--data.directory"]),
        ("train", ["training", "--training.max-updates", "--training.precision", "--training.beta1"]),
        ("train", ["data", "training", "model", "--model.n-layers", "--model.vocabulary-size"]),
        ("translate", ["--run", "--input", "--output", "--beam", "--kernels", "--debug"]),
    ],
)
def test_the_options_that_are_used_most_come_first(name: str, in_order: list[str]) -> None:
    heads = [re.split("[ ,]", line.strip())[0] for line in lines_of_help(name)]
    places = [heads.index(option) for option in in_order]
    assert places == sorted(places)


def test_help_tells_what_is_required_and_says_none_for_an_empty_list() -> None:
    shown = help_of("score bleu")
    assert "[OPTIONS] HYPOTHESIS [REFERENCES ...]" in shown
    assert re.search(r"aligned line by line\. \(required\)", shown)
    assert "--data.train-source" in help_of("train")
    assert re.search(r"Held-out text, target side\. \(default: none\)", help_of("train"))
    assert "``" not in help_of("train")


MENTIONED = {
    "train": ["--config PATH", "{tiny, small, base, ", "table3-E}", "recipes/", "mpirun", "minitransformer-translate"],
    "doctor": ["exit status", "mpirun", "--explain-compat [{tensor2tensor,fairseq,marian} ...]", "--replay PATH"],
    "prepare": ["--config PATH", "[data]"],
    "translate": ["one line out for each line in", "--n-best N"],
    "convert": ["another program", "--from {", "--storage {float32,float16,int8}"],
    "serve": ["LibreTranslate", "Nothing that users type is stored"],
    "score bleu": ["BLEU and chrF", "reference translations"],
    "score audit": ["every convention", "reference translations"],
    "score compare": ["p-values", "then the file of references", "--test {bootstrap,randomisation}"],
    "score pairs": ["log-probability (nats)"],
    "reproduce table1": ["in a minute or two"],
    "reproduce table3": ["the same command continues"],
    "report attention": ["every head of every layer", "counted from 1"],
    "report sentence": ["all numbers", "step by step"],
    "report training": ["finished or not", "paired bootstrap test"],
    "score trees": ["as EVALB does"],
    "parse": ["Penn bracket format", "--treebank FILE", "minitransformer-score trees"],
}


@pytest.mark.parametrize("name", MENTIONED)
def test_help_tells_what_the_command_is_for(name: str) -> None:
    shown = help_of(name)
    assert [phrase for phrase in MENTIONED[name] if phrase not in shown] == []


@pytest.mark.parametrize("words", [[], ["--lowercase", "bleu", "a", "b"]])
def test_a_command_without_a_kind_names_the_kinds(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        as_command("score", words, monkeypatch)
    assert caught.value.code == 2
    kinds = "bleu, audit, compare, tune-length, pairs, trees"
    assert capsys.readouterr().err == f"error: name the kind first: {kinds} (see score --help)\n"
    assert "tune-length Translate held-out text" in help_of("score")


ROOT = Path(__file__).resolve().parents[2]
OF_OTHERS = {
    "--mpi", "--shm-size", "--short", "--porcelain", "--untracked-files", "--international-tokenization", "--task",
    "--help", "--debug", "--version", "--print-completion",
}  # fmt: skip


def options_in_texts_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*(?:\.[a-z][a-z0-9-]*)*", node.value)


def test_every_option_that_is_spoken_of_exists() -> None:
    known = {name for options in COMMANDS.values() for option in options_in(options) for name in option.names}
    paths = [path for package in ("parallel", "minitransformer", "cli") for path in (ROOT / package).rglob("*.py")]
    spoken_of = {option: path.name for path in paths for option in options_in_texts_of(path)}
    assert {o: name for o, name in spoken_of.items() if o not in known | OF_OTHERS} == {}


def classes_in(folder: str) -> Iterator[ast.ClassDef]:
    for path in (ROOT / folder).glob("*.py"):
        yield from (n for n in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(n, ast.ClassDef))


@pytest.mark.parametrize("folder", ["cli", "minitransformer"])
def test_no_line_of_an_options_help_begins_with_a_sign(folder: str) -> None:
    """Such a line would stand apart, as if another paragraph began."""
    for options in classes_in(folder):
        helps = [each.value.value for each in options.body if isinstance(each, ast.Expr)]  # type: ignore[attr-defined]
        if options.name.endswith(("Options", "Config")):
            lines = [line.strip() for text in helps[1:] for line in text.splitlines()[1:]]
            assert [line for line in lines if not line[0].isalpha()] == [], options.name
