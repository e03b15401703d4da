"""The progress of training on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from minitransformer.training.callbacks.callback import Callback, TrainingReport, ValidationReport
from minitransformer.training.state import TrainingState
from minitransformer.training.step import StepResult


class _StepsPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:.2f} updates/s")


class ProgressBar(Callback):
    """A progress bar if the output is a terminal, else log lines."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress = Progress(
            TextColumn("[bold]{task.completed:,.0f}/{task.total:,.0f}"),
            BarColumn(bar_width=None),
            TextColumn("{task.description}"),
            _StepsPerSecond(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            refresh_per_second=4,
        )
        self._task = self._progress.add_task("starting", total=None)

    def begin(self, state: TrainingState, max_updates: int) -> None:
        """Show the bar."""
        self._progress.reset(self._task, total=max_updates, completed=state.step)
        self._progress.start()

    def end(self) -> None:
        """Leave the bar as it is."""
        self._progress.stop()

    def after_step(self, result: StepResult, state: TrainingState) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=state.step)

    def go_back(self, state: TrainingState) -> None:
        """Move the bar back."""
        self._progress.update(self._task, completed=state.step)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Show the figures in the bar, or as a line of their own."""
        if isinstance(report, ValidationReport):
            greedy = f"greedy {report.score.name} {report.score.value:.2f} [{report.score.signature}]"
            self.print(
                f"step {report.step:,}: validation loss {report.loss:.4f}, perplexity {report.perplexity:.2f},"
                f" {greedy}{', the best so far' if report.best else ''}"
            )
            return
        figures = (
            f"loss {report.loss:.4f}, {report.target_tokens_per_second:,.0f} tokens/s,"
            f" learning rate {report.learning_rate:.2e}"
        )
        self._progress.update(self._task, description=figures)
        if not self.console.is_terminal:
            self.print(f"step {report.step:,}, epoch {report.epoch}: {figures}")

    def print(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        self.console.print(line, markup=False, soft_wrap=True)
