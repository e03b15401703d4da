"""The console of training: a progress bar on stderr, where there is somebody to see it."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, TextIO, cast

from rich.console import Console


def log_console(*, quiet: bool) -> Console:
    """A console on stderr; as with ``say``, what cannot be written is lost, and nothing ends for it."""
    return Console(file=cast(TextIO, _Lossy(sys.stderr)), highlight=False, quiet=quiet)


class _Lossy:
    """A stream that loses what cannot be written: the disk is full, or the reader has left, as "head" does."""

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
