"""The stage that saves checkpoints."""

from __future__ import annotations

import dataclasses

from autograd import to_host
from autograd.optim import Adam
from minitransformer.model.transformer import Transformer
from minitransformer.training.callbacks.divergence import require_finite
from minitransformer.training.callbacks.stage import Moment
from minitransformer.training.checkpoint import Snapshot
from minitransformer.training.state import TrainingState
from minitransformer.training.writer import CheckpointWriter
from parallel.agreement import check_agreement, checksum
from parallel.communicator import Communicator
from parallel.reducer import GradientReducer


class CheckpointStage:
    """The stage that saves the model, Adam's moments and the state; rank 0 writes them on a thread."""

    def __init__(
        self,
        every: int,
        model: Transformer,
        adam: Adam,
        reducer: GradientReducer,
        world: Communicator,
        writer: CheckpointWriter,
    ) -> None:
        self.every, self._model, self._adam = every, model, adam
        self._reducer, self._world, self._writer = reducer, world, writer

    def after_step(self, state: TrainingState, moment: Moment) -> TrainingState:
        """Save every ``every`` updates, at the end and at an interruption; warn if an earlier checkpoint failed.

        Raises: LostDirectoryError; DisagreementError if parameters differ between ranks; TrainingDivergedError if
        they are not finite.
        """
        self._writer.warn_of_failure()
        is_due = state.step % self.every == 0
        if (is_due and moment.is_sound) or moment.is_last or moment.is_interrupted:
            state = dataclasses.replace(state, between_intervals=not is_due)
            self._save(state)
        return state

    def _save(self, state: TrainingState) -> None:
        require_finite(self._model, state.step)
        require_same_parameters(
            self._world,
            self._model,
            f"after update {state.step:,}",
            "They agreed before: their processors, libraries or memory differ. The last checkpoint is unharmed",
        )
        m, v = self._reducer.gather(self._adam.m), self._reducer.gather(self._adam.v)
        with self._world.waiting_for_rank_0():
            if self._world.rank == 0:
                self._writer.wait()
                self._writer.warn_of_failure()
                self._writer.save(Snapshot.of(self._model, self._adam.of_all(m, v), state))


def require_same_parameters(world: Communicator, model: Transformer, when: str, remedy: str, **facts: str) -> None:
    """Compare the parameters, and other facts, of all ranks.  Raises: DisagreementError."""
    if world.size > 1:  # a checksum takes time, and one process has nothing to compare it with
        check_agreement(world, {**facts, "parameters": checksum(to_host(model.parameters.values))}, when, remedy)
