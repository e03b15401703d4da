"""The stages of the training loop: after an update each may return a changed state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from minitransformer.training.state import TrainingState


@dataclass(frozen=True)
class Moment:
    """The circumstances in which stages are called."""

    is_sound: bool
    """True if the last update has changed the parameters."""
    is_last: bool
    """True if the run is complete."""
    is_interrupted: bool
    """True if the loop ends after this update because of a signal."""


class Stage(Protocol):
    """A part of the loop that acts at intervals."""

    every: int
    """Updates between two calls for which the stage is due."""

    def after_step(self, state: TrainingState, moment: Moment) -> TrainingState:
        """Act if the stage is due; return the state with which the loop continues.  All ranks must call this."""
