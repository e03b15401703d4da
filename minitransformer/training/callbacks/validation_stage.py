"""The stage that validates the model and keeps the best one."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from minitransformer.config import TrainingConfig
from minitransformer.evaluation.choice import is_better
from minitransformer.model.transformer import Transformer
from minitransformer.system.files import CheckpointError
from minitransformer.training.callbacks.callback import Callback, ValidationReport
from minitransformer.training.callbacks.interrupt import Interrupt
from minitransformer.training.callbacks.stage import Moment
from minitransformer.training.state import TrainingState
from minitransformer.training.stopwatch import Stopwatch
from minitransformer.training.validation import BEST, Validation
from minitransformer.training.writer import CheckpointWriter
from parallel.communicator import Communicator

_log = logging.getLogger(__name__)


class ValidationStage:
    """The stage that validates on rank 0, while the others wait; its time does not count as training time."""

    def __init__(
        self,
        config: TrainingConfig,
        validation: Validation | None,
        model: Transformer,
        world: Communicator,
        writer: CheckpointWriter,
        stopwatch: Stopwatch,
        callback: Callback,
        interrupt: Interrupt,
    ) -> None:
        self.every, self._config, self._validation, self._model = config.validate_every, config, validation, model
        self._world, self._writer, self._stopwatch = world, writer, stopwatch
        self._callback, self._interrupt = callback, interrupt
        self._first_score: float | None = None  # of the run's first validation, until the second one

    def after_step(self, state: TrainingState, moment: Moment) -> TrainingState:
        """Validate every ``every`` updates and at the end; save the model in the run's directory if it is the best."""
        if not (state.step % self.every == 0 and moment.is_sound) and not moment.is_last:
            return state
        return self.validate(state)

    def validate(self, state: TrainingState) -> TrainingState:
        """Validate now; at a signal return at once, with ``validation_is_due`` set.  All ranks must call this."""
        with self._stopwatch.paused(), self._world.waiting_for_rank_0():
            if self._validation is not None and self._world.rank == 0:
                try:
                    with self._interrupt.raising():
                        report = self._validation.report(
                            self._model, state.step, state.best_loss, self._callback.validating
                        )
                except KeyboardInterrupt:
                    state = dataclasses.replace(state, validation_is_due=True)
                else:
                    state = self._after_report(state, report)
        return self._world.bcast(state)

    def _after_report(self, state: TrainingState, report: ValidationReport) -> TrainingState:
        self._callback.report(report)
        score = report.score.value
        self._warn_if_unmoved(state, report)
        has_best_score = is_better(score, state.best_score, greatest=True)
        is_progress = report.best if self._config.patience_for == "loss" else has_best_score
        keep = report.best and not self._writer.is_lost()  # a lost directory is reported by the next checkpoint
        kept = keep and keep_best(self._writer.run, self._model)
        return dataclasses.replace(
            state,
            best_loss=report.loss if kept else state.best_loss,
            best_score=score if has_best_score else state.best_score,
            n_without_progress=0 if is_progress else state.n_without_progress + 1,
            validation_is_due=False,
        )

    def _warn_if_unmoved(self, state: TrainingState, report: ValidationReport) -> None:
        """Warn at the run's second validation if it has the score of the first one, and ``patience`` watches it."""
        first, self._first_score = self._first_score, report.score.value if state.best_score is None else None
        patience, watched = self._config.patience, self._config.patience_for
        if report.score.value == first and patience is not None and watched == "score":
            _log.warning(
                f"{report.score.name} is {first:.2f}, as in the first validation. A score that does not move is no"
                f" progress: after {patience} validations without a better one the run ends (training.patience)."
                ' To watch the loss, begin another run with training.patience_for = "loss"'
            )


def keep_best(run: Path, model: Transformer) -> bool:
    """Save the model as the best so far; return False, and log a warning, if it cannot be written."""
    for directory in (run / BEST, run):
        try:
            model.save(directory)
        except CheckpointError as error:
            _log.warning(f"{error}; training goes on")
            if directory != run:
                return False
    return True
