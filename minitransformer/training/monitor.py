"""What a training run tells: a progress bar on a terminal, log lines elsewhere, and JSON lines in a file."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

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


class Monitor(Protocol):
    """Whoever wants to know how training goes."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, line: str) -> None:
        """Something that a person should read."""

    def advance(self, step: int) -> None:
        """An update is done."""

    def go_back(self, step: int) -> None:
        """Training goes on from an earlier update than it was at."""

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """An interval, or a validation, is over."""


class SilentMonitor:
    """For all ranks but the first, and for tests."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def say(self, line: str) -> None:
        """Nothing."""

    def advance(self, step: int) -> None:
        """Nothing."""

    def go_back(self, step: int) -> None:
        """Nothing."""

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Nothing."""


class _StepsPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:.2f} updates/s")


class ConsoleMonitor:
    """Progress bar on a terminal, else plain lines; and ``metrics.jsonl`` in the run's directory."""

    def __init__(self, run: Path, *, first_step: int, max_updates: int, console: Console) -> None:
        self.console, self._run = console, run
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
        self._task = self._progress.add_task("starting", total=max_updates, completed=first_step)
        self._metrics = MetricsLog(run, first_step, self.say)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(line, markup=False, soft_wrap=True)

    def advance(self, step: int) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=step)

    def go_back(self, step: int) -> None:
        """Move the bar back, and forget the log lines of updates that will be done again."""
        self._metrics = MetricsLog(self._run, step, self.say)
        self._progress.update(self._task, completed=step)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Write a JSON line; show the figures in the bar, or as a line of their own."""
        kind = "training" if isinstance(report, TrainingReport) else "validation"
        self._write({"kind": kind, "time": time.time()} | _figures_of(report))
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

    def _write(self, record: dict[str, Any]) -> None:
        """Append a line to the metrics; a full disk must not end the training, and the checkpoints will tell of it."""
        try:
            self._metrics.append(record)
        except OSError as error:
            self.say(
                f"warning: {self._run / METRICS_FILE}: cannot be written ({error}); tried again with the next line"
            )


def _figures_of(report: TrainingReport | ValidationReport) -> dict[str, Any]:
    """The fields of a report; a score under its own name."""
    figures = asdict(report)
    if isinstance(report, ValidationReport):
        del figures["score"]
        figures |= {report.score.name.lower(): report.score.value, "signature": report.score.signature}
    return figures
