"""Callbacks of a training run: their interface, the progress bar, the file of metrics."""

from __future__ import annotations

import itertools
import json
import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from minitransformer.config.run import METRICS_FILE
from minitransformer.inference.bleu import Score
from minitransformer.inference.task import Sample
from minitransformer.system.files import atomic_write, write_text
from minitransformer.system.memory import peak_memory
from minitransformer.system.progress import LOG_INTERVAL, WorkBar, in_words
from minitransformer.system.records import as_object
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult

SPEED_SECONDS = 60  # whose mean speed tells the time that is left

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingReport:
    """The figures of an interval of training: means over it (loss in nats per target token, label smoothing included).

    ``seconds`` and ``flops`` are totals of the run up to the end of the interval.
    """

    step: int
    epoch: int
    loss: float
    learning_rate: float
    gradient_norm: float
    target_tokens_per_second: float
    seconds: float
    flops: int

    @classmethod
    def of(cls, state: TrainingState, learning_rate: float, gradient_norm: float) -> TrainingReport:
        """Return the figures of the interval that ends with this state; it must have tokens."""
        return cls(
            step=state.step,
            epoch=state.epoch,
            loss=state.unlogged_loss / state.unlogged_tokens,
            learning_rate=learning_rate,
            gradient_norm=gradient_norm,
            target_tokens_per_second=state.unlogged_tokens / max(1e-9, state.unlogged_seconds),
            seconds=state.seconds,
            flops=state.flops,
        )


@dataclass(frozen=True)
class ValidationReport:
    """The scores of held-out text: the loss, and BLEU or F1 with the score's signature.

    The loss is in nats per target token, without label smoothing.  ``samples`` are the first translated sentences.
    """

    step: int
    loss: float
    perplexity: float
    score: Score
    best: bool
    seconds: float
    samples: tuple[Sample, ...] = ()


class Callback:
    """Methods that a training run calls; in this base class they do nothing.  Every rank has its own callbacks."""

    def begin(self, state: TrainingState, max_updates: int) -> None:
        """Handle the start of training, before update ``state.step`` + 1."""

    def after_step(self, result: StepResult, state: TrainingState) -> None:
        """Handle an update.  On a GPU it may still be running; reading the result waits for it."""

    def go_back(self, state: TrainingState) -> None:
        """Handle a return of training to an earlier state."""

    def validating(self, n_done: int, n_sentences: int) -> None:
        """Handle the progress of a validation, or of the evaluation at the end; called on any thread."""

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Handle the figures of an interval, or of a validation."""

    def end(self) -> None:
        """Handle the end of training, also after an error."""


class Callbacks(Callback):
    """Several callbacks as one; they are called in their order."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._all = list(callbacks)

    def begin(self, state: TrainingState, max_updates: int) -> None:
        for callback in self._all:
            callback.begin(state, max_updates)

    def after_step(self, result: StepResult, state: TrainingState) -> None:
        for callback in self._all:
            callback.after_step(result, state)

    def go_back(self, state: TrainingState) -> None:
        for callback in self._all:
            callback.go_back(state)

    def validating(self, n_done: int, n_sentences: int) -> None:
        for callback in self._all:
            callback.validating(n_done, n_sentences)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        for callback in self._all:
            callback.report(report)

    def end(self) -> None:
        for callback in self._all:
            callback.end()


class ProgressBar(Callback):
    """A progress bar of at most 80 columns if the output is a terminal, else log lines with clock and time left."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress = WorkBar(console)
        self._task = self._progress.add_task("starting", total=None)
        self._figures = ""
        self._max_updates = 0
        self._places = deque[tuple[float, int]]()  # seconds and updates, of the last minute and the report before it
        self._logged = time.monotonic()  # when the last line was printed

    def begin(self, state: TrainingState, max_updates: int) -> None:
        self._max_updates, self._places = max_updates, deque([(state.seconds, state.step)])
        self._progress.reset(self._task, total=max_updates, completed=state.step)
        self._progress.start()

    def end(self) -> None:
        self._progress.stop()

    def after_step(self, result: StepResult, state: TrainingState) -> None:
        self._progress.update(self._task, completed=state.step)

    def go_back(self, state: TrainingState) -> None:
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
        """Estimate the training time that is left from the speed of the last minute."""
        self._places.append((report.seconds, report.step))
        while report.seconds - self._places[1][0] >= SPEED_SECONDS:
            self._places.popleft()
        seconds, step = self._places[0]
        return (report.seconds - seconds) / max(1, report.step - step) * (self._max_updates - report.step)


class MetricsFile(Callback):
    """The file ``metrics.jsonl`` in the run's directory.

    A full disk does not end the training: a line that cannot be written is written with the next one.
    """

    def __init__(self, run: Path) -> None:
        self._path = run / METRICS_FILE
        self._waiting = ""  # lines that could not be written

    def begin(self, state: TrainingState, max_updates: int) -> None:
        """Cut off the lines of updates that will be repeated.  Raises: CheckpointError if that is impossible."""
        self.go_back(state)

    def go_back(self, state: TrainingState) -> None:
        """Cut off the lines of updates after ``state``, and of a validation that ``state`` repeats.

        If the file is corrupt, keep a copy under another name.
        """
        self._waiting = ""
        content = self._path.read_bytes() if self._path.exists() else b""
        lines = content.decode("utf-8", errors="replace").splitlines(keepends=True)
        steps = [_step_of(line) for line in lines]
        if not _are_as_written(lines, steps):
            copy = _free_name(self._path.parent)
            with atomic_write(copy) as temporary:
                temporary.write_bytes(content)
            _log.warning(f"{self._path}: is corrupt: not all lines are as they were written; kept as {copy.name}")
        kept = "".join(line for line, step in zip(lines, steps, strict=True) if _is_of(state, line, step))
        if kept.encode() != content:
            write_text(self._path, kept)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        kind = "training" if isinstance(report, TrainingReport) else "validation"
        process_figures = {"time": time.time(), "peak_memory": peak_memory()}
        self._waiting += json.dumps({"kind": kind} | process_figures | _figures_of(report)) + "\n"
        try:
            self._append(self._waiting.encode())
        except OSError as error:
            _log.warning(f"{self._path}: cannot be written ({error}); tried again with the next line")
        else:
            self._waiting = ""

    def _append(self, content: bytes) -> None:
        """Append all of the bytes or none of them.  Raises: OSError."""
        with self._path.open("ab", buffering=0) as stream:
            end = stream.tell()
            try:
                if stream.write(content) < len(content):
                    raise OSError("not all of a line could be written")
            except OSError:
                os.ftruncate(stream.fileno(), end)
                raise


def _figures_of(report: TrainingReport | ValidationReport) -> dict[str, Any]:
    """Return the fields of a report; the field of a score has the name of its metric."""
    figures = asdict(report)
    if isinstance(report, ValidationReport):
        del figures["score"]
        figures |= {report.score.name.lower(): report.score.value, "signature": report.score.signature}
    return figures


def _step_of(line: str) -> int | None:
    """Return the number of the update in a line; None if ``report`` cannot have written the line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = as_object(record).get("step")
    return step if type(step) is int and json.dumps(record) + "\n" == line else None


def _is_of(state: TrainingState, line: str, step: int | None) -> bool:
    """Return whether a line is of an update up to ``state``, and not of the validation that is repeated there."""
    if step is None or step > state.step:
        return False
    return not (state.validation_is_due and step == state.step and json.loads(line).get("kind") == "validation")


def _are_as_written(lines: Sequence[str], steps: Sequence[int | None]) -> bool:
    """Return whether all lines are complete and in order.

    The last line may be incomplete, because a killed process may have been writing it.
    """
    if lines and not lines[-1].endswith("\n"):
        steps = steps[:-1]
    known = [step for step in steps if step is not None]
    return len(known) == len(steps) and known == sorted(known)


def _free_name(run: Path) -> Path:
    """Return a new path for a copy of a corrupt file; earlier copies are not overwritten."""
    names = (run / f"metrics.corrupt-{n}.jsonl" for n in itertools.count(1))
    return next(path for path in names if not path.exists())
