"""The progress of training on a terminal, or as log lines."""

from __future__ import annotations

import time
from datetime import datetime

from rich.console import Console

from minitransformer.system.progress import LOG_INTERVAL, WorkBar, in_words
from minitransformer.training.callbacks.callback import Callback, TrainingReport, ValidationReport
from minitransformer.training.state import TrainingState
from minitransformer.training.step import StepResult


class ProgressBar(Callback):
    """A progress bar of at most 80 columns if the output is a terminal, else log lines with clock and time left."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress = WorkBar(console)
        self._task = self._progress.add_task("starting", total=None)
        self._figures = ""
        self._max_updates, self._first = 0, TrainingState()
        self._logged = time.monotonic()  # when the last line was printed

    def begin(self, state: TrainingState, max_updates: int) -> None:
        """Show the bar."""
        self._max_updates, self._first = max_updates, state
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

    def validating(self, n_done: int, n_sentences: int) -> None:
        """Show how many sentences are translated: in the place of the figures, or as a line every 30 seconds."""
        is_done, text = n_done == n_sentences, f"validating {n_done:,}/{n_sentences:,}"
        self._describe(self._figures if is_done else text)
        if not (self.console.is_terminal or is_done or time.monotonic() < self._logged + LOG_INTERVAL):
            self._log(text)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Show the figures in the bar, or as a line of their own."""
        if isinstance(report, ValidationReport):
            greedy = f"greedy {report.score.name} {report.score.value:.2f} [{report.score.signature}]"
            self._log(
                f"step {report.step:,}: validation loss {report.loss:.4f}, perplexity {report.perplexity:.2f},"
                f" {greedy}{', the best so far' if report.best else ''}"
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
        """Print a line; off a terminal, with the clock before it."""
        clock = "" if self.console.is_terminal else f"{datetime.now():%H:%M:%S} "
        self.print(clock + line)

    def _seconds_left(self, report: TrainingReport) -> float:
        """Estimate the training time that is left from the mean speed since ``begin``."""
        per_update = (report.seconds - self._first.seconds) / max(1, report.step - self._first.step)
        return per_update * (self._max_updates - report.step)
