"""The command of the user that measures the translations of each validation."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.chrf import CHRF

from cli.train import train
from cli.validation_command import ValidationCommand, ValidationCommandError
from minitransformer.config import ConfigError
from minitransformer.model.transformer import Transformer
from tests.support.training import write_text

LINES: Any = (["one", "two"], ["eins", "zwei"], ["eins", "drei"])
OWN = """
import sys
source, reference, translation = (open(path, encoding="utf-8").read().splitlines() for path in sys.argv[1:])
print("exact", sum(map(str.__eq__, reference, translation)))
print("shorter", sum(len(t) < len(s) for s, t in zip(source, translation)))
"""


class Derived(Transformer):
    """A model of the user's own class."""


def measured(command: str) -> dict[str, float]:
    return ValidationCommand(command).validated(None, None, *LINES)  # type: ignore[arg-type]


def printing(text: str) -> str:
    return shlex.join([sys.executable, "-c", f"print({text!r})", "{translation}"])


def test_the_command_gets_the_files_and_its_numbers_are_measures(tmp_path: Path) -> None:
    script = tmp_path / "own metric.py"
    script.write_text(OWN)
    command = shlex.join([sys.executable, str(script)]) + " {source} {reference} {translation}"
    assert measured(command) == {"exact": 1.0, "shorter": 0.0}
    chrf = f"{sys.executable} -m sacrebleu {{reference}} -i {{translation}} -m chrf --chrf-word-order 2 -b -w 6"
    expected = CHRF(word_order=2).corpus_score(LINES[2], [LINES[1]]).score
    assert measured(chrf) == {Path(sys.executable).stem: pytest.approx(expected, abs=1e-5)}


@pytest.mark.parametrize("text", ["", "good", "chrf 1 2", "1\n2"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValidationCommandError, match="printed .*; expected a number, or lines of a name and a number"):
        measured(printing(text))


def test_a_failed_command_is_named_with_its_last_line() -> None:
    command = shlex.join([sys.executable, "-c", "import sys; sys.exit('no model\\nfor German')", "{translation}"])
    with pytest.raises(ValidationCommandError, match="ended with status 1: for German"):
        measured(command)


@pytest.mark.parametrize(
    "command", ["", "no-such-program {translation}", f"{sys.executable} -V", "echo '{translation}"]
)
def test_a_command_that_cannot_be_run_is_refused_before_the_training(command: str) -> None:
    with pytest.raises(ConfigError, match="^--validation-command .*: (expected a program|No closing quotation)"):
        ValidationCommand(command)


def test_page_log_and_patience_have_the_commands_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_text(tmp_path)
    sizes = "--model.n-layers 1 --model.d-model 16 --model.d-ff 16 --model.n-heads 2 --model.d-k 8 --model.d-v 8"
    text = f"--data.raw {tmp_path} --data.train-source t.en --data.train-target t.de --data.vocabulary-size 50"
    steps = "--model.alpha 0.6 --training.max-updates 4 --training.validate-every 1 --training.batch-tokens 150"
    named = "--training.patience 2 --training.patience-for own --data.held-out 10"
    derived = f"--model.implementation {__name__}:Derived"
    run = tmp_path / "run"
    arguments = shlex.split(f"--run {run} {sizes} {text} {steps} {named} {derived}")
    assert train([*arguments, "--validation-command", printing("own 7.5")]) == 0
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["own"] for line in lines if line["kind"] == "validation"] == [7.5] * 3
    shown = capsys.readouterr().err
    assert ", own 7.5" in shown
    assert shown.endswith(f"done: load the model with its class, {__name__}:Derived, in Python\n")
    assert '"title":"own"' in (run / "report.html").read_text().replace('": "', '":"')
