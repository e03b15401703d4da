"""Errors that users can fix."""


class UserError(Exception):
    """An error that the user of a command can fix; its message names file or setting, problem and remedy."""


def require_lists(name: str, *arguments: object) -> None:
    """Raise TypeError if an argument is one str instead of a list of lines: each character would be a line."""
    for lines in arguments:
        if isinstance(lines, str):
            raise TypeError(f"{name}: expected a list of lines, got one str: use [{lines!r:.40}]")
