"""The progress bar of a training run."""

from __future__ import annotations

import sys
import time
from collections import deque
from datetime import datetime

from rich.console import Console

from minitransformer.model.transformer import Transformer
from minitransformer.system.progress import LOG_INTERVAL, WorkBar, in_words
from minitransformer.training.callbacks import Callback, TrainingReport, ValidationReport
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult

SPEED_SECONDS = 60  # the mean speed of the last 60 seconds gives the time left


class ProgressBar(Callback):
    """A progress bar of at most 80 columns on a terminal, else log lines with the time of day and the time left."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr, highlight=False)
        self._progress = WorkBar(self.console)
        self._task = self._progress.add_task("starting", total=None)
        self._figures = ""
        self._max_updates = 0
        self._reports = deque[tuple[float, int]]()  # (seconds, updates) of the last minute's reports and of one before
        self._logged = time.monotonic()  # time of the last line

    def begin(self, state: TrainingState, max_updates: int) -> None:
        self._max_updates, self._reports = max_updates, deque([(state.seconds, state.step)])
        self._progress.reset(self._task, total=max_updates, completed=state.step)
        self._progress.start()

    def end(self) -> None:
        self._progress.stop()

    def after_step(self, result: StepResult, state: TrainingState, model: Transformer) -> None:
        self._progress.update(self._task, completed=state.step)

    def go_back(self, state: TrainingState) -> None:
        self._reports = deque([(state.seconds, state.step)])
        self._progress.update(self._task, completed=state.step)

    def validating(self, n_done: int, n_sentences: int) -> None:
        """Show how many sentences are translated: in the bar, instead of the figures, or in a line every 30 seconds."""
        is_done, text = n_done == n_sentences, f"validating {n_done:,}/{n_sentences:,}"
        self._describe(self._figures if is_done else text)
        if not (self.console.is_terminal or is_done or time.monotonic() < self._logged + LOG_INTERVAL):
            self._log(text)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Show figures of training in the bar, or in a line if there is no terminal; show a validation in a line."""
        if isinstance(report, ValidationReport):
            greedy = f"greedy {report.score.name} {report.score.value:.2f} [{report.score.signature}]"
            measures = "".join(f", {name} {value:.4g}" for name, value in report.measures.items())
            self._log(
                f"step {report.step:,}: validation loss {report.loss:.4f}, perplexity {report.perplexity:.2f},"
                f" {greedy}{measures}{', the best so far' if report.best else ''}"
            )
            return
        self._figures = f"loss {report.loss:.3f}, {report.target_tokens_per_second:,.0f} tokens/s"
        self._describe(self._figures)
        if not self.console.is_terminal:
            self._log(
                f"step {report.step:,} of {self._max_updates:,}, epoch {report.epoch}: loss {report.loss:.4f},"
                f" {report.target_tokens_per_second:,.0f} tokens/s, learning rate {report.learning_rate:.2e},"
                f" {in_words(self._seconds_left(report))} left"
            )

    def print(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        self._logged = time.monotonic()
        self.console.print(line, markup=False, soft_wrap=True)

    def _describe(self, text: str) -> None:
        self._progress.update(self._task, description=text)

    def _log(self, line: str) -> None:
        """Print a line; if the output is no terminal, print the time before the line."""
        clock = "" if self.console.is_terminal else f"{datetime.now():%H:%M:%S} "
        self.print(clock + line)

    def _seconds_left(self, report: TrainingReport) -> float:
        """Return the training time that is left, estimated from the speed of the last minute."""
        self._reports.append((report.seconds, report.step))
        while report.seconds - self._reports[1][0] >= SPEED_SECONDS:
            self._reports.popleft()
        seconds, step = self._reports[0]
        return (report.seconds - seconds) / max(1, report.step - step) * (self._max_updates - report.step)
