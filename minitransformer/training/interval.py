"""What a log line sums up."""

from __future__ import annotations

import math
import time

from minitransformer.training.callbacks import TrainingReport
from minitransformer.training.state import TrainingState
from parallel.communicator import Communicator


class Interval:
    """Losses, tokens and time since the last report, some of them perhaps before the run was resumed.

    Losses are sums of float32, so their sum in float64 is exact: it does not matter where it is cut by a checkpoint.
    """

    def __init__(self, since: TrainingState, world: Communicator) -> None:
        self._world = world
        self._losses = [since.unlogged_loss]
        self.n_tokens = since.unlogged_tokens
        self._start = time.perf_counter() - since.unlogged_seconds
        self._on_account = since.unlogged_seconds

    @property
    def seconds(self) -> float:
        """Spent on it so far."""
        return max(1e-9, time.perf_counter() - self._start)

    def add(self, loss: float, n_tokens: int) -> None:
        """Note an update: the summed loss of its batch, and its target tokens."""
        self._losses.append(loss)
        self.n_tokens += n_tokens

    def loss(self) -> float:
        """Return the sum, in nats."""
        return math.fsum(self._losses)

    def to_account(self, state: TrainingState) -> TrainingState:
        """Return the state with the device time of all ranks since the last call added."""
        seconds = self.seconds
        new, self._on_account = seconds - self._on_account, seconds
        return state.spending(device_seconds=self._world.size * max(0.0, new))

    def report(self, state: TrainingState, loss: float, learning_rate: float, gradient_norm: float) -> TrainingReport:
        """Return the report of this interval; ``loss`` is the sum over its updates."""
        return TrainingReport(
            step=state.step,
            epoch=state.epoch,
            loss=loss / self.n_tokens,
            learning_rate=learning_rate,
            gradient_norm=gradient_norm,
            target_tokens_per_second=self.n_tokens / self.seconds,
            seconds=state.seconds,
            flops=state.flops,
        )

    def leave_out(self, seconds: float) -> None:
        """Do not count time that went into something else than training."""
        self._start += seconds
