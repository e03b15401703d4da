"""Updates with non-finite numbers: they are skipped; after several in a row training returns to a checkpoint."""

from __future__ import annotations

import logging
import math
import statistics
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from autograd import namespace
from autograd.array import Array, IntArray
from minitransformer.data.store import Pairs
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError
from minitransformer.system.files import CheckpointError
from minitransformer.training.repro_bundle import UpdateFacts, write_repro_bundle
from minitransformer.training.state import TrainingState
from minitransformer.training.step import StepResult
from parallel.communicator import Communicator

_log = logging.getLogger(__name__)

PATIENCE = 10  # updates skipped in a row, after which training goes back to its last checkpoint
SPIKE = 10  # times the usual norm of the gradient
_USUAL = 100  # the usual norm is the median of so many last norms; with fewer than a tenth of them no spike is reported


@dataclass(frozen=True)
class Update:
    """An update that has been made, or is under way."""

    state: TrainingState
    """The state of the run at this update."""
    batch: IntArray
    flops: int
    """FLOPs of the matrix products of all ranks, even if the update is skipped."""
    result: StepResult


class TrainingDivergedError(UserError, RuntimeError):
    """An error: numbers are not finite, and returning to a checkpoint has not helped."""


@dataclass(frozen=True)
class Rollback:
    """A request to return to the last checkpoint: too many updates in a row were not finite."""

    skipped: tuple[Update, ...]
    reason: str
    """A description of the non-finite number in the last skipped update."""

    @property
    def avoided(self) -> tuple[tuple[int, int], ...]:
        """The epoch and the index of each batch whose update was skipped."""
        return tuple((update.state.epoch, update.state.next_batch - 1) for update in self.skipped)


class DivergenceGuard:
    """A reader of the results of updates, in their order; it warns of non-finite numbers and of spikes.

    Every rank gets the same norms, bit for bit, and detects if the loss of any rank is not finite.  So all ranks take
    the same decisions.
    """

    def __init__(self) -> None:
        self._pending: deque[Update] = deque()  # updates whose results have not been read
        self._skipped: list[Update] = []  # in a row, up to the last update that was read
        self._reason = ""
        self._norms: deque[float] = deque(maxlen=_USUAL)

    @property
    def is_sound(self) -> bool:
        """True if the last update that was read has changed the parameters."""
        return not self._skipped

    @property
    def norm(self) -> float:
        """Norm of the last gradient that changed parameters, before clipping; 0 if there was none."""
        return self._norms[-1] if self._norms else 0.0

    def add(self, update: Update) -> None:
        """Queue an update, whose result is read later."""
        self._pending.append(update)

    def read(self, state: TrainingState, *, but: int = 0) -> TrainingState:
        """Read the results of all updates except the last ``but``; return the state with the read results counted.

        After a result that is not finite, read all results.
        """
        while len(self._pending) > (but if self.is_sound else 0):
            update = self._pending.popleft()
            state = state.spending(flops=update.flops)
            if update.result.is_finite:
                self._skipped = []
                self._look_for_spike(update.state.step, update.result.norm)
                state = state.adding(update.result.loss, update.result.n_tokens)
            else:
                self._note_skipped(update)
        return state

    def rollback(self) -> Rollback | None:
        """Return a request to go back, and reset the guard, if too many updates in a row were skipped; else None."""
        if len(self._skipped) < PATIENCE:
            return None
        order = Rollback(tuple(self._skipped), self._reason)
        self._pending.clear()
        self._skipped = []
        self._norms.clear()
        return order

    def _note_skipped(self, update: Update) -> None:
        self._skipped.append(update)
        loss, norm = update.result.loss, update.result.norm
        self._reason = f"the gradient's norm is {norm}" if math.isfinite(loss) else "the loss is not finite"
        _log.warning(
            f"update {update.state.step:,}: {self._reason}; it is skipped, {len(self._skipped)} in a row"
            f" (at {PATIENCE} training goes back)"
        )

    def _look_for_spike(self, step: int, norm: float) -> None:
        usual = statistics.median(self._norms) if len(self._norms) * 10 >= _USUAL else math.inf
        if norm > SPIKE * usual:
            _log.warning(
                f"update {step:,}: the gradient's norm is {norm:.3g}, usually about {usual:.3g}"
                " (training.clip_norm bounds it)"
            )
        self._norms.append(norm)


def require_finite(model: Transformer, step: int) -> None:
    """Raise TrainingDivergedError if a parameter is not finite, so that it is not saved.

    No update makes a parameter non-finite, so the cause is elsewhere.
    """
    values = model.parameters.values
    if not namespace(values).isfinite(values).all():
        raise TrainingDivergedError(
            f"update {step:,}: there are parameters that are not finite; the last checkpoint is unharmed; start the"
            " run again, which goes on from it"
        )


def give_up(
    run: Path, model: Transformer, pairs: Pairs, facts: UpdateFacts, gradients: Array, world: Communicator
) -> NoReturn:
    """Write a repro bundle of the update that ``facts`` describe, and raise TrainingDivergedError.

    All ranks must call this.  On rank 0, ``gradients`` are the gradients of all parameters.  If the repro bundle cannot
    be written, the error's message says so.
    """
    directory = run / "divergence" / f"step-{facts.step:08d}"
    advice = f"The doctor can replay it from {directory} and find the first such number;"
    if world.rank == 0:
        try:
            write_repro_bundle(directory, model, [pairs.pair(i) for i in facts.pairs], facts, gradients)
        except CheckpointError as error:
            advice = f"No repro bundle of it could be written ({error});"
    world.barrier()
    raise TrainingDivergedError(
        f"update {facts.step:,}: {facts.what}, as in {PATIENCE} updates in a row; checkpoints are unharmed. {advice}"
        " lower training.learning_rate_factor, or set training.clip_norm"
    )
