"""Updates whose numbers are not finite: skipped, counted, gone back from, and at last put into a capsule."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from autograd import namespace
from autograd.array import Array
from minitransformer.data.batching import IntArray
from minitransformer.data.store import TokenStore
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError
from minitransformer.system.files import CheckpointError
from minitransformer.training.capsule import UpdateFacts, write_capsule
from minitransformer.training.state import TrainingState
from minitransformer.training.step import StepResult
from parallel.communicator import Communicator

PATIENCE = 10  # updates skipped in a row, after which training goes back to its last checkpoint
SPIKE = 10  # times the usual norm of the gradient
_USUAL = 100  # last norms whose median is the usual one; fewer than a tenth of them say nothing


@dataclass(frozen=True)
class Update:
    """An update that has been made, or is under way."""

    state: TrainingState
    """Of the run, when it was at this update."""
    batch: IntArray
    flops: int
    """Of the matrix products of all ranks, whatever becomes of them."""
    result: StepResult


class TrainingDivergedError(UserError, RuntimeError):
    """Numbers are no longer finite, and going back has not helped."""


class Guard:
    """Keeps watch over the numbers of updates.

    Every rank sees the same norms, bit for bit, and whether any rank's loss is not finite: all decide alike.
    """

    def __init__(self, say: Callable[[str], None] = lambda line: None) -> None:
        self.say = say
        self.in_a_row: list[Update] = []  # of updates that were just skipped
        self.what = ""
        self._norms: deque[float] = deque(maxlen=_USUAL)

    def note(self, update: Update) -> None:
        """Say why an update was skipped, if it was, and when a gradient is a spike."""
        step, result = update.state.step, update.result
        if result.is_finite:
            self.in_a_row = []
            self._look_for_spike(step, result.norm)
            return
        self.in_a_row.append(update)
        is_norm = math.isfinite(result.loss)
        self.what = f"the gradient's norm is {result.norm}" if is_norm else "the loss is not finite"
        self.say(
            f"warning: update {step:,}: {self.what}; it is skipped, {len(self.in_a_row)} in a row"
            f" (at {PATIENCE} training goes back)"
        )

    @property
    def gives_up(self) -> bool:
        """Whether too many updates in a row were skipped."""
        return len(self.in_a_row) >= PATIENCE

    def _look_for_spike(self, step: int, norm: float) -> None:
        usual = statistics.median(self._norms) if len(self._norms) * 10 >= _USUAL else math.inf
        if norm > SPIKE * usual:
            self.say(
                f"warning: update {step:,}: the gradient's norm is {norm:.3g}, usually about {usual:.3g}"
                " (--training.clip-norm bounds it)"
            )
        self._norms.append(norm)


def require_finite(model: Transformer, step: int) -> None:
    """Raise TrainingDivergedError if parameters have been spoilt, which no update does: such are not saved."""
    values = model.parameters.values
    if not namespace(values).isfinite(values).all():
        raise TrainingDivergedError(
            f"update {step:,}: there are parameters that are not finite; the last checkpoint is unharmed, and the same"
            " command goes on from it"
        )


def give_up(
    run: Path, model: Transformer, store: TokenStore, facts: UpdateFacts, gradients: Array, world: Communicator
) -> NoReturn:
    """Write a capsule of the update that ``facts`` are of, and raise TrainingDivergedError; all ranks must call.

    ``gradients`` are rank 0's to write, and all parameters' there.  A capsule that cannot be written is told, too.
    """
    directory = run / "divergence" / f"step-{facts.step:08d}"
    advice = f"Find out where it begins with minitransformer-doctor --replay {directory}; or"
    if world.rank == 0:
        try:
            write_capsule(directory, model, [store.pair(i) for i in facts.pairs], facts, gradients)
        except CheckpointError as error:
            advice = f"No capsule of it could be written ({error});"
    world.barrier()
    raise TrainingDivergedError(
        f"update {facts.step:,}: {facts.what}, as in {PATIENCE} updates in a row; checkpoints are unharmed. {advice}"
        " lower --training.learning-rate-factor, or set --training.clip-norm"
    )
