"""The commands' help explains every option."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
from small_run import plain

from cli.average import AverageOptions, average
from cli.doctor import doctor
from cli.parse import ParseOptions, parse
from cli.prepare import PrepareOptions, prepare_data
from cli.report import AttentionOptions, report
from cli.reproduce import Table1Options, reproduce
from cli.score import BleuOptions, PairsOptions, TreesOptions, score
from cli.train import train
from cli.translate import TranslateOptions, translate
from minitransformer.run import RunConfig


def options_of(options: Any, prefix: str = "") -> list[str]:
    """The options that the fields of a dataclass stand for."""
    hints = get_type_hints(options)
    names: list[str] = []
    for field in dataclasses.fields(options):
        inner, name = hints[field.name], f"{prefix}{field.name}"
        names += options_of(inner, f"{name}.") if dataclasses.is_dataclass(inner) else [f"--{name}".replace("_", "-")]
    return names


def help_of(command: Callable[[list[str]], int], words: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit) as caught:
        command([*words, "--help"])
    assert caught.value.code == 0
    return plain(re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue()))


COMMANDS: dict[str, tuple[Callable[[list[str]], int], list[str], Any, list[str]]] = {
    "train": (train, [], RunConfig, []),
    "doctor": (doctor, [], RunConfig, []),
    "prepare": (prepare_data, [], PrepareOptions, []),
    "translate": (lambda words: translate(words, io.BytesIO(), io.BytesIO()), [], TranslateOptions, []),
    "average": (average, [], AverageOptions, []),
    "score bleu": (score, ["bleu"], BleuOptions, ["--hypothesis", "--references"]),
    "score pairs": (score, ["pairs"], PairsOptions, ["--source", "--target"]),
    "reproduce table1": (reproduce, ["table1"], Table1Options, []),
    "report attention": (report, ["attention"], AttentionOptions, ["--sentence"]),
    "score trees": (score, ["trees"], TreesOptions, ["--gold", "--candidate"]),
    "parse": (lambda words: parse(words, io.BytesIO(), io.BytesIO()), [], ParseOptions, []),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_every_option(name: str) -> None:
    command, words, options, positional = COMMANDS[name]
    shown = help_of(command, words)
    for option in options_of(options):
        if option not in positional:
            explained = re.search(rf" {option}(?:, --\S+)? (?!--|\|)(.*?)\((?:default|required)", shown)
            assert explained, option
            assert re.search(r" [A-Za-z]{2,}", explained[1]), option


@pytest.mark.parametrize(
    ("name", "mentioned"),
    [
        ("train", ["--config FILE", "--preset NAME", "recipes/", "mpirun", "minitransformer-translate"]),
        (
            "doctor",
            [
                "--config FILE",
                "--preset NAME",
                "Exit status",
                "mpirun",
                "--try-largest-batch",
                "--explain-compat",
                "--replay",
            ],
        ),
        ("prepare", ["--config FILE", "[data]"]),
        ("translate", ["one line out for each line in", "--n-best N"]),
        ("score bleu", ["BLEU and chrF", "reference translations"]),
        ("score pairs", ["Log-probability (nats)"]),
        ("reproduce table1", ["in a minute or two"]),
        ("report attention", ["every head of every layer", "counted from 1"]),
        ("score trees", ["as EVALB computes and prints it"]),
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
    said = capsys.readouterr().err
    assert "bleu" in said
    assert "pairs" in said
