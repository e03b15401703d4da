"""What two replays of a divergence capsule, one in each precision, say of its cause."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from minitransformer.training.capsule import Replay, replay_capsule


def diagnosis(directory: Path) -> Iterator[str]:
    """A line for each precision, and the conclusion.  Raises: CheckpointError if the directory is no capsule."""
    single = replay_capsule(directory, "float32")
    yield str(single)
    double = replay_capsule(directory, "float64")
    yield str(double)
    yield f"conclusion: {conclusion(single, double)}"


def conclusion(single: Replay, double: Replay) -> str:
    """Where to look, given the update in float32 and in float64."""
    if not _is_finite(double):
        return "float64 does not help: look at the operation that is named first, and at what it was given"
    if not _is_finite(single):
        return "float32 overflows where float64 does not: lower the learning rate, or clip (--training.clip-norm)"
    return "all is finite here, so it is not the update: suspect the machine that trained (memory, processor, library)"


def _is_finite(replay: Replay) -> bool:
    return replay.found is None and math.isfinite(replay.mean_loss) and math.isfinite(replay.gradient_norm)
