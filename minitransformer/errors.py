"""What an error means to whom it is shown."""

from __future__ import annotations


class UserError(Exception):
    """Something that the user of a command can mend; its message says where, what was expected, what came, and how."""
