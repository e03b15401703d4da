"""The interface of callbacks, and the figures that they receive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minitransformer.evaluation.bleu import Score
from minitransformer.training.state import TrainingState
from minitransformer.training.step import StepResult


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
    flops: int


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

    def begin(self, state: TrainingState, max_updates: int) -> None:
        """Take note that updates after ``state.step`` begin."""

    def after_step(self, result: StepResult, state: TrainingState) -> None:
        """Take note of an update.  On a GPU it may still be under way: reading the result waits for it."""

    def go_back(self, state: TrainingState) -> None:
        """Take note that training goes on from an earlier state."""

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """Take the figures of an interval, or of a validation."""

    def end(self) -> None:
        """Take note that training is over, or has failed."""


class Callbacks(Callback):
    """Several callbacks as one; they are called in their order."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._all = list(callbacks)

    def begin(self, state: TrainingState, max_updates: int) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.begin(state, max_updates)

    def after_step(self, result: StepResult, state: TrainingState) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.after_step(result, state)

    def go_back(self, state: TrainingState) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.go_back(state)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.report(report)

    def end(self) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.end()
