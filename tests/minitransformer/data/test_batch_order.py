"""The order of batches: planned once an epoch, and the same from any state on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from minitransformer.config import TrainingConfig
from minitransformer.data.batching import BatchOrder, plan_epoch
from minitransformer.training.state import TrainingState

CONFIG = TrainingConfig(batch_tokens=60)


class Lengths:
    """A store of which only the lengths are read."""

    def __init__(self, lengths: np.ndarray[Any, Any]) -> None:
        self.lengths = lengths

    def of_epoch(self, epoch: int) -> Lengths:
        return self


LENGTHS = np.random.default_rng(1).integers(1, 9, (40, 2))
N_BATCHES = 12  # of two epochs and a part of the third


def batches_from(state: TrainingState, n: int) -> list[tuple[list[int], TrainingState]]:
    """The next ``n`` batches from a state on, each with the state after it."""
    order, found = BatchOrder(Lengths(LENGTHS), CONFIG.batch_tokens, CONFIG.seed), []  # type: ignore[arg-type]
    for _ in range(n):
        batch, epoch, index = order.next(state.epoch, state.next_batch, state.avoided)
        state = dataclasses.replace(state, epoch=epoch, next_batch=index)
        found.append((batch.tolist(), state))
    return found


def test_epochs_follow_each_other_whole() -> None:
    found = batches_from(TrainingState(), N_BATCHES)
    plans = [plan_epoch(LENGTHS, CONFIG.batch_tokens, seed=CONFIG.seed, epoch=epoch) for epoch in range(3)]
    expected = [(batch.tolist(), epoch, index + 1) for epoch in range(3) for index, batch in enumerate(plans[epoch])]
    assert [(batch, state.epoch, state.next_batch) for batch, state in found] == expected[:N_BATCHES]
    assert found[-1][1].epoch == 2


def test_a_new_order_goes_on_from_any_state() -> None:
    whole = batches_from(TrainingState(), N_BATCHES)
    for done, (_, state) in enumerate(whole, 1):
        assert batches_from(state, N_BATCHES - done) == whole[done:]


def test_from_a_state_after_the_last_batch_the_next_epoch_begins() -> None:
    """Wherever that is: another text under the same run may have fewer batches."""
    n = len(plan_epoch(LENGTHS, CONFIG.batch_tokens, seed=CONFIG.seed, epoch=0))
    (first, _), *_ = batches_from(TrainingState(epoch=1), 1)
    assert [batches_from(TrainingState(next_batch=index), 1)[0][0] for index in (n, n + 3)] == [first, first]


def test_an_epoch_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []

    def noted(*arguments: Any, epoch: int, **keywords: Any) -> Any:
        planned.append(epoch)
        return plan_epoch(*arguments, epoch=epoch, **keywords)

    monkeypatch.setattr("minitransformer.data.batching.plan_epoch", noted)
    batches_from(TrainingState(), N_BATCHES)
    assert planned == [0, 1, 2]


def test_batches_to_avoid_are_skipped_in_their_epoch_alone() -> None:
    first, second, *_ = batches_from(TrainingState(), 2)
    n = len(plan_epoch(LENGTHS, CONFIG.batch_tokens, seed=CONFIG.seed, epoch=0))
    avoiding = TrainingState(avoided=((0, 0), (1, 1)))
    places = [(state.epoch, state.next_batch - 1) for _, state in batches_from(avoiding, N_BATCHES - 2)]
    both = [(epoch, index) for epoch in range(3) for index in range(n)]
    assert places == [place for place in both if place not in avoiding.avoided][: N_BATCHES - 2]
    assert batches_from(avoiding, 1)[0] == (second[0], dataclasses.replace(second[1], avoided=avoiding.avoided))
    assert first[0] != second[0]
