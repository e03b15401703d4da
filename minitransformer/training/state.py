"""The state of a training run, which every checkpoint stores beside the weights.

Only the loop (``minitransformer.training.loop``) changes the state; callbacks, validation and checkpoints read it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from minitransformer.data.batching import Position
from minitransformer.system.records import read_record

STATE_FILE = "state.json"
Figure: TypeAlias = tuple[str, float]  # a name, as in ``training.best_by``, and the figure's value


@dataclass(frozen=True)
class TrainingState:
    """The state of a run: updates done, the position of the next batch, sums for the next log line, and costs.

    ``group`` is the index of the group of shards in the epoch, ``next_batch`` the index of a batch in the group's plan.
    ``unlogged_…`` are sums over the updates since the last log line.  ``avoided`` are the positions of the batches that
    are skipped because their updates were not finite.  ``flops`` and ``device_seconds`` are the costs of the updates
    (``minitransformer.training.flops``).  ``between_intervals`` is True if the checkpoint was not due at an interval,
    but was written at an interruption or at the end.  ``validation_is_due`` is True if an interruption ended the
    validation of this step; this validation is then repeated first.  ``best`` is the figure of the best model.
    ``best_watched`` is the best figure for ``patience``; ``n_without_progress`` counts the validations since then.
    ``earlier_updates`` counts the updates of another training, if this training began with moments from there.
    """

    step: int = 0
    epoch: int = 0
    group: int = 0
    next_batch: int = 0
    best: Figure | None = None
    seconds: float = 0.0
    unlogged_loss: float = 0.0
    unlogged_tokens: int = 0
    unlogged_seconds: float = 0.0
    avoided: tuple[Position, ...] = ()
    flops: int = 0
    device_seconds: float = 0.0
    between_intervals: bool = False
    validation_is_due: bool = False
    n_without_progress: int = 0
    best_watched: Figure | None = None
    earlier_updates: int = 0

    def with_results(self, *, flops: int, loss: float, n_tokens: int) -> TrainingState:
        """Return the state with results of updates added: FLOPs, and the loss summed over ``n_tokens`` tokens."""
        return dataclasses.replace(
            self,
            flops=self.flops + flops,
            unlogged_loss=self.unlogged_loss + loss,
            unlogged_tokens=self.unlogged_tokens + n_tokens,
        )

    def with_time(self, seconds: float, n_devices: int) -> TrainingState:
        """Return the state with ``seconds`` of training on each of ``n_devices`` devices added."""
        return dataclasses.replace(
            self,
            seconds=self.seconds + seconds,
            unlogged_seconds=self.unlogged_seconds + seconds,
            device_seconds=self.device_seconds + n_devices * seconds,
        )

    def with_new_interval(self) -> TrainingState:
        """Return the state at the beginning of a new interval of the log."""
        return dataclasses.replace(self, unlogged_loss=0.0, unlogged_tokens=0, unlogged_seconds=0.0)

    def after_rollback(self, undone: TrainingState, avoided: tuple[Position, ...]) -> TrainingState:
        """Return this earlier state with the batches to avoid, and with the costs and the best figure of ``undone``.

        (The best model of the undone updates stays on the disk.)  A validation that was due then has been made.
        """
        return dataclasses.replace(
            self,
            avoided=avoided,
            best=undone.best,
            flops=undone.flops,
            device_seconds=undone.device_seconds,
            validation_is_due=undone.validation_is_due,
        )


_SUMS = ("seconds", "unlogged_loss", "unlogged_seconds", "device_seconds")
_BOUNDS = {  # the FLOPs of a big model exceed 2⁶³
    **{field.name: (0, 2**63) for field in dataclasses.fields(TrainingState) if not field.name.startswith("best")},
    **dict.fromkeys(_SUMS, (0, math.inf)),
    "flops": (0, 2**127),
}


def _upgraded(fields: dict[str, Any]) -> dict[str, Any]:
    """Return today's fields of a state; an earlier version had "best_loss" and "best_score" instead of figures."""
    if "best_loss" not in fields:
        return fields
    loss = fields["best_loss"]
    best = None if loss is None else ["loss", loss]
    kept = {name: value for name, value in fields.items() if name not in ("best_loss", "best_score")}
    return kept | {"best": best, "best_watched": best}


def read_state(path: Path) -> TrainingState:
    """Read a checkpoint's state file, also that of an earlier version.  Raises: CorruptFileError."""
    return read_record(
        path,
        TrainingState,
        bounds=_BOUNDS,
        needed=("step", "epoch", "next_batch"),
        upgrade=_upgraded,
        remedy="the checkpoint is corrupt or of another version: use another one",
    )
