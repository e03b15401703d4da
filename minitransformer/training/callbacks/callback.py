"""The interface of callbacks, and the figures that they receive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minitransformer.evaluation.bleu import Score
from minitransformer.training.state import TrainingState
from minitransformer.training.step import StepResult


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


@dataclass(frozen=True)
class Sample:
    """A held-out sentence, its reference and its translation by the model; a tree is written in brackets."""

    source: str
    reference: str
    translation: str


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

    def validating(self, n_done: int, n_sentences: int) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.validating(n_done, n_sentences)

    def report(self, report: TrainingReport | ValidationReport) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.report(report)

    def end(self) -> None:
        """See ``Callback``."""
        for callback in self._all:
            callback.end()
