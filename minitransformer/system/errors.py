"""The base class of errors that users can fix."""

from __future__ import annotations


def install_extra(extra: str) -> str:
    """Return the remedy for a missing package of one of this project's extras, which no package index has."""
    return f'install it with pip install -e ".[{extra}]" in the directory of the clone'


class UserError(Exception):
    """An error that the user of a command can fix; its message names file or setting, problem and remedy."""
