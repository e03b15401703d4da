"""Errors of pages."""

from __future__ import annotations

from minitransformer.system.errors import UserError


class ReportError(UserError, ValueError):
    """An error: a page cannot be made."""
