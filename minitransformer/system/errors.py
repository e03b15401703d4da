"""Errors that users can fix."""


class UserError(Exception):
    """An error that the user of a command can fix; its message names file or setting, problem and remedy."""
