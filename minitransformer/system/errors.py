"""Errors that users can fix."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class UserError(Exception):
    """An error that the user of a command can fix; its message names file or setting, problem and remedy."""


class MissingExtraError(UserError):
    """An error: a package of one of this project's extras cannot be imported."""


def import_extra(extra: str, module: str) -> Any:
    """Return a module of a package that one of this project's extras installs.  Raises: MissingExtraError."""
    try:
        return import_module(module)
    except Exception as error:  # a package that is too old may raise any error
        raise MissingExtraError(
            f'the extra "{extra}" is missing or too old ({error}): install it with pip install -e ".[{extra}]" in the'
            " directory of the clone"
        ) from error
