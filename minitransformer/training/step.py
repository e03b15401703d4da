"""The only definition of an update of the parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from autograd import RandomStream, namespace, to_device, to_host
from autograd.array import Array, IntArray, staying_here
from autograd.optim import Adam, clip, sum_squares
from minitransformer.config import TrainingConfig
from minitransformer.model.batch import ModelInput
from minitransformer.system.threads import ThreadPool, even_slices
from minitransformer.training.gradient import GradientAccumulator
from minitransformer.training.schedule import learning_rate
from parallel.reducer import GradientReducer


class StepResult:
    """The result of an update; its numbers are read from the device on first use.

    ``read`` returns (loss, norm, scale), as ``autograd.optim.clip`` does.
    """

    def __init__(self, n_tokens: int, read: Callable[[], Array]) -> None:
        self.n_tokens, self._read = n_tokens, read

    @cached_property
    def _numbers(self) -> list[float]:
        numbers: list[float] = self._read().tolist()
        return numbers

    @property
    def loss(self) -> float:
        """The loss in nats, summed over the target tokens of the batch on all ranks."""
        return self._numbers[0]

    @property
    def norm(self) -> float:
        """The norm of the mean loss's gradient, before clipping."""
        return self._numbers[1]

    @property
    def is_finite(self) -> bool:
        """True if loss and norm are finite; if not, the update has changed nothing."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class TrainingStep:
    """One update: gradients of this rank's micro-batches, their sum over ranks, clipping, and Adam.

    Args:
        micro_batches: the indices of this rank's micro-batches among all micro-batches of a batch.
    """

    lag = 0  # number of last updates whose results are not computed yet when a call returns

    def __init__(
        self, gradient: GradientAccumulator, reducer: GradientReducer, adam: Adam, config: TrainingConfig,
        micro_batches: Sequence[int],
    ) -> None:  # fmt: skip
        self.gradient, self.reducer, self.adam, self.config = gradient, reducer, adam, config
        self.micro_batches, self.parameters = micro_batches, gradient.model.parameters
        self.executor = ThreadPool(
            gradient.n_threads, thread_name_prefix="adam", initializer=staying_here(gradient.model.device)
        )

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of update number ``step``, from 1."""
        return learning_rate(step, self.gradient.model.config.d_model, self.config)

    def scalars(self, step: int, n_tokens: int) -> Array:
        """Return the numbers of update number ``step``: see ``Adam.scalars``."""
        return self.adam.scalars(self.learning_rate(step), step, n_tokens)

    def __call__(
        self, micro_batches: Sequence[ModelInput | None], step: int, lengths: Sequence[IntArray]
    ) -> StepResult:
        """Make update number ``step``, from 1.

        Args:
            micro_batches: this rank's micro-batches; a micro-batch that is None has no sentences.
            lengths: source and target tokens of every pair, end symbols included, one array (B, 2) for each micro-batch
                of all ranks.
        """
        n_tokens = count_targets(lengths)
        scalars = to_device(self.scalars(step, n_tokens), self.gradient.model.device)
        outcome = self.run(micro_batches, step, scalars)
        return StepResult(n_tokens, lambda: to_host(outcome))

    def run(self, micro_batches: Sequence[ModelInput | None], step: int | Array, scalars: Array) -> Array:
        """Compute an update without reading from the device; return (loss, norm, scale), see ``clip``."""
        streams = [RandomStream(self.config.seed, step, index) for index in self.micro_batches]
        loss = self.gradient.compute(micro_batches, streams)
        self.reducer.reduce_scatter()
        squares = self.reducer.allgather_of_shards(sum_squares(self.parameters.gradients[self.reducer.shard]))
        xp = namespace(squares[0])
        outcome = clip(
            xp.concatenate(squares), xp.asarray(self.reducer.allreduce(loss), np.float64), scalars,
            max_norm=self.config.clip_norm or math.inf,
        )  # fmt: skip
        self._on_all_threads(lambda within: self.adam.update(scalars, outcome[2], within))
        self.reducer.all_gather()
        if len(self.adam.m) < len(self.parameters.values):  # other ranks have changed the rest
            self.parameters.refresh_low_precision()
        return outcome

    def free(self) -> None:
        """Return at once: nothing is kept between updates but what the next one needs."""

    def _on_all_threads(self, function: Callable[[slice], None]) -> None:
        """Apply ``function`` to slices that cover this rank's shard."""
        if self.gradient.n_threads == 1:  # on this thread, whose stream may be under capture
            function(slice(None))
            return
        list(self.executor.map(function, even_slices(len(self.adam.m), self.gradient.n_threads)))


def count_targets(lengths: Sequence[IntArray]) -> int:
    """Return the number of target tokens of a batch; ``lengths`` as in ``TrainingStep``."""
    return sum(int(of_micro_batch[:, 1].sum()) for of_micro_batch in lengths)
