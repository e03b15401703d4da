"""The stages of the training loop: after an update each may return a changed state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from minitransformer.training.state import TrainingState


@dataclass(frozen=True)
class Moment:
    """The circumstances in which stages are called."""

    is_sound: bool
    """Whether the last update has changed the parameters."""
    is_last: bool
    """Whether the run is complete."""
    is_interrupted: bool
    """Whether the loop ends after this update, because a signal asks for it."""


class Stage(Protocol):
    """A part of the loop that acts at intervals."""

    def after_step(self, state: TrainingState, moment: Moment) -> TrainingState:
        """Act if it is time; return the state that the loop continues with.  All ranks must call."""
