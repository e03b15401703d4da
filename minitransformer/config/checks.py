"""Checks of settings, and conversion of settings that are read from files."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, TypeVar, get_args, get_type_hints

from minitransformer.system import records
from minitransformer.system.errors import UserError

COUNT = (1, 2**31)  # from 1 to the largest int32, the type of counts in libraries
WIDTH = (1, 2**20)  # keeps the sizes of matrices within NumPy's integers
SHARE = (0, 1)
FACTOR = (1e-30, 10**6)  # float32 holds 1 / factor, and factor · x for any usual weight x

Config = TypeVar("Config")
Class = TypeVar("Class")


class ConfigError(UserError, ValueError):
    """An error: a configuration is invalid for a model or a training run."""


require = partial(records.require, error=ConfigError)


def require_choices(part: str, config: Any, choices: Mapping[str, Any]) -> None:
    """Check that every setting has a value that its ``Literal`` type allows.  Raises: ConfigError."""
    for name, allowed in choices.items():
        value = getattr(config, name)
        require(value in get_args(allowed), f"{part}.{name}", f"one of {get_args(allowed)}", value)


def unexpected_settings(part: str, config: Any, expected: Mapping[str, Any]) -> list[str]:
    """Return a text for each setting of a part of the configuration that has another value than expected."""
    return [
        f"{part}.{name}: expected {value!r}, got {got!r}"
        for name, value in expected.items()
        if (got := getattr(config, name)) != value
    ]


def imported(setting: str, name: str) -> Any:
    """Import and return the object that a setting names as "package.module:name".

    All names of objects, those of a user and those of EXTENSIONS, are resolved here.  Raises: ConfigError.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # also an error of the module's own code
        raise ConfigError(
            f"{setting}: {name!r} cannot be imported ({type(error).__name__}: {error}); expected package.module:name at"
            " the top of a module whose directory is in PYTHONPATH"
        ) from error


def imported_function(setting: str, name: str) -> Callable[..., Any]:
    """Import and return the function that a setting names.  Raises: ConfigError, also if it cannot be called."""
    found: Callable[..., Any] = imported(setting, name)
    require(callable(found), setting, "the name of a function", found)
    return found


def imported_class(setting: str, name: str, base: type[Class]) -> type[Class]:
    """Import and return the class that a setting names.  Raises: ConfigError, also if it does not derive from base."""
    found: type[Class] = imported(setting, name)
    is_derived = isinstance(found, type) and issubclass(found, base)
    require(is_derived, setting, f"a class derived from {base.__module__}.{base.__name__}", found)
    return found


def with_changes(
    config: Config, changes: Mapping[str, Any], prefix: str = "", other_keys: Sequence[str] = ()
) -> Config:
    """Return a copy of a configuration, changed by the settings of a TOML or JSON file.

    A table in the file sets one part of the configuration.

    Args:
        prefix: the name of this part of the configuration and a dot, such as "training."; used in messages.
        other_keys: known keys that are no fields of the configuration; used in messages.

    Raises: ConfigError that names the setting, if it is unknown, has the wrong type or is invalid.
    """
    types = get_type_hints(type(config))
    values = {}
    for name, value in changes.items():
        if name not in types:
            raise ConfigError(f"unknown key {prefix + name!r}; {_hint(name, types, prefix, other_keys)}")
        if dataclasses.is_dataclass(types[name]):
            require(isinstance(value, Mapping), prefix + name, "a table of settings", value)
            values[name] = with_changes(getattr(config, name), value, f"{prefix}{name}.")
        else:
            values[name] = records.convert_value(prefix + name, value, types[name], ConfigError)
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


def _hint(key: str, types: Mapping[str, Any], prefix: str, other_keys: Sequence[str]) -> str:
    """Return a hint: the table that this key belongs to, or a similar key, or all known keys."""
    tables = [name for name, kind in types.items() if dataclasses.is_dataclass(kind) and key in get_type_hints(kind)]
    known = [*types, *other_keys]
    return f"did you mean {f'{prefix}{tables[0]}.{key}'!r}?" if tables else suggestion(key, known, prefix)


def suggestion(key: str, known: Sequence[str], prefix: str = "") -> str:
    """Return a hint: the known key that is similar to a misspelt key, or else all known keys."""
    similar = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {prefix + similar[0]!r}?" if similar else f"known here: {', '.join(known)}"
