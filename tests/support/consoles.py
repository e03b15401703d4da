"""The commands that documents show in their console blocks."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from cli.entry import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md", *sorted((ROOT / "docs/start").glob("*.md")), *sorted((ROOT / "docs/guide").glob("*.md")),
    ROOT / "docs/parsing.md", ROOT / "docs/learn/class.md",
]  # fmt: skip
"""README, Start, Guides and the plan of a class: every command in them is tested."""

LAUNCHERS = ("mpirun", "srun")
SKIPPED = ""
OPERATORS = ("|", "<", ">", ">>", "&&", ";", "&", "||", "(", ")")


def steps_of(document: Path) -> list[tuple[str, str]]:
    """Return the commands and the Python programs of a document in order, as ("console" or "python", text)."""
    blocks = re.findall(
        r"^ *```(console|python)\n(.*?)^ *```", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    return [(kind, text) for kind, block in blocks for text in (_commands(block) if kind == "console" else [block])]


def commands_of(document: Path) -> list[str]:
    """Return the commands of a document in order: lines after "$ ", with those that continue them."""
    return [text for kind, text in steps_of(document) if kind == "console"]


def is_definition(command: str) -> bool:
    """Return whether a command only defines a variable of the shell, for the commands after it."""
    return re.fullmatch(r'\w+="[^"]*"', command) is not None


def shown_in(document: Path) -> list[str]:
    """Return the commands of a document, and besides lines of scripts and commands within sentences and tables."""
    text = document.read_text("utf-8")
    scripts = [
        line for block in re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.M) for line in block.splitlines()
    ]
    spans = re.findall(
        r"`((?:mpirun|srun|minitransformer)[^`]* --[^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    )
    shown = [*commands_of(document), *scripts, *spans]
    for name, _, value in [command.partition("=") for command in shown if is_definition(command)]:
        shown = [command.replace(f"${name}", value.strip('"')) for command in shown]
    return shown


def _commands(block: str) -> Iterator[str]:
    """Yield the commands of a block; what they print is left out."""
    lines = iter(re.sub(r"^ +(?=\$ )", "", block, flags=re.MULTILINE).splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line.removeprefix("$ ")
            while command.endswith("\\") or not _is_complete(command):
                command += "\n" + next(lines)
            if here := re.search(r"<<'(\w+)'$", command):
                command += "".join(f"\n{each}" for each in iter(lines.__next__, here[1])) + f"\n{here[1]}"
            yield command


def _is_complete(command: str) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:  # a quotation goes on
        return False
    return True


def calls_in(command: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the calls of our commands in a line of the shell: the name, and the arguments without redirections."""
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars="|<>&;()")
    lexer.whitespace_split = True
    simple: list[str] = []
    for word in [*lexer, ";"]:
        if word not in OPERATORS:
            simple.append(word)
            continue
        yield from _call_in(simple)
        simple = [SKIPPED] if word in ("<", ">", ">>") else []


def _call_in(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the call of one simple command, if it is one of ours."""
    while words and (words[0] in LAUNCHERS or words[0].startswith("-") or words[0].isdigit()):
        words = words[1:]  # mpirun -n 2
    if words and words[0] == "minitransformer" and words[1:2] and words[1] in COMMANDS:
        words = [f"minitransformer-{words[1]}", *words[2:]]
    name = words[0].removeprefix("minitransformer-") if words else ""
    if name in COMMANDS and name != words[0]:
        yield name, [each for each in words[1:] if not re.fullmatch(r"…|--\w+\.", each)]
