"""Which pairs make which batch: a partition, bounded, a function of seed and epoch alone; the order from any state."""

from __future__ import annotations

import dataclasses
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitransformer.config import TrainingConfig
from minitransformer.data.batching import BatchOrder, cut_by_tokens, cut_into_micro_batches, plan_epoch, read_batch
from minitransformer.data.store import TokenStore, write_store
from minitransformer.training.state import TrainingState

LENGTHS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=80).map(
    lambda pairs: np.array(pairs, np.int64).reshape(-1, 2)
)
BATCH_TOKENS = st.integers(1, 60)
SEEDS = st.integers(0, 2**32)


def random_lengths(n: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(1, 60, (n, 1)) + np.random.default_rng(2).integers(0, 4, (n, 2))


def as_lists(plan: list[np.ndarray[Any, Any]]) -> list[list[int]]:
    return [batch.tolist() for batch in plan]


def tokens_a_side(batch: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> list[int]:
    return (lengths[batch] + 1).sum(axis=0).tolist()


def mean_spread(batches: list[np.ndarray[Any, Any]], lengths: np.ndarray[Any, Any]) -> float:
    return float(np.mean([np.ptp(lengths[batch, 1]) for batch in batches]))


@settings(max_examples=50)
@given(lengths=LENGTHS, batch_tokens=BATCH_TOKENS, seed=SEEDS, epoch=st.integers(0, 100))
def test_every_pair_occurs_exactly_once_in_an_epoch_in_a_batch_within_the_limit_on_both_sides(
    lengths: Any, batch_tokens: int, seed: int, epoch: int
) -> None:
    plan = plan_epoch(lengths, batch_tokens, seed=seed, epoch=epoch)
    assert sorted(i for batch in plan for i in batch.tolist()) == list(range(len(lengths)))
    for batch in plan:
        assert len(batch) == 1 or 0 < max(tokens_a_side(batch, lengths)) <= batch_tokens


def test_the_end_symbol_counts() -> None:
    lengths = np.array([[4, 4], [4, 4]])
    assert [len(plan_epoch(lengths, limit, seed=1, epoch=0)) for limit in (10, 9)] == [1, 2]


@settings(max_examples=50)
@given(lengths=LENGTHS, batch_tokens=BATCH_TOKENS, seed=SEEDS, epoch=st.integers(0, 100))
def test_seed_and_epoch_decide_the_plan_whatever_was_planned_between(
    lengths: Any, batch_tokens: int, seed: int, epoch: int
) -> None:
    before = as_lists(plan_epoch(lengths, batch_tokens, seed=seed, epoch=epoch))
    plan_epoch(lengths[::-1], batch_tokens + 1, seed=seed + 1, epoch=epoch + 1)
    np.random.default_rng().random()
    assert as_lists(plan_epoch(lengths, batch_tokens, seed=seed, epoch=epoch)) == before


def test_a_plan_stays_what_it_was_in_earlier_versions() -> None:
    """Otherwise runs that are resumed would see some pairs twice in an epoch and others never."""
    batches = as_lists(plan_epoch(np.array([(i % 7, i % 5) for i in range(12)]), 12, seed=3, epoch=2))
    assert batches == [[9, 4], [1, 11], [0, 10, 5], [6, 7, 2], [8, 3]]


def test_planning_takes_no_more_memory_than_the_order_and_the_plan_but_for_what_a_pool_takes() -> None:
    lengths, n = random_lengths(200_000), 200_000
    tracemalloc.start()
    try:
        plan = plan_epoch(lengths, 5_000, seed=1, epoch=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(map(len, plan)) == n
    assert 16 < peak / n < 24  # bytes; 8 an index


@pytest.mark.parametrize(("seed", "epoch"), [(1, 1), (2, 0), (0, 1)])
def test_another_seed_or_epoch_is_another_plan(seed: int, epoch: int) -> None:
    lengths = random_lengths(300)
    one, other = (plan_epoch(lengths, 200, seed=s, epoch=e) for s, e in ((1, 0), (seed, epoch)))
    assert sorted(map(sorted, as_lists(one))) != sorted(map(sorted, as_lists(other)))


def test_batches_do_not_come_in_the_order_of_their_lengths() -> None:
    lengths = random_lengths(2_000)
    longest = [int(lengths[batch].max()) for batch in plan_epoch(lengths, 400, seed=1, epoch=0)]
    rising = sum(a <= b for a, b in pairwise(longest)) / (len(longest) - 1)
    assert 0.35 < rising < 0.65


def test_a_batch_is_nearly_full_of_pairs_of_similar_length() -> None:
    lengths = random_lengths(3_000)
    plan = plan_epoch(lengths, 400, seed=1, epoch=0)
    in_random_order = np.random.default_rng(3).permutation(3_000)
    assert mean_spread(plan, lengths) < 0.1 * mean_spread(cut_by_tokens(in_random_order, lengths + 1, 400), lengths)
    assert np.mean([max(tokens_a_side(batch, lengths)) for batch in plan]) > 0.85 * 400


@pytest.mark.parametrize(("lengths", "limit", "runs"), [
    ([[3, 1], [3, 1], [3, 1]], 6, [[0, 1], [2]]), ([[1, 3], [1, 3], [1, 3]], 6, [[0, 1], [2]]),
    ([[2, 2], [9, 1], [2, 2]], 6, [[0], [1], [2]]), ([[2, 2], [2, 2], [2, 2]], 6, [[0, 1, 2]]), ([[7, 7]], 6, [[0]]),
    ([], 6, []),
], ids=["source side full", "target side full", "one too long", "exactly full", "only one", "none"])  # fmt: skip
def test_runs_are_cut_where_the_next_pair_would_not_fit(lengths: Any, limit: int, runs: list[list[int]]) -> None:
    table = np.array(lengths, np.int64).reshape(-1, 2)
    assert as_lists(cut_by_tokens(np.arange(len(lengths)), table, limit)) == runs


@settings(max_examples=50)
@given(lengths=LENGTHS.filter(len), n_micro_batches=st.sampled_from([1, 2, 4, 8]), seed=SEEDS)
def test_micro_batches_are_the_batch_in_its_order_balanced_within_one_longest_pair(
    lengths: Any, n_micro_batches: int, seed: int
) -> None:
    batch, tokens = np.random.default_rng(seed).permutation(len(lengths)), (lengths + 1).sum(axis=1)
    micro_batches = cut_into_micro_batches(batch, lengths, n_micro_batches)
    assert len(micro_batches) == n_micro_batches
    assert np.concatenate(micro_batches).tolist() == batch.tolist()
    for micro_batch in micro_batches:
        assert abs(tokens[micro_batch].sum() - tokens.sum() / n_micro_batches) <= tokens.max()


def test_equal_pairs_are_divided_equally() -> None:
    lengths = np.full((8, 2), 5)
    assert as_lists(cut_into_micro_batches(np.arange(8), lengths, 4)) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_of_fewer_pairs_than_micro_batches_some_micro_batches_are_empty() -> None:
    assert sorted(map(len, cut_into_micro_batches(np.array([7]), np.full((8, 2), 5), 4))) == [0, 0, 0, 1]
    assert as_lists(cut_into_micro_batches(np.empty(0, np.int64), np.full((8, 2), 5), 4)) == [[], [], [], []]


def test_a_batch_holds_its_pairs_in_the_given_order_with_start_and_end(tmp_path: Path) -> None:
    write_store(tmp_path, "train", [([10, 11], [20]), ([12], []), ([], [21, 22, 23])], 100)
    batch = read_batch(TokenStore(tmp_path, "train"), np.array([2, 0]))
    assert batch.source_ids.tolist() == [2, 10, 11, 2]
    assert batch.decoder_ids.tolist() == [1, 21, 22, 23, 1, 20]
    assert batch.labels.tolist() == [21, 22, 23, 2, 20, 2]
    assert (batch.source.lengths.tolist(), batch.target.lengths.tolist()) == ([1, 3], [4, 2])


CONFIG = TrainingConfig(batch_tokens=60)


class Lengths:
    """A store of which only the lengths are read."""

    def __init__(self, lengths: np.ndarray[Any, Any]) -> None:
        self.lengths = lengths

    def of_epoch(self, epoch: int) -> Lengths:
        return self


STORED_LENGTHS = np.random.default_rng(1).integers(1, 9, (40, 2))
N_BATCHES = 12  # of two epochs and a part of the third


def batches_from(state: TrainingState, n: int) -> list[tuple[list[int], TrainingState]]:
    """The next ``n`` batches from a state on, each with the state after it."""
    order, found = BatchOrder(Lengths(STORED_LENGTHS), CONFIG.batch_tokens, CONFIG.seed), []  # type: ignore[arg-type]
    for _ in range(n):
        batch, epoch, index = order.next(state.epoch, state.next_batch, state.avoided)
        state = dataclasses.replace(state, epoch=epoch, next_batch=index)
        found.append((batch.tolist(), state))
    return found


def test_epochs_follow_each_other_whole() -> None:
    found = batches_from(TrainingState(), N_BATCHES)
    plans = [plan_epoch(STORED_LENGTHS, CONFIG.batch_tokens, seed=CONFIG.seed, epoch=epoch) for epoch in range(3)]
    expected = [(batch.tolist(), epoch, index + 1) for epoch in range(3) for index, batch in enumerate(plans[epoch])]
    assert [(batch, state.epoch, state.next_batch) for batch, state in found] == expected[:N_BATCHES]
    assert found[-1][1].epoch == 2


def test_a_new_order_goes_on_from_any_state() -> None:
    whole = batches_from(TrainingState(), N_BATCHES)
    for done, (_, state) in enumerate(whole, 1):
        assert batches_from(state, N_BATCHES - done) == whole[done:]


def test_from_a_state_after_the_last_batch_the_next_epoch_begins() -> None:
    """Wherever that is: another text under the same run may have fewer batches."""
    n = len(plan_epoch(STORED_LENGTHS, CONFIG.batch_tokens, seed=CONFIG.seed, epoch=0))
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
    n = len(plan_epoch(STORED_LENGTHS, CONFIG.batch_tokens, seed=CONFIG.seed, epoch=0))
    avoiding = TrainingState(avoided=((0, 0), (1, 1)))
    places = [(state.epoch, state.next_batch - 1) for _, state in batches_from(avoiding, N_BATCHES - 2)]
    both = [(epoch, index) for epoch in range(3) for index in range(n)]
    assert places == [place for place in both if place not in avoiding.avoided][: N_BATCHES - 2]
    assert batches_from(avoiding, 1)[0] == (second[0], dataclasses.replace(second[1], avoided=avoiding.avoided))
    assert first[0] != second[0]
