"""Progress of long work: a bar on a terminal, elsewhere a log line now and then."""

from __future__ import annotations

import time
from datetime import datetime
from threading import Lock
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

LOG_INTERVAL = 30.0  # seconds, at least, between lines off a terminal


class WorkBar(Progress):
    """A bar of at most 80 columns: how much is done, a description, the time taken and the time left."""

    def __init__(self, console: Console) -> None:
        columns = (_Count(), BarColumn(None), TextColumn("{task.description}"), TimeElapsedColumn())
        super().__init__(
            *columns,
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            refresh_per_second=4,
            redirect_stdout=False,
        )


class _Count(ProgressColumn):
    def render(self, task: Task) -> Text:
        total = "" if task.total is None else f"/{task.total:,.0f}"
        return Text(f"{task.completed:,.0f}{total}", style="bold")


class Counter:
    """A count of finished items, such as lines, while this context is open; ``total`` is None if it is not known.

    Off a terminal, a line with the clock follows at most every 30 seconds.
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
        """Add ``n`` items, on any thread.  The first call has the number of those that were finished before."""
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


def in_words(seconds: float) -> str:
    """Return a duration for people: "40 s", "12 min" or "3 h 05 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"
