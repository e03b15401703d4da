"""What keeps a picture from being made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minitransformer.errors import UserError

PICTURES = (".png", ".svg", ".pdf")


class ReportError(UserError, ValueError):
    """A page or picture that cannot be made."""


@contextmanager
def matplotlib_needed() -> Iterator[None]:
    """For the import of what draws with matplotlib, which is an extra.  Raises: ReportError with the remedy."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ReportError('pictures are drawn by matplotlib; in the clone, pip install -e ".[report]"') from error


def check_suffix(path: Path, known: tuple[str, ...]) -> None:
    """Raises: ReportError unless the file's name ends in one of these."""
    if path.suffix.lower() not in known:
        raise ReportError(f"{path}: its name must tell the format; expected one of {', '.join(known)}")
