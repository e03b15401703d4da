"""Options from three places: a preset, then a TOML file, then the command line; the later wins."""

from __future__ import annotations

import dataclasses
import difflib
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import tyro

from minitransformer.config import ConfigError

Options = TypeVar("Options")

MOST_THREADS = 1_024


def parse_options(
    options: type[Options],
    description: str,
    arguments: Sequence[str] | None = None,
    *,
    default: Options,
    ignored: Sequence[str] = (),
    file_remedy: str = "",
) -> Options:
    """Options of a command from ``--config FILE`` and the command line.

    Each key of the file is an option: ``warmup_steps`` in the table ``[training]`` is ``--training.warmup-steps``.
    ``ignored`` names what of the file does not concern this command.  ``file_remedy`` tells how to name a file that is
    given without an option; {file} in it is this file.

    Raises: ConfigError for a file that is missing, not TOML, or has unknown keys, or that is given without an option if
    there is a remedy; SystemExit for the command line.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    file, words = take_option(words, "--config")
    given = {} if file is None else read_toml(Path(file))
    given = {name: value for name, value in given.items() if name not in ignored}
    words = [*_as_words(given, options, file or "", ignored), *words]
    chosen, unknown = tyro.cli(options, description=description, args=words, default=default, return_unknown_args=True)
    if not unknown:
        return chosen
    if file_remedy and not unknown[0].startswith("-"):
        raise ConfigError(f"{unknown[0]}: no option stands before it; {file_remedy.format(file=unknown[0])}")
    return tyro.cli(options, description=description, args=words, default=default)  # tells which options are similar


def require_threads(n: int | None) -> None:
    """Raise ConfigError if a number of threads is given that no machine can start."""
    if n is not None and not 1 <= n <= MOST_THREADS:
        raise ConfigError(f"--threads must be at least 1 and at most {MOST_THREADS:,}; got {n}")


def take_option(words: Sequence[str], name: str) -> tuple[str | None, list[str]]:
    """Take ``name VALUE`` or ``name=VALUE`` out of the words of a command line."""
    rest = list(words)
    for i, word in enumerate(rest):
        if word.startswith(f"{name}="):
            return word.partition("=")[2], rest[:i] + rest[i + 1 :]
        if word == name:
            if i + 1 == len(rest):
                raise ConfigError(f"{name}: a value must follow")
            return rest[i + 1], rest[:i] + rest[i + 2 :]
    return None, rest


def take_word(words: Sequence[str], name: str) -> tuple[str | None, list[str]]:
    """Take ``name``, ``name VALUE`` or ``name=VALUE`` out of the words of a command line; "" if no value follows."""
    if name in words:
        after = words.index(name) + 1
        if after == len(words) or words[after].startswith("-"):
            return "", [*words[: after - 1], *words[after:]]
    return take_option(words, name)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, with or without a byte order mark.

    Raises: ConfigError naming the file, and the line if it is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: not found; expected a TOML file, such as recipes/multi30k-en-de.toml") from error
    except (OSError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, not TOML, a number without end
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from error


def name_of(key: str, table: Mapping[str, Any], file: str | None) -> str | None:
    """The preset or the system that a file names, which other options start from.  Raises: ConfigError if no name."""
    name = table.get(key)
    if not isinstance(name, str | None):
        raise ConfigError(f"{file}: {key} must be a name; got {name!r}")
    return name


def _as_words(
    table: Mapping[str, Any], options: Any, file: str, ignored: Sequence[str] = (), prefix: str = ""
) -> list[str]:
    """Return the options that a table stands for, in the words of the command line."""
    kinds = get_type_hints(options)
    words: list[str] = []
    for key, value in table.items():
        if key not in kinds:
            raise ConfigError(f"{file}: unknown key {prefix + key!r}; {_known(key, [*kinds, *ignored], prefix)}")
        if isinstance(value, dict) != dataclasses.is_dataclass(kinds[key]):
            expected = "a value, not a table" if isinstance(value, dict) else "a table, not a value"
            raise ConfigError(f"{file}: {prefix + key!r} must be {expected}")
        option = f"--{prefix}{key}".replace("_", "-")
        if isinstance(value, dict):
            words += _as_words(value, kinds[key], file, prefix=f"{prefix}{key}.")
        elif isinstance(value, bool):
            words.append(option if value else f"--{prefix}no-{key}".replace("_", "-"))
        else:
            words += [option, *map(str, value if isinstance(value, list) else [value])]
    return words


def _known(key: str, known: Sequence[str], prefix: str) -> str:
    """Return the known key that a misspelt one is nearly, or else all of them."""
    similar = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {prefix + similar[0]!r}?" if similar else f"known here: {', '.join(known)}"
