"""Errors of pages and pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minitransformer.system.errors import UserError, install_extra

PICTURES = (".png", ".svg", ".pdf")


class ReportError(UserError, ValueError):
    """An error: a page or picture cannot be made."""


@contextmanager
def matplotlib_needed() -> Iterator[None]:
    """Guard imports of modules that need matplotlib, an optional extra.  Raises: ReportError with the remedy."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ReportError(f"pictures are drawn by matplotlib; {install_extra('report')}") from error


def check_suffix(path: Path, known: tuple[str, ...]) -> None:
    """Raise ReportError unless the file's name ends in one of the suffixes ``known``."""
    if path.suffix.lower() not in known:
        raise ReportError(f"{path}: the suffix must name the format; expected one of {', '.join(known)}")
