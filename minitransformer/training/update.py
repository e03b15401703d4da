"""One update after another: by launches that the host looks at, or on one GPU as graphs that it hears of later."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from autograd import RandomStream
from autograd.array import Array, staying_here
from autograd.optim import Adam, clip_gradients
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import IntArray, cut_into_shards, read_batch
from minitransformer.data.store import TokenStore
from minitransformer.evaluation.cost import update_flops
from minitransformer.threads import even_slices
from minitransformer.training.gradient import ShardedGradient
from minitransformer.training.graph import GraphedUpdates, is_capturable
from minitransformer.training.schedule import learning_rate
from minitransformer.training.state import TrainingState
from parallel.communicator import Communicator
from parallel.reducer import GradientReducer


@dataclass(frozen=True)
class Outcome:
    """What became of an update: if its numbers are not finite, nothing has changed."""

    state: TrainingState
    """Of the run, when it was at this update."""
    batch: IntArray
    n_tokens: int
    """Target tokens of the global batch."""
    flops: int
    """Of the matrix products of all ranks, whatever became of them."""
    loss: Array | float
    """This rank's, summed, in nats."""
    norm: float
    """Of the gradient of the mean loss, before clipping."""
    loss_is_finite: bool
    """On all ranks."""

    @property
    def is_sound(self) -> bool:
        """Whether parameters were changed."""
        return self.loss_is_finite and math.isfinite(self.norm)


class Updates(Protocol):
    """Makes updates, one after the other."""

    def run(self, batch: IntArray, state: TrainingState) -> list[Outcome]:
        """Make, or enqueue, the update of this state; returns what has become known since, in order."""

    def finish(self) -> list[Outcome]:
        """Wait for all updates; returns what has not been told yet."""


@dataclass(frozen=True)
class UpdateParts:
    """What updates are made with."""

    store: TokenStore
    config: TrainingConfig
    world: Communicator
    reducer: GradientReducer
    adam: Adam
    gradient: ShardedGradient
    shards: Sequence[int]
    """That this rank computes."""

    def learning_rate(self, step: int) -> float:
        """That of an update."""
        return learning_rate(
            step,
            d_model=self.gradient.model.config.d_model,
            warmup_steps=self.config.warmup_steps,
            factor=self.config.learning_rate_factor,
        )

    def n_tokens(self, batch: IntArray) -> int:
        """Target tokens of a global batch, end symbols included."""
        return int((self.store.lengths[batch, 1] + 1).sum())

    def shards_of(self, batch: IntArray) -> list[IntArray]:
        """The pairs of each shard of a global batch; some may have none."""
        return cut_into_shards(batch, self.store.lengths, self.config.n_shards)

    def flops(self, shards: Sequence[IntArray]) -> int:
        """Those of the matrix products of an update with these shards."""
        return update_flops(self.gradient.model.config, (self.store.lengths[shard] + 1 for shard in shards))


def updates_with(parts: UpdateParts) -> Updates:
    """As graphs where one process drives one GPU and everything has a kernel; else as they come."""
    if parts.world.size == 1 and is_capturable(parts.gradient.model):
        return UpdatesAsGraphs(parts)
    return UpdatesInTurn(parts)


class UpdatesInTurn:
    """Each is known when it has been made.  A rank changes its part of the parameters."""

    def __init__(self, parts: UpdateParts) -> None:
        self._parts, self._n_threads = parts, parts.gradient.n_threads
        self.executor = ThreadPoolExecutor(
            self._n_threads, thread_name_prefix="adam", initializer=staying_here(parts.gradient.model.device)
        )

    def run(self, batch: IntArray, state: TrainingState) -> list[Outcome]:
        """See ``Updates``."""
        parts, world, store = self._parts, self._parts.world, self._parts.store
        pairs = parts.shards_of(batch)
        shards = [read_batch(store, pairs[i]) if len(pairs[i]) else None for i in parts.shards]
        streams = [RandomStream(parts.config.seed, state.step, shard) for shard in parts.shards]
        loss = parts.gradient.compute(shards, streams)
        parts.reducer.reduce_scatter()
        gradients, n_tokens = self._gradients, parts.n_tokens(batch)

        def take_mean(within: slice) -> None:
            gradients[within] *= 1 / n_tokens

        self._on_all_threads(take_mean)
        norm = clip_gradients(gradients, parts.config.clip_norm or math.inf, parts.reducer.allgather_of_shards)
        loss_is_finite = not world.any(not math.isfinite(float(loss)))
        outcome = Outcome(state, batch, n_tokens, parts.flops(pairs), loss, norm, loss_is_finite)
        if outcome.is_sound:
            rate = parts.learning_rate(state.step)
            self._on_all_threads(lambda within: parts.adam.update(rate, state.step, within))
        parts.reducer.all_gather()
        parameters = parts.gradient.model.parameters
        if len(gradients) < len(parameters.values):  # others have changed the rest
            parameters.refresh_copies()
        return [outcome]

    def finish(self) -> list[Outcome]:
        """See ``Updates``: there is nothing to wait for."""
        return []

    @property
    def _gradients(self) -> Array:
        """Those that are this rank's part."""
        return self._parts.gradient.model.parameters.gradients[self._parts.reducer.shard]

    def _on_all_threads(self, function: Callable[[slice], None]) -> None:
        """Apply ``function`` to slices that cover this rank's part of the flat parameters."""
        list(self.executor.map(function, even_slices(len(self._gradients), self._n_threads)))


class UpdatesAsGraphs:
    """The GPU computes one while the host prepares the next, and then reads what became of the one before."""

    def __init__(self, parts: UpdateParts) -> None:
        self._parts = parts
        self._graphs = GraphedUpdates(parts.gradient, parts.adam, parts.config, parts.shards)
        self._under_way: deque[Callable[[float, float, bool], Outcome]] = deque()  # of their verdicts

    def run(self, batch: IntArray, state: TrainingState) -> list[Outcome]:
        """See ``Updates``."""
        parts, pairs, n_tokens = self._parts, self._parts.shards_of(batch), self._parts.n_tokens(batch)
        self._graphs.begin(
            [read_batch(parts.store, of_shard) for of_shard in pairs],  # some may be empty
            step=state.step, learning_rate=parts.learning_rate(state.step), n_tokens=n_tokens,
        )  # fmt: skip
        self._under_way.append(partial(Outcome, state, batch, n_tokens, parts.flops(pairs)))
        return self._outcomes(but=1)

    def finish(self) -> list[Outcome]:
        """See ``Updates``."""
        return self._outcomes(but=0)

    def _outcomes(self, *, but: int) -> list[Outcome]:
        outcomes = []
        while len(self._under_way) > but:
            loss, norm = self._graphs.verdict()
            outcomes.append(self._under_way.popleft()(loss, norm, math.isfinite(loss)))
        return outcomes
