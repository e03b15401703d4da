"""Errors of pages and pictures."""

from __future__ import annotations

from pathlib import Path

from minitransformer.system.errors import UserError

PICTURES = (".png", ".svg", ".pdf")


class ReportError(UserError, ValueError):
    """An error: a page or picture cannot be made."""


def check_suffix(path: Path, known: tuple[str, ...]) -> None:
    """Raise ReportError unless the file's name ends in one of the suffixes ``known``."""
    if path.suffix.lower() not in known:
        raise ReportError(f"{path}: the suffix must name the format; expected one of {', '.join(known)}")
