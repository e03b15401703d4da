"""Options from three sources: a preset, a TOML file, the command line; each overrides those before it."""

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
    """Read the options of a command from ``--config FILE`` and the command line.

    Each key of the file is an option: ``warmup_steps`` in the table ``[training]`` is ``--training.warmup-steps``.

    Args:
        ignored: keys of the file that this command does not use.
        file_remedy: advice for a file name that is given without an option; {file} in it stands for that name.

    Raises: ConfigError if the TOML file is missing, is not TOML or has unknown keys, and for a file name without an
    option if there is a ``file_remedy``; SystemExit for other errors of the command line.
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
        raise ConfigError(f"{unknown[0]}: it follows no option; {file_remedy.format(file=unknown[0])}")
    return tyro.cli(options, description=description, args=words, default=default)  # prints similar options, and exits


def require_threads(n: int | None) -> None:
    """Raise ConfigError if ``n`` is given and is not between 1 and MOST_THREADS."""
    if n is not None and not 1 <= n <= MOST_THREADS:
        raise ConfigError(f"--threads must be at least 1 and at most {MOST_THREADS:,}; got {n}")


def take_option(words: Sequence[str], name: str) -> tuple[str | None, list[str]]:
    """Remove ``name VALUE`` or ``name=VALUE`` from the words of a command line; return the value and the rest."""
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
    """Remove ``name``, ``name VALUE`` or ``name=VALUE`` as ``take_option`` does; the value is "" if none follows."""
    if name in words:
        after = words.index(name) + 1
        if after == len(words) or words[after].startswith("-"):
            return "", [*words[: after - 1], *words[after:]]
    return take_option(words, name)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, with or without a byte order mark.

    Raises: ConfigError with the file's name, and the line if it is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: not found; expected a TOML file, such as recipes/multi30k-en-de.toml") from error
    except (OSError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, not TOML, too long a number
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from error


def name_of(key: str, table: Mapping[str, Any], file: str | None) -> str | None:
    """Return the name that a file gives for ``key``, a preset or a system.  Raises: ConfigError if not a string."""
    name = table.get(key)
    if not isinstance(name, str | None):
        raise ConfigError(f"{file}: {key} must be a name; got {name!r}")
    return name


def _as_words(
    table: Mapping[str, Any], options: Any, file: str, ignored: Sequence[str] = (), prefix: str = ""
) -> list[str]:
    """Return the options of a table as words of a command line."""
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
    """Return a hint: the known key that is similar to a misspelt one, or else all known keys."""
    similar = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {prefix + similar[0]!r}?" if similar else f"known here: {', '.join(known)}"
