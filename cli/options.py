"""The options of a command: the fields of one dataclass, read by tyro."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar, Union, cast

import tyro

from cli.command import say
from cli.help import AS_SHOWN, WrappedLines
from minitransformer.config import ConfigError
from minitransformer.config.checks import suggestion

Options = TypeVar("Options")

MOST_THREADS = 1_024
SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True, kw_only=True)
class Common:
    """The options of every command."""

    debug: tyro.conf.FlagCreatePairsOff[bool] = False
    """Show where in the code an error arose, not only its message."""


def read(options: Any, arguments: Sequence[str], **more: Any) -> Any:
    """Return the options that tyro reads from the command line; ``more`` goes to ``tyro.cli``."""
    tyro._experimental_options["ansi_codes"] = not os.environ.get("NO_COLOR")
    how: dict[str, Any] = {"registry": AS_SHOWN, "config": (tyro.conf.PositionalMetavarFromFieldName,)}
    stream = sys.stdout if asks_for_completion(arguments) else cast(TextIO, WrappedLines(sys.stdout))
    with redirect_stdout(stream):
        return tyro.cli(options, prog=Path(sys.argv[0]).name, args=list(arguments), **how, **more)


def asks_for_completion(arguments: Sequence[str]) -> bool:
    """Return whether tyro is asked for a script that completes options in a shell.

    Raises: ConfigError if no shell is named for which tyro can write one.
    """
    if not arguments or not arguments[0].startswith("--tyro-"):
        return False
    if len(arguments) < 2 or arguments[1] not in SHELLS:
        raise ConfigError(f"{arguments[0]}: name the shell after it: {', '.join(SHELLS)}")
    return True


def parse_options(default: Options, description: str, arguments: Sequence[str], file_remedy: str = "") -> Options:
    """Return the options of a command: ``default``, changed by the command line.

    Args:
        file_remedy: advice for a file name that is given without an option; {file} in it stands for that name.

    Raises: ConfigError if a file name is given without an option and there is a ``file_remedy``; SystemExit after the
    help text, and after the message of any other error of the command line.
    """
    how = {"description": description, "default": default}
    chosen, unknown = read(type(default), arguments, return_unknown_args=True, **how)
    if not unknown:
        return cast(Options, chosen)
    if file_remedy and not unknown[0].startswith("-"):
        raise ConfigError(f"{unknown[0]}: it follows no option; {file_remedy.format(file=unknown[0])}")
    return cast(Options, read(type(default), arguments, **how))  # prints similar options, exits


def parse_kind(kinds: Mapping[str, type], description: str, arguments: Sequence[str], remedy: str = "") -> Any:
    """Return the options of one of several kinds of a command; the first argument names the kind.

    Args:
        remedy: further advice if the first argument is no kind; {word} in it stands for that argument.

    Raises: ConfigError if the first argument is no kind; SystemExit as ``parse_options`` does.
    """
    if arguments and not arguments[0].startswith("-") and arguments[0] not in kinds:
        word = arguments[0]
        raise ConfigError(f"unknown word {word!r}; {suggestion(word, list(kinds))}{remedy.format(word=word)}")
    return read(one_of(kinds), arguments, description=description)


def one_of(kinds: Mapping[str, Any]) -> Any:
    """Return the type of the options of these kinds or commands, by name."""
    named = [Annotated[kind, tyro.conf.subcommand(name)] for name, kind in kinds.items()]
    return Union[(*named, Annotated[None, tyro.conf.Suppress])]  # of a single type Python would make no union


def require_threads(n: int | None) -> None:
    """Raise ConfigError if ``n`` is given and is not between 1 and MOST_THREADS."""
    if n is not None and not 1 <= n <= MOST_THREADS:
        raise ConfigError(f"--threads must be at least 1 and at most {MOST_THREADS:,}; got {n}")


def as_text(name: str, argument: str) -> str:
    """Decode a command-line argument as UTF-8; replace invalid bytes, with a warning."""
    text = argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if text != argument:
        say(f"warning: the {name} is not UTF-8; read with replacements")
    return text
