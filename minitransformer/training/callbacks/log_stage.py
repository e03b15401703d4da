"""The stage that reports the figures of an interval."""

from __future__ import annotations

from collections.abc import Callable

from minitransformer.training.callbacks.callback import Callback, TrainingReport
from minitransformer.training.callbacks.divergence import DivergenceGuard
from minitransformer.training.callbacks.stage import Moment
from minitransformer.training.state import TrainingState


class LogStage:
    """The stage that reports means over the updates since the last report."""

    def __init__(
        self, every: int, learning_rate: Callable[[int], float], guard: DivergenceGuard, callback: Callback
    ) -> None:
        self.every, self._learning_rate, self._guard, self._callback = every, learning_rate, guard, callback

    def after_step(self, state: TrainingState, moment: Moment) -> TrainingState:
        """Report every ``every`` updates and at the end, and begin a new interval.

        Do nothing if the parameters have not changed since the last report.
        """
        if not (state.step % self.every == 0 or moment.is_last) or not state.unlogged_tokens:
            return state
        self._callback.report(
            TrainingReport(
                step=state.step,
                epoch=state.epoch,
                loss=state.unlogged_loss / state.unlogged_tokens,
                learning_rate=self._learning_rate(state.step),
                gradient_norm=self._guard.norm,
                target_tokens_per_second=state.unlogged_tokens / max(1e-9, state.unlogged_seconds),
                seconds=state.seconds,
                flops=state.flops,
            )
        )
        return state.logged()
