"""The stage that validates the model and keeps the best one."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from minitransformer.model.transformer import Transformer
from minitransformer.system.files import CheckpointError
from minitransformer.training.callbacks.callback import Callback
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
        every: int,
        validation: Validation | None,
        model: Transformer,
        world: Communicator,
        writer: CheckpointWriter,
        stopwatch: Stopwatch,
        callback: Callback,
    ) -> None:
        self.every, self._validation, self._model, self._world = every, validation, model, world
        self._writer, self._stopwatch, self._callback = writer, stopwatch, callback

    def after_step(self, state: TrainingState, moment: Moment) -> TrainingState:
        """Validate every ``every`` updates and at the end; save the model in the run's directory if it is the best."""
        if not (state.step % self.every == 0 and moment.is_sound) and not moment.is_last:
            return state
        with self._stopwatch.paused(), self._world.waiting_for_rank_0():
            if self._validation is not None and self._world.rank == 0:
                report = self._validation.report(self._model, state.step, state.best_loss)
                self._callback.report(report)
                keep = report.best and not self._writer.is_lost()  # a lost directory is reported by the next checkpoint
                if keep and keep_best(self._writer.run, self._model):
                    state = dataclasses.replace(state, best_loss=report.loss)
        return state


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
