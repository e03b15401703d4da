"""The commands' help explains every option."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from small_run import plain

from cli.average import AverageOptions, average
from cli.convert import ConvertOptions, convert
from cli.doctor import DoctorOptions, doctor
from cli.entry import COMMANDS as NAMES
from cli.options import Common
from cli.parse import ParseOptions, parse
from cli.prepare import PrepareOptions, prepare_data
from cli.presets import PresetsOptions, list_presets
from cli.report import KINDS as REPORTS
from cli.report import AttentionOptions, report
from cli.report_training import TrainingReportOptions
from cli.reproduce import KINDS as TABLES
from cli.reproduce import Table1Options, reproduce
from cli.reproduce_table3 import Table3Options
from cli.score import KINDS as SCORES
from cli.score import AuditOptions, BleuOptions, PairsOptions, TreesOptions, TuneLengthOptions, score
from cli.score_compare import CompareOptions
from cli.serve import ServeOptions, serve
from cli.train import TrainOptions, train
from cli.translate import TranslateOptions, translate


def options_of(options: Any, prefix: str = "") -> list[str]:
    """The options that the fields of a dataclass stand for."""
    hints = get_type_hints(options)
    names: list[str] = []
    for field in dataclasses.fields(options):
        inner, name = hints[field.name], f"{prefix}{field.name}"
        option = f"--{name}".rstrip("_").replace("_", "-")  # "from_" is --from: Python has the word
        names += options_of(inner, f"{name}.") if dataclasses.is_dataclass(inner) else [option]
    return names


class Utf8Text(io.StringIO):
    encoding = "utf-8"


def lines_of_help(command: Callable[[list[str]], int], words: list[str]) -> list[str]:
    with contextlib.redirect_stdout(Utf8Text()) as shown, pytest.raises(SystemExit) as caught:
        command([*words, "--help"])
    assert caught.value.code == 0
    return shown.getvalue().splitlines()


def help_of(command: Callable[[list[str]], int], words: list[str]) -> str:
    return plain("\n".join(lines_of_help(command, words)))


COMMANDS: dict[str, tuple[Callable[[list[str]], int], list[str], Any, list[str]]] = {
    "train": (train, [], TrainOptions, []),
    "doctor": (doctor, [], DoctorOptions, []),
    "prepare": (prepare_data, [], PrepareOptions, []),
    "translate": (lambda words: translate(words, io.BytesIO(), io.BytesIO()), [], TranslateOptions, []),
    "serve": (serve, [], ServeOptions, []),
    "average": (average, [], AverageOptions, []),
    "convert": (convert, [], ConvertOptions, ["--source"]),
    "score bleu": (score, ["bleu"], BleuOptions, ["--hypothesis", "--references"]),
    "score audit": (score, ["audit"], AuditOptions, ["--hypothesis", "--references"]),
    "score compare": (score, ["compare"], CompareOptions, ["--files"]),
    "score pairs": (score, ["pairs"], PairsOptions, ["--source", "--target"]),
    "reproduce table1": (reproduce, ["table1"], Table1Options, []),
    "reproduce table3": (reproduce, ["table3"], Table3Options, []),
    "report attention": (report, ["attention"], AttentionOptions, ["--sentence"]),
    "report training": (report, ["training"], TrainingReportOptions, ["--runs"]),
    "score trees": (score, ["trees"], TreesOptions, ["--gold", "--candidate"]),
    "parse": (lambda words: parse(words, io.BytesIO(), io.BytesIO()), [], ParseOptions, []),
    "presets": (list_presets, [], PresetsOptions, []),
    "score tune-length": (score, ["tune-length"], TuneLengthOptions, ["--source", "--reference"]),
}


def test_no_command_is_left_out() -> None:
    kinds = {"report": REPORTS, "reproduce": TABLES, "score": SCORES}
    assert set(COMMANDS) == {f"{name} {kind}".strip() for name in NAMES for kind in kinds.get(name, [""])}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_option(name: str) -> None:
    command, words, options, positional = COMMANDS[name]
    shown = help_of(command, words)
    for option in options_of(options):
        if option not in positional:
            explained = re.search(rf" {option}(?:, --\S+)? (?!--|\|)(.*?)\((?:default|required)", shown)
            assert explained, option
            assert re.search(r" [A-Za-z]{2,}", explained[1]), option


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_the_terminal_and_breaks_no_word(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of values are broken after a comma, so blanks after commas do not count."""
    texts = {}
    for width in (80, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = lines_of_help(*COMMANDS[name][:2])
        assert [line for line in lines if len(line) > width] == []
        texts[width] = plain("\n".join(lines))
    assert texts[80].replace(", ", ",") == texts[100].replace(", ", ",")
    assert not re.search(r"\d, \d{3}\b", texts[80] + texts[100])


@pytest.mark.parametrize(
    ("name", "in_order"),
    [
        ("train", ["--run", "--preset", "--config", "--device", "--compat", "--verify-resume", "--debug"]),
        ("train", ["data options", "--data.train-source", "--data.vocabulary-size", "--data.raw", "--data.directory"]),
        ("train", ["training options", "--training.max-updates", "--training.precision", "--training.beta1"]),
        ("train", ["data options", "training options", "model options", "--model.n-layers", "--model.vocabulary-size"]),
        ("translate", ["--run", "--input", "--output", "--beam", "--kernels", "--debug"]),
    ],
)
def test_the_options_that_are_used_most_come_first(name: str, in_order: list[str]) -> None:
    heads = [line.lstrip("╭─│ ") for line in lines_of_help(*COMMANDS[name][:2])]
    places = [next(i for i, head in enumerate(heads) if head.startswith(f"{option} ")) for option in in_order]
    assert places == sorted(places)


def test_help_tells_what_is_required_and_says_none_for_an_empty_list() -> None:
    shown = help_of(score, ["bleu"])
    assert "HYPOTHESIS [REFERENCES]" in shown
    assert re.search(r"aligned line by line\. \(required\)", shown)
    assert "--data.train-source" in help_of(train, [])
    assert re.search(r"Held-out text, target side\. \(default: none\)", help_of(train, []))
    assert "``" not in help_of(train, [])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_options_of_all(name: str) -> None:
    assert issubclass(COMMANDS[name][2], Common)


class Terminal(Utf8Text):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("value", "is_coloured"), [("1", False), ("", True), (None, True)])
def test_help_has_no_colours_if_the_environment_asks_for_none(
    value: str | None, is_coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if value is not None:
        monkeypatch.setenv("NO_COLOR", value)
    monkeypatch.setenv("TERM", "xterm")
    with contextlib.redirect_stdout(Terminal()) as shown, pytest.raises(SystemExit):
        average(["--help"])
    assert ("\x1b[" in shown.getvalue()) == is_coloured


@pytest.mark.parametrize(
    ("name", "mentioned"),
    [
        (
            "train",
            ["--config PATH", "{tiny,small,base,", "table3-E}", "recipes/", "mpirun", "minitransformer-translate"],
        ),
        (
            "doctor",
            [
                "--config PATH",
                "exit status",
                "mpirun",
                "--try-largest-batch",
                "--explain-compat {[{tensor2tensor,fairseq,marian}",
                "--replay PATH",
            ],
        ),
        ("prepare", ["--config PATH", "[data]"]),
        ("translate", ["one line out for each line in", "--n-best N"]),
        ("convert", ["another program", "--from {", "--storage {float32,float16,int8}"]),
        ("serve", ["LibreTranslate", "Nothing that users type is stored"]),
        ("score bleu", ["BLEU and chrF", "reference translations"]),
        ("score audit", ["every convention", "reference translations"]),
        ("score compare", ["p-values", "then the file of references", "--test {bootstrap,randomisation}"]),
        ("score pairs", ["log-probability (nats)"]),
        ("reproduce table1", ["in a minute or two"]),
        ("reproduce table3", ["the same command continues"]),
        ("report attention", ["every head of every layer", "counted from 1"]),
        ("report training", ["finished or not", "paired bootstrap test"]),
        ("score trees", ["as EVALB does"]),
        ("parse", ["Penn bracket format", "--treebank FILE", "minitransformer-score trees"]),
    ],
)
def test_help_tells_what_the_command_is_for(name: str, mentioned: list[str]) -> None:
    command, words, _, _ = COMMANDS[name]
    shown = help_of(command, words)
    for phrase in mentioned:
        assert phrase in shown


def test_score_without_a_kind_names_both_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        score([])
    assert caught.value.code == 2
    output = capsys.readouterr().err
    assert "bleu" in output
    assert "pairs" in output


ROOT = Path(__file__).resolve().parents[2]
OF_OTHERS = {
    "--mpi", "--shm-size", "--short", "--porcelain", "--untracked-files", "--international-tokenization", "--task",
    "--help", "--tyro-", "--tyro-print-completion", "--version",
}  # fmt: skip


def options_in_texts_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*(?:\.[a-z][a-z0-9-]*)*", node.value)


def test_every_option_that_is_spoken_of_exists() -> None:
    known = {option for _, _, options, _ in COMMANDS.values() for option in options_of(options)}
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
