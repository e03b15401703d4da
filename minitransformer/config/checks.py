"""Checks of settings, and conversion of settings that are read from files."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from minitransformer.system.errors import UserError

COUNT = (1, 2**31)  # fits the integers of libraries
WIDTH = (1, 2**20)  # keeps the sizes of matrices within NumPy's integers
SHARE = (0, 1)
FACTOR = (1e-30, 10**6)  # float32 can hold its inverse, and its product with any number of a healthy model

_TYPES: dict[type, tuple[tuple[type, ...], str]] = {  # type of a setting → the types that a file may give for it
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a string"),
    Path: ((str,), "a string"),
    tuple: ((list,), "a list"),
}

Config = TypeVar("Config")


class ConfigError(UserError, ValueError):
    """An error: a configuration is invalid for a model or a training run."""


def require_bounds(part: str, config: Any, bounds: Mapping[str, tuple[float, float]]) -> None:
    """Check that every number is within its bounds, least ≤ number < below.  Raises: ConfigError."""
    for name, (least, below) in bounds.items():
        value = getattr(config, name)
        if value is not None and not least <= value < below:
            raise ConfigError(f"{part}.{name} must be at least {least:,} and less than {below:,}; got {value!r}")


def require_choices(part: str, config: Any, choices: Mapping[str, Any]) -> None:
    """Check that every setting has one of the values of its type, a ``Literal``.  Raises: ConfigError."""
    for name, allowed in choices.items():
        value = getattr(config, name)
        require(value in get_args(allowed), f"{part}.{name}", f"one of {get_args(allowed)}", value)


def require(condition: bool, name: str, expected: str, got: Any) -> None:
    """Raise ConfigError unless a setting's condition holds."""
    if not condition:
        raise ConfigError(f"{name} must be {expected}; got {got!r}")


def with_changes(
    config: Config, changes: Mapping[str, Any], prefix: str = "", other_keys: Sequence[str] = ()
) -> Config:
    """Return a configuration with settings from a TOML or JSON file.

    A table in the file sets one part of the configuration.

    Args:
        prefix: the name of this part of the configuration and a dot, such as "training."; used in messages.
        other_keys: further keys that the file may have, which the caller has read; used in messages.

    Raises: ConfigError that names the setting, if it is unknown, has another type or is invalid.
    """
    types = get_type_hints(type(config))
    typed = {}
    for name, value in changes.items():
        if name not in types:
            raise ConfigError(f"unknown key {prefix + name!r}; {_meant(name, types, prefix, other_keys)}")
        if dataclasses.is_dataclass(types[name]):
            require(isinstance(value, Mapping), prefix + name, "a table of settings", value)
            typed[name] = with_changes(getattr(config, name), value, f"{prefix}{name}.")
        else:
            typed[name] = _typed(prefix + name, value, types[name])
    return dataclasses.replace(config, **typed)  # type: ignore[type-var]


def _typed(name: str, value: Any, kind: Any) -> Any:
    """Convert a value to the type of its setting: a list to a tuple, a string to a path.  Raises: ConfigError."""
    if get_origin(kind) is UnionType:  # X | None
        return None if value is None else _typed(name, value, get_args(kind)[0])
    if get_origin(kind) is Literal:
        require(value in get_args(kind), name, f"one of {get_args(kind)}", value)
        return value
    constructor = get_origin(kind) or kind
    allowed, expected = _TYPES[constructor]
    require(type(value) in allowed, name, expected, value)
    if constructor is tuple:
        return tuple(_typed(f"{name}[{i}]", item, get_args(kind)[0]) for i, item in enumerate(value))
    try:
        return constructor(value)
    except OverflowError as error:  # of a whole number as a float
        raise ConfigError(f"{name} is too large: {error}") from error


def _meant(key: str, types: Mapping[str, Any], prefix: str, other_keys: Sequence[str]) -> str:
    """Return a hint: the table that this key belongs to, or a similar key, or all known keys."""
    tables = [name for name, kind in types.items() if dataclasses.is_dataclass(kind) and key in get_type_hints(kind)]
    known = [*types, *other_keys]
    return f"did you mean {f'{prefix}{tables[0]}.{key}'!r}?" if tables else suggestion(key, known, prefix)


def suggestion(key: str, known: Sequence[str], prefix: str = "") -> str:
    """Return a hint: the known key that is similar to a misspelt one, or else all known keys."""
    similar = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {prefix + similar[0]!r}?" if similar else f"known here: {', '.join(known)}"
