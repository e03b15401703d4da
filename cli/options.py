"""The options of a command: the fields of one dataclass, read by tyro."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import tyro

from cli.command import say
from minitransformer.config import ConfigError

Options = TypeVar("Options")

MOST_THREADS = 1_024


def parse_options(default: Options, description: str, arguments: Sequence[str], file_remedy: str = "") -> Options:
    """Return the options of a command: ``default``, changed by the command line.

    Args:
        file_remedy: advice for a file name that is given without an option; {file} in it stands for that name.

    Raises: ConfigError if a file name is given without an option and there is a ``file_remedy``; SystemExit after the
    help text, and after the message of any other error of the command line.
    """
    options = type(default)
    chosen, unknown = tyro.cli(
        options, description=description, args=arguments, default=default, return_unknown_args=True
    )
    if not unknown:
        return chosen
    if file_remedy and not unknown[0].startswith("-"):
        raise ConfigError(f"{unknown[0]}: it follows no option; {file_remedy.format(file=unknown[0])}")
    return tyro.cli(options, description=description, args=arguments, default=default)  # prints similar options, exits


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
