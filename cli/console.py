"""Progress on stderr: log lines, and on a terminal a bar."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from datetime import datetime
from threading import Lock
from types import TracebackType
from typing import Any, TextIO, cast

from rich.console import Console

from minitransformer.system.progress import LOG_INTERVAL, WorkBar, in_words


def log_console(*, quiet: bool) -> Console:
    """Return a console on stderr that ignores write errors, as ``say`` does."""
    return Console(file=cast(TextIO, _LossyStream(sys.stderr)), highlight=False, quiet=quiet)


class _LossyStream:
    """A stream that ignores write errors, such as a full disk, or a pipe that the reader has closed."""

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


class Counter:
    """A context that shows the count of finished items, such as lines; ``total`` is None if it is not known.

    A terminal shows a bar.  Elsewhere a line with the time is printed at most every 30 seconds.
    """

    def __init__(self, console: Console, items: str, total: int | None) -> None:
        self._console, self._items = console, items
        self._bar, self._lock, self._logged = WorkBar(console), Lock(), time.monotonic()
        self._bar.add_task(items, total=total)
        (self._task,) = self._bar.tasks

    def __enter__(self) -> Counter:
        self._bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._bar.stop()

    def advance(self, n: float) -> None:
        """Add ``n`` finished items, on any thread.  The first call adds the items that an earlier process finished."""
        self._bar.advance(self._task.id, n)
        with self._lock:
            if self._console.is_terminal or time.monotonic() < self._logged + LOG_INTERVAL:
                return
            self._logged = time.monotonic()
            total = "" if self._task.total is None else f" of {self._task.total:,.0f}"
            seconds = self._task.time_remaining
            left = "" if seconds is None else f", {in_words(seconds)} left"
            line = f"{datetime.now():%H:%M:%S} {self._task.completed:,.0f}{total} {self._items}{left}"
            self._console.print(line, markup=False, soft_wrap=True)
