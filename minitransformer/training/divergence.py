"""Updates with non-finite numbers: they are skipped; after several in a row training returns to a checkpoint."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from autograd import to_host
from autograd.array import Array, IntArray
from autograd.optim import gradient_norm
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import Position
from minitransformer.data.store import SIDES, Pairs
from minitransformer.model.batch import IdPair
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError
from minitransformer.system.files import CheckpointError, write_arrays, write_text
from minitransformer.system.provenance import code_version
from minitransformer.training.state import TrainingState
from minitransformer.training.update import StepResult
from parallel.communicator import Communicator

_log = logging.getLogger(__name__)

PATIENCE = 10  # updates skipped in a row, after which training goes back to its last checkpoint
SPIKE = 10  # a gradient's norm above this many times the usual norm is a spike
_USUAL = 100  # the usual norm is the median of the last 100 norms; with fewer than 10 norms no spike is reported


@dataclass(frozen=True)
class Update:
    """An update that has been made, or that the device is computing."""

    state: TrainingState
    """The state of the run at this update."""
    batch: IntArray
    result: StepResult


class Results(NamedTuple):
    """The sum of the results of updates: FLOPs of all updates, loss and tokens without skipped updates."""

    flops: int
    loss: float
    n_tokens: int


class TrainingDivergedError(UserError, RuntimeError):
    """An error: a loss, a gradient or a parameter is not finite, and training cannot go on."""


@dataclass(frozen=True)
class Rollback:
    """A request to return to the last checkpoint: too many updates in a row were not finite."""

    skipped: tuple[Update, ...]
    reason: str
    """A description of the non-finite number in the last skipped update."""

    @property
    def avoided(self) -> tuple[Position, ...]:
        """The position of each batch whose update was skipped."""
        return tuple((one.state.epoch, one.state.group, one.state.next_batch - 1) for one in self.skipped)


class DivergenceGuard:
    """A reader of the results of updates, in their order; it warns of non-finite numbers and of spikes.

    Every rank gets the same norms, bit for bit, and detects if the loss of any rank is not finite.  So all ranks take
    the same decisions.
    """

    def __init__(self) -> None:
        self._pending: deque[Update] = deque()  # updates whose results have not been read
        self._skipped: list[Update] = []  # updates in a row, up to the last one that was read
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

    def read(self, *, but: int = 0) -> Results:
        """Read the results of all updates except the last ``but``, and return their sum.

        After a result that is not finite, read all results.
        """
        flops, loss, n_tokens = 0, 0.0, 0
        while len(self._pending) > (but if self.is_sound else 0):
            update = self._pending.popleft()
            flops += update.result.flops
            if update.result.is_finite:
                self._skipped = []
                self._look_for_spike(update.state.step, update.result.norm)
                loss, n_tokens = loss + update.result.loss, n_tokens + update.result.n_tokens
            else:
                self._note_skipped(update)
        return Results(flops, loss, n_tokens)

    def rollback(self) -> Rollback | None:
        """Return a request to go back after PATIENCE skipped updates in a row, and reset the guard; else None."""
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


UPDATE_FILE, BATCH_FILE = "update.json", "batch.safetensors"


@dataclass(frozen=True)
class UpdateFacts:
    """The inputs of an update besides parameters and tokens, and the non-finite number that was found."""

    step: int
    epoch: int
    group: int
    """The index of the group of token shards in the epoch."""
    batch_index: int
    """The index of the batch in the group's plan."""
    pairs: list[int]
    """Indices of the batch's pairs in the group."""
    seed: int
    n_micro_batches: int
    learning_rate: float
    what: str
    """A description of the number that was not finite."""
    code: str = dataclasses.field(default_factory=code_version)

    @classmethod
    def of(
        cls, state: TrainingState, batch: IntArray, config: TrainingConfig, learning_rate: float, what: str
    ) -> UpdateFacts:
        """Return the facts of the last update of a run with this state."""
        return cls(
            step=state.step,
            epoch=state.epoch,
            group=state.group,
            batch_index=state.next_batch - 1,
            pairs=batch.tolist(),
            seed=config.seed,
            n_micro_batches=config.n_micro_batches,
            learning_rate=learning_rate,
            what=what,
        )


def write_repro_bundle(
    directory: Path, model: Transformer, pairs: Sequence[IdPair], facts: UpdateFacts, gradients: Array
) -> None:
    """Write the model, the batch, the facts, and the norm of every parameter and of its gradient.

    ``gradients`` are of the skipped update: flat, summed over all ranks, and divided by the number of tokens.
    ``pairs`` are the token ids of ``facts.pairs``.  Shapes: ``gradients`` as the model's flat values.
    Raises: CheckpointError if a file cannot be written.
    """
    model.save(directory)
    lengths = np.array([[len(ids) for ids in pair] for pair in pairs], np.int64).reshape(-1, 2)
    flat = {side: np.concatenate([np.asarray(pair[i], np.int64) for pair in pairs]) for i, side in enumerate(SIDES)}
    write_arrays(directory / BATCH_FILE, {"lengths": lengths, **flat})
    norms = {
        name: {"value": _norm(parameter.value), "gradient": _norm(parameter.view_of(gradients))}
        for name, parameter in model.named_parameters()
    }
    write_text(directory / UPDATE_FILE, json.dumps({**dataclasses.asdict(facts), "norms": norms}, indent=2) + "\n")


def _norm(x: Array) -> float | str:
    """Return the norm of x; NaN and infinity as strings, because JSON lacks them."""
    with np.errstate(all="ignore"):
        norm = gradient_norm(to_host(x).astype(np.float64).ravel())
    return norm if np.isfinite(norm) else str(norm)
