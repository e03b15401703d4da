"""Checks of settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from minitransformer.system.errors import UserError

COUNT = (1, 2**31)  # fits the integers of libraries
WIDTH = (1, 2**20)  # keeps the sizes of matrices within NumPy's integers
SHARE = (0, 1)
FACTOR = (1e-30, 10**6)  # float32 can hold its inverse, and its product with any number of a healthy model


class ConfigError(UserError, ValueError):
    """A configuration that is invalid for a model or a training run."""


def require_bounds(what: str, config: Any, bounds: Mapping[str, tuple[float, float]]) -> None:
    """Check that every number is within its bounds, least ≤ number < below.  Raises: ConfigError."""
    for name, (least, below) in bounds.items():
        value = getattr(config, name)
        if value is not None and not least <= value < below:
            raise ConfigError(f"{what}: {name} must be at least {least:,} and less than {below:,}; got {value!r}")


def require_choices(what: str, config: Any, choices: Mapping[str, Any]) -> None:
    """Check that every setting has one of the values of its type, a ``Literal``.  Raises: ConfigError."""
    for name, allowed in choices.items():
        value = getattr(config, name)
        require(value in get_args(allowed), f"{what}: {name}", f"one of {get_args(allowed)}", value)


def require(condition: bool, name: str, expected: str, got: Any) -> None:
    """Raise ConfigError unless a setting's condition holds."""
    if not condition:
        raise ConfigError(f"{name} must be {expected}; got {got!r}")
