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

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def minitransformer(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/minitransformer", *words])
    return entry.main()


def test_the_commands_are_those_that_have_a_hyphen() -> None:
    hyphenated = {f"minitransformer-{name}": f"cli.entry:{name}" for name in entry.COMMANDS}
    assert PROJECT["scripts"] == {"minitransformer": "cli.entry:main"} | hyphenated


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
def test_a_command_starts_by_the_first_word_or_its_entry_point(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(import_module(f"cli.{command}"), "main", lambda: started.append(list(sys.argv)) or 7)
    assert minitransformer(monkeypatch, command, "--run", "x") == getattr(entry, command)() == 7
    assert started[0] == [f"minitransformer {command}", "--run", "x"]


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


def test_version_has_project_and_commit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert minitransformer(monkeypatch, "--version") == 0
    assert re.fullmatch(rf"minitransformer {re.escape(PROJECT['version'])}, code \S+\n", capsys.readouterr().out)


def test_help_and_errors_name_the_command_as_it_was_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        minitransformer(monkeypatch, "average", "--help")
    assert "usage: minitransformer average [OPTIONS]" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        minitransformer(monkeypatch, "average", "--lsat", "3")
    assert "(see minitransformer average --help)" in capsys.readouterr().err


LINES = {
    "minitransformer tr": "train translate",
    "minitransformer train --training.max-u": "--training.max-updates",
    "minitransformer score tune": "tune-length",
    "minitransformer score pairs --de": "--debug",
    "minitransformer report attention --kin": "--kinds",
    "minitransformer report attention --kinds al": "alignment",
    "minitransformer-train --training.max-u": "--training.max-updates",
    "minitransformer-train --preset ti": "tiny",
    "minitransformer-score tune": "tune-length",
}
"""The beginnings of lines, and the words that may complete them."""
COMPLETE = {
    "bash": """
COMP_WORDS=({line})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
$(complete -p {program} | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
echo "${{COMPREPLY[*]}}"
""",
    "fish": """
echo (complete -C '{line}')
""",
}


def script_for(shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    assert minitransformer(monkeypatch, "--print-completion", shell) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", COMPLETE)
def test_shells_complete_words(shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = script_for(shell, monkeypatch, capsys)
    script += "".join(COMPLETE[shell].format(line=line, program=line.split()[0]) for line in LINES)
    done = subprocess.run([shell], input=script, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(LINES.values())


def test_bash_completes_file_after_options(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """No word of ours is offered, and the script asks bash for names of files then."""
    script = script_for("bash", monkeypatch, capsys)
    assert "complete -o default -F _minitransformer minitransformer minitransformer-train " in script
    script += COMPLETE["bash"].format(line="minitransformer train --config ''", program="minitransformer")
    assert subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True).stdout == "\n"


ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1=; source {script}; echo RE""ADY'
zpty -r shell output '*READY*'
zpty -n -w shell $'minitransformer train --training.max-u\t'
zpty -r shell output '*--training.max-updates*'
print completed
zpty -d shell
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "script").write_text(script_for("zsh", monkeypatch, capsys))
    code = ZSH.format(script=tmp_path / "script")
    done = subprocess.run(["zsh", "-f", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "completed\n"


@pytest.mark.parametrize("words", [["ksh"], []])
def test_a_shell_that_cannot_be_completed_is_answered_with_those_that_can(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert minitransformer(monkeypatch, "--print-completion", *words) == 1
    assert capsys.readouterr().err == "error: --print-completion: name the shell after it: bash, zsh, fish\n"
