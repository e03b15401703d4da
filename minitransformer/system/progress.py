"""Progress of long work: a bar on a terminal, and the interval of log lines elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

LOG_INTERVAL = 30.0  # least number of seconds between two log lines without a terminal


class WorkBar(Progress):
    """A progress bar: the amount of finished work, a description, the time taken and the time left."""

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

    def stop(self) -> None:
        """Stop the bar; Rich before 14.3 would end a bar that is not shown with an empty line."""
        if not self.disable:
            super().stop()


class _Count(ProgressColumn):
    def render(self, task: Task) -> Text:
        total = "" if task.total is None else f"/{task.total:,.0f}"
        return Text(f"{task.completed:,.0f}{total}", style="bold")


def in_words(seconds: float) -> str:
    """Return a duration as text: "40 s", "12 min" or "3 h 05 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"
