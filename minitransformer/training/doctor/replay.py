"""A diagnosis from two replays of a repro bundle, in float32 and in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from minitransformer.training.repro_bundle import Replay, replay_repro_bundle


def diagnosis(directory: Path) -> Iterator[str]:
    """Yield a line for each precision, and the conclusion.  Raises: CheckpointError if there is no repro bundle."""
    single = replay_repro_bundle(directory, "float32")
    yield str(single)
    double = replay_repro_bundle(directory, "float64")
    yield str(double)
    yield f"conclusion: {conclusion(single, double)}"


def conclusion(single: Replay, double: Replay) -> str:
    """Return the likely cause, given the replays of an update in float32 and in float64."""
    if not _is_finite(double):
        return "float64 does not help: look at the operation that is named first, and at its inputs"
    if not _is_finite(single):
        return "float32 overflows where float64 does not: lower the learning rate, or clip (training.clip_norm)"
    return "all is finite here, so it is not the update: check the machine that trained (memory, processor, library)"


def _is_finite(replay: Replay) -> bool:
    return replay.found is None and math.isfinite(replay.mean_loss) and math.isfinite(replay.gradient_norm)
