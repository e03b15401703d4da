"""Callbacks of a training run: a progress bar, a file of metrics, and any that a user adds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from minitransformer.evaluation.bleu import Score
from minitransformer.training.metrics import METRICS_FILE, MetricsLog


@dataclass(frozen=True)
class TrainingReport:
    """An interval of training: means over it (loss in nats per target token, label smoothing included).

    ``seconds`` and ``flops`` are those of the whole run up to its end.
    """

    step: int
    epoch: int
    loss: float
    learning_rate: float
    gradient_norm: float
    target_tokens_per_second: float
    seconds: float
    flops: int | None


@dataclass(frozen=True)
class ValidationReport:
    """Held-out text: loss in nats per target token, without label smoothing; BLEU or F1 with its signature."""

    step: int
    loss: float
    perplexity: float
    score: Score
    best: bool
    seconds: float


class Callback:
    """Functions that a training run calls; here they do nothing.  Every rank has its own callbacks."""

    def begin(self, step: int, max_updates: int) -> None:
        """Take note that updates after ``step`` begin."""

    def after_step(self, step: int) -> None:
        """Take note that update ``step`` has been made, or is under way on a GPU."""

    def go_back(self, step: int) -> None:
        """Take note that training goes on from an earlier update, ``step``."""

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Take the figures of an interval, or of a validation."""

    def say(self, line: str) -> None:
        """Take a line that a person should read."""

    def end(self) -> None:
        """Take note that training is over, or has failed."""


class Callbacks(Callback):
    """Several callbacks as one; they are called in their order."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._all = list(callbacks)

    def begin(self, step: int, max_updates: int) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.begin(step, max_updates)

    def after_step(self, step: int) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.after_step(step)

    def go_back(self, step: int) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.go_back(step)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.report(report)

    def say(self, line: str) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.say(line)

    def end(self) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.end()


class MetricsFile(Callback):
    """The file ``metrics.jsonl`` in the run's directory, with a line for each report.

    A full disk does not end the training: the line is written with the next one, and ``log`` gets a warning.
    """

    def __init__(self, run: Path, log: Callable[[str], None] = lambda line: None) -> None:
        self._run, self._log = run, log

    def begin(self, step: int, max_updates: int) -> None:
        """Cut off the lines of updates after ``step``, which will be made again."""
        self._metrics = MetricsLog(self._run, step, self._log)

    def go_back(self, step: int) -> None:
        """Cut off the lines of updates after ``step``, which will be made again."""
        self._metrics = MetricsLog(self._run, step, self._log)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Append a line."""
        kind = "training" if isinstance(report, TrainingReport) else "validation"
        try:
            self._metrics.append({"kind": kind, "time": time.time()} | _figures_of(report))
        except OSError as error:
            path = self._run / METRICS_FILE
            self._log(f"warning: {path}: cannot be written ({error}); tried again with the next line")


class _StepsPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:.2f} updates/s")


class ProgressBar(Callback):
    """A progress bar on a terminal, or lines elsewhere."""

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
            console=self.console,
            disable=not self.console.is_terminal,
            refresh_per_second=4,
        )
        self._task = self._progress.add_task("starting", total=None)

    def begin(self, step: int, max_updates: int) -> None:
        """Show the bar."""
        self._progress.reset(self._task, total=max_updates, completed=step)
        self._progress.start()

    def end(self) -> None:
        """Leave the bar as it is."""
        self._progress.stop()

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        self._progress.console.print(line, markup=False, soft_wrap=True)

    def after_step(self, step: int) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=step)

    def go_back(self, step: int) -> None:
        """Move the bar back."""
        self._progress.update(self._task, completed=step)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Show the figures in the bar, or as a line of their own."""
        if isinstance(report, ValidationReport):
            greedy = f"greedy {report.score.name} {report.score.value:.2f} [{report.score.signature}]"
            self.say(
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
            self.say(f"step {report.step:,}, epoch {report.epoch}: {figures}")


def _figures_of(report: TrainingReport | ValidationReport) -> dict[str, Any]:
    """Return the fields of a report; a score has its own name."""
    figures = asdict(report)
    if isinstance(report, ValidationReport):
        del figures["score"]
        figures |= {report.score.name.lower(): report.score.value, "signature": report.score.signature}
    return figures
