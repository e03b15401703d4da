"""``minitransformer COMMAND``: one name for all commands, and completion of all of them in a shell."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from cli import entry
from cli.completion import OPTIONS

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def minitransformer(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/minitransformer", *words])
    return entry.main()


def test_the_commands_are_those_that_have_a_hyphen() -> None:
    hyphenated = [name.removeprefix("minitransformer-") for name in PROJECT["scripts"] if name != "minitransformer"]
    assert sorted(entry.COMMANDS) == sorted(hyphenated) == sorted(OPTIONS)


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_alone_it_lists_the_commands(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert minitransformer(monkeypatch, *words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for command in entry.COMMANDS:
        assert [line for line in lines if re.match(rf"  {command} +\w{{3,}}", line)], command


@pytest.mark.parametrize("command", entry.COMMANDS)
def test_the_first_word_names_the_command_and_the_others_are_its_options(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def main() -> int:
        started.append(list(sys.argv))
        return 7

    monkeypatch.setattr(import_module(f"cli.{command}"), "main", main)
    assert minitransformer(monkeypatch, command, "--run", "x") == 7
    assert started == [[f"minitransformer {command}", "--run", "x"]]


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("trian", "unknown command 'trian'; did you mean 'train'?"),
        ("--train", "unknown command '--train'; did you mean 'train'?"),
        ("xyz", "unknown command 'xyz'; known here: train, translate, serve, score"),
    ],
)
def test_an_unknown_command_is_answered_with_the_similar_one_or_all(
    word: str, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert minitransformer(monkeypatch, word) == 2
    assert capsys.readouterr().err.startswith(f"error: {answer}")


def test_the_version_is_that_of_the_project_and_its_commit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert minitransformer(monkeypatch, "--version") == 0
    assert re.fullmatch(rf"minitransformer {re.escape(PROJECT['version'])}, code \S+\n", capsys.readouterr().out)


def test_help_and_errors_name_the_command_as_it_was_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        minitransformer(monkeypatch, "average", "--help")
    assert "usage: minitransformer average [-h]" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        minitransformer(monkeypatch, "average", "--lsat", "3")
    assert "minitransformer average --help" in capsys.readouterr().err


COMPLETE = """
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
$(complete -p {program} | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
echo "${{COMPREPLY[*]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("program", "completed"),
    [
        ("minitransformer", {
            "minitransformer tr": "train translate",
            "minitransformer train --training.max-u": "--training.max-updates",
            "minitransformer score tune": "tune-length",
            "minitransformer report attention --kin": "--kinds",
        }),
        ("minitransformer-train", {
            "minitransformer-train --training.max-u": "--training.max-updates",
            "minitransformer-train --preset ti": "tiny",
        }),
    ],
)  # fmt: skip
def test_a_shell_completes_commands_options_and_values(
    program: str, completed: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = {"minitransformer": entry.main, "minitransformer-train": entry.train}[program]
    monkeypatch.setattr(sys, "argv", [f"/somewhere/bin/{program}", "--tyro-print-completion", "bash"])
    with pytest.raises(SystemExit) as caught:
        start()
    assert not caught.value.code
    script = capsys.readouterr().out
    script += "".join(COMPLETE.format(words=words, program=program) for words in completed)
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(completed.values())


@pytest.mark.parametrize("words", [["ksh"], []])
@pytest.mark.parametrize("command", [[], ["train"]])
def test_a_shell_that_cannot_be_completed_is_answered_with_those_that_can(
    command: list[str], words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert minitransformer(monkeypatch, *command, "--tyro-print-completion", *words) == 1
    assert capsys.readouterr().err == "error: --tyro-print-completion: name the shell after it: bash, zsh, fish\n"
