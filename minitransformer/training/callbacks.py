"""Callbacks of a training run: their interface, the reports that they get, and the file of metrics."""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, SupportsFloat

from minitransformer.config.run import METRICS_FILE
from minitransformer.inference.bleu import Score
from minitransformer.inference.task import Sample
from minitransformer.inference.translator import Translator
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError
from minitransformer.system.files import atomic_write, write_text
from minitransformer.system.memory import peak_memory
from minitransformer.system.records import as_object
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingReport:
    """The figures of an interval of training; ``loss`` is the mean, in nats per target token, with label smoothing.

    ``learning_rate`` and ``gradient_norm`` are of the last update, ``seconds`` and ``flops`` are totals of the run.
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
        """Return the figures of the updates since the last log line; there must have been one."""
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
    """The scores of held-out text: the loss, BLEU or F1 with its signature, and the ``measures`` of callbacks.

    The loss is in nats per target token, without label smoothing.  ``samples`` are the first translated sentences.
    ``best`` is true if all earlier validations were worse (``training.best_by``).  ``seconds`` is its duration.
    """

    step: int
    loss: float
    perplexity: float
    score: Score
    best: bool = False
    seconds: float = 0.0
    samples: tuple[Sample, ...] = ()
    measures: Mapping[str, float] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        """The figures by the names that ``training.best_by`` and ``training.patience_for`` accept."""
        scores = {"loss": self.loss, "perplexity": self.perplexity, self.score.name.lower(): self.score.value}
        return scores | dict(self.measures)


SCORES = ("bleu", "f1")  # names of the score, which depend on the task
KEYS = {"kind", "time", "peak_memory", "signature", *SCORES, *(field.name for field in fields(ValidationReport))}
"""Keys of a validation in ``metrics.jsonl``, which no measure of a callback may have as its name."""


class CallbackError(UserError):
    """An error: a callback has failed; ``__cause__`` is the error that the callback has raised."""


class Callback:
    """Methods that a training run calls; in this base class they do nothing.  Every rank has its own callbacks.

    ``state`` has the number of updates, ``step``, and ``epoch``.  After an error in a method that runs between updates,
    the run is saved before it ends.
    """

    def begin(self, state: TrainingState, max_updates: int) -> None:
        """Handle the start of training, before update ``state.step`` + 1."""

    def after_step(self, result: StepResult, state: TrainingState, model: Transformer) -> None:
        """Handle an update.  ``result`` has the summed ``loss`` in nats, ``n_tokens``, and the gradient's ``norm``.

        On a GPU the update may still be running; reading the result waits for its end.
        """

    def go_back(self, state: TrainingState) -> None:
        """Handle a return of training to a checkpoint, ``state``, after numbers that were not finite."""

    def validating(self, n_done: int, n_sentences: int) -> None:
        """Handle the progress of a validation, or of the evaluation at the end; called on any thread."""

    def validated(
        self,
        model: Transformer,
        translator: Translator,
        sources: Sequence[str],
        references: Sequence[str],
        translations: Sequence[str],
    ) -> Mapping[str, float] | None:
        """Return measures of the model by name, such as {"chrF++": 57.1}, or None; called on rank 0.

        ``translations`` are the model's, by greedy search.  The last checkpoint is of this model, except at the end if
        ``best_by`` is not the loss: then the model is the average of the last checkpoints.
        """
        return None

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Handle the figures of an interval, or of a validation."""

    def end(self) -> None:
        """Handle the end of training, also after an error."""

    @property
    def measures(self) -> bool:
        """True if a derived class defines ``validated``, which may return measures."""
        return type(self).validated is not Callback.validated


@contextmanager
def _name_in_errors(callback: Callback, method: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        problem = f"{error}" if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        raise CallbackError(f"callback {type(callback).__qualname__}.{method}: {problem}") from error


def _each(method: str) -> Any:
    """Return a method of ``Callbacks`` that calls the method of this name of each callback."""

    def call(self: Callbacks, *arguments: Any, **named: Any) -> None:
        for callback in self.callbacks:
            with _name_in_errors(callback, method):
                getattr(callback, method)(*arguments, **named)

    return call


class Callbacks(Callback):
    """Several callbacks as one, called in their order.  Every error in a callback is raised as CallbackError."""

    begin, after_step, go_back = map(_each, ("begin", "after_step", "go_back"))
    validating, report, end = map(_each, ("validating", "report", "end"))

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(f"callbacks: expected instances of classes derived from Callback; got {callback!r:.80}")

    @property
    def measures(self) -> bool:
        return any(callback.measures for callback in self.callbacks)

    def validated(self, *arguments: Any, **named: Any) -> dict[str, float]:
        measures: dict[str, float] = {}
        for callback in self.callbacks:
            with _name_in_errors(callback, "validated"):
                found = callback.validated(*arguments, **named)
                measures |= {} if found is None else _check(found, measures)
        return measures


def _check(measures: Any, others: Mapping[str, float]) -> dict[str, float]:
    """Return a callback's measures as floats.  Raises: ValueError if a name is in use or a value is not finite."""
    if not isinstance(measures, Mapping):
        raise ValueError(f"returned {measures!r:.80}; expected a dict of numbers by name, or None")
    for name, value in measures.items():
        if not isinstance(name, str) or not name or name.startswith("-") or name in KEYS or name in others:
            raise ValueError(f"returned a measure of the name {name!r}; expected another name, without - before it")
        if not (isinstance(value, SupportsFloat) and math.isfinite(value)):
            raise ValueError(f"returned {name} = {value!r:.80}; expected a finite number")
    return {name: float(value) for name, value in measures.items()}


class MetricsFile(Callback):
    """The file ``metrics.jsonl`` in the run's directory: each report as a line of JSON.

    A full disk does not end the training: a line that cannot be written is written with the next one.
    """

    def __init__(self, run: Path) -> None:
        self._path = run / METRICS_FILE
        self._backlog = ""  # lines that could not be written

    def begin(self, state: TrainingState, max_updates: int) -> None:
        """Cut off the lines of updates that will be repeated.  Raises: CheckpointError if that is impossible."""
        self.go_back(state)

    def go_back(self, state: TrainingState) -> None:
        """Cut off the lines of updates after ``state``, and of a validation that ``state`` repeats.

        If the file is corrupt, keep a copy under another name.
        """
        self._backlog = ""
        content = self._path.read_bytes() if self._path.exists() else b""
        lines = content.decode("utf-8", errors="replace").splitlines(keepends=True)
        steps = [_step_of(line) for line in lines]
        if not _are_intact(lines, steps):
            copy = _free_name(self._path.parent)
            with atomic_write(copy) as temporary:
                temporary.write_bytes(content)
            _log.warning(f"{self._path}: is corrupt: not all lines are as they were written; kept as {copy.name}")
        kept = "".join(line for line, step in zip(lines, steps, strict=True) if _belongs_to(state, line, step))
        if kept.encode() != content:
            write_text(self._path, kept)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        kind = "training" if isinstance(report, TrainingReport) else "validation"
        process_figures = {"time": time.time(), "peak_memory": peak_memory()}
        self._backlog += json.dumps({"kind": kind} | process_figures | _fields_of(report)) + "\n"
        try:
            self._append(self._backlog.encode())
        except OSError as error:
            _log.warning(f"{self._path}: cannot be written ({error}); tried again with the next line")
        else:
            self._backlog = ""

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


def _fields_of(report: TrainingReport | ValidationReport) -> dict[str, Any]:
    """Return the fields of a report, with the score and the measures of callbacks as fields of their own."""
    fields = asdict(report)
    if isinstance(report, ValidationReport):
        del fields["score"], fields["measures"]
        fields |= report.figures | {"signature": report.score.signature}
    return fields


def _step_of(line: str) -> int | None:
    """Return the number of the update in a line; None if ``report`` cannot have written the line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = as_object(record).get("step")
    return step if type(step) is int and json.dumps(record) + "\n" == line else None


def _belongs_to(state: TrainingState, line: str, step: int | None) -> bool:
    """Return whether a line is of an update up to ``state``, and not of a validation that ``state`` repeats."""
    if step is None or step > state.step:
        return False
    return not (state.validation_is_due and step == state.step and json.loads(line).get("kind") == "validation")


def _are_intact(lines: Sequence[str], steps: Sequence[int | None]) -> bool:
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
