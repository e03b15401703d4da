"""Progress on stderr: log lines, and on a terminal a bar."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, TextIO, cast

from rich.console import Console


def log_console(*, quiet: bool) -> Console:
    """Return a console on stderr that ignores write errors, as ``say`` does."""
    return Console(file=cast(TextIO, _Lossy(sys.stderr)), highlight=False, quiet=quiet)


class _Lossy:
    """A stream that ignores write errors: the disk is full, or the reader has closed it, as "head" does."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
