"""The batches of a run, one after the other."""

from __future__ import annotations

import dataclasses

from autograd.array import IntArray
from minitransformer.config import TrainingConfig
from minitransformer.data.batching import plan_epoch
from minitransformer.data.store import TrainingPairs
from minitransformer.training.state import TrainingState


class BatchCursor:
    """The order of batches: a pure function of the state, the seed and the lengths of an epoch's sentences."""

    def __init__(self, store: TrainingPairs, config: TrainingConfig) -> None:
        self._store, self._config = store, config
        self._epoch, self._plan = -1, list[IntArray]()  # the epoch that was planned last, and its batches

    def next(self, state: TrainingState) -> tuple[IntArray, TrainingState]:
        """Return the next batch, as indices of pairs, and the state after it.

        Batches in ``state.avoided`` are skipped.
        """
        while True:
            plan, epoch, index = self._plan_of(state.epoch), state.epoch, state.next_batch
            if index >= len(plan):  # greater: the epoch has fewer batches than when the state was saved
                state = dataclasses.replace(state, epoch=epoch + 1, next_batch=0)
                continue
            state = dataclasses.replace(state, next_batch=index + 1)
            if (epoch, index) not in state.avoided:
                return plan[index], state

    def _plan_of(self, epoch: int) -> list[IntArray]:
        if epoch != self._epoch:
            config = self._config
            lengths = self._store.of_epoch(epoch).lengths
            self._plan = plan_epoch(lengths, config.batch_tokens, seed=config.seed, epoch=epoch)
            self._epoch = epoch
        return self._plan
