"""The base class of errors that users can fix."""

from __future__ import annotations


class UserError(Exception):
    """An error that the user of a command can fix; its message names file or setting, problem and remedy."""
