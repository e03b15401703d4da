"""Which pairs make which batch: a partition, bounded, a function of seed and epoch alone; the order from any state."""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitransformer.config import TrainingConfig
from minitransformer.data import batching
from minitransformer.data import store as store_module
from minitransformer.data.batching import (
    BatchOrder,
    WeightedPairs,
    cut_by_tokens,
    cut_into_micro_batches,
    plan_epoch,
    read_batch,
)
from minitransformer.data.store import TokenStore, write_store
from minitransformer.model.batch import Batch
from minitransformer.training.state import TrainingState
from tests.support.training import peak_of

LENGTHS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=80).map(
    lambda pairs: np.array(pairs, np.int64).reshape(-1, 2)
)
SEEDS = st.integers(0, 2**32)


def random_lengths(n: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(1, 60, (n, 1)) + np.random.default_rng(2).integers(0, 4, (n, 2))


def as_lists(plan: list[np.ndarray[Any, Any]]) -> list[list[int]]:
    return [batch.tolist() for batch in plan]


def tokens_a_side(batch: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> list[int]:
    return (lengths[batch] + 1).sum(axis=0).tolist()


@settings(max_examples=50)
@given(lengths=LENGTHS, batch_tokens=st.integers(1, 60), seed=SEEDS, epoch=st.integers(0, 100))
def test_pairs_occur_once_an_epoch_in_batches_that_fit(lengths: Any, batch_tokens: int, seed: int, epoch: int) -> None:
    plan = plan_epoch(lengths, batch_tokens, seed=seed, epoch=epoch)
    assert sorted(i for batch in plan for i in batch.tolist()) == list(range(len(lengths)))
    for batch in plan:
        assert len(batch) == 1 or 0 < max(tokens_a_side(batch, lengths)) <= batch_tokens


def test_a_plan_of_one_group_stays_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions that planned whole epochs computed this checksum.

    With another plan, resumed runs would see some pairs twice in an epoch and others never.
    """
    monkeypatch.setattr(store_module, "PAIRS_PER_SHARD", 300)
    lengths = np.random.default_rng(1).integers(0, 40, (2_000, 2)).tolist()
    write_store(tmp_path, "train", ([[7] * n_source, [8] * n_target] for n_source, n_target in lengths), 100)
    order, digest = BatchOrder(TokenStore(tmp_path, "train"), 400, seed=3), hashlib.sha256()
    for epoch in range(2):
        for batch in order.group(epoch, 0)[1]:
            digest.update(batch.tobytes() + b"|")
    assert digest.hexdigest() == "abde69ca27a417852e41577771c183d181f14a2a84fd039df9434fff32e52e72"


def test_planning_takes_no_more_memory_than_the_order_and_the_plan_but_for_what_a_pool_takes() -> None:
    lengths = random_lengths(200_000)
    assert 16 < peak_of(lambda: plan_epoch(lengths, 5_000, seed=1, epoch=0)) / 200_000 < 24  # bytes; 8 an index


@pytest.mark.parametrize(("seed", "epoch"), [(1, 1), (2, 0), (0, 1)])
def test_another_seed_or_epoch_is_another_plan(seed: int, epoch: int) -> None:
    lengths = random_lengths(300)
    one, other = (plan_epoch(lengths, 200, seed=s, epoch=e) for s, e in ((1, 0), (seed, epoch)))
    assert sorted(map(sorted, as_lists(one))) != sorted(map(sorted, as_lists(other)))


def test_a_batch_is_nearly_full_of_pairs_of_similar_length_and_batches_do_not_come_in_the_order_of_lengths() -> None:
    lengths = random_lengths(3_000)
    plan = plan_epoch(lengths, 400, seed=1, epoch=0)
    in_random_order = cut_by_tokens(np.random.default_rng(3).permutation(3_000), lengths + 1, 400)
    spread, spread_in_random_order = (
        np.mean([np.ptp(lengths[batch, 1]) for batch in batches]) for batches in (plan, in_random_order)
    )
    assert spread < 0.1 * spread_in_random_order
    assert np.mean([max(tokens_a_side(batch, lengths)) for batch in plan]) > 0.85 * 400
    longest = [int(lengths[batch].max()) for batch in plan]
    rising = sum(a <= b for a, b in pairwise(longest)) / (len(longest) - 1)
    assert 0.35 < rising < 0.65


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
def test_micro_batches_keep_the_order_and_are_balanced(lengths: Any, n_micro_batches: int, seed: int) -> None:
    batch, tokens = np.random.default_rng(seed).permutation(len(lengths)), (lengths + 1).sum(axis=1)
    micro_batches = cut_into_micro_batches(batch, lengths, n_micro_batches)
    assert len(micro_batches) == n_micro_batches
    assert np.concatenate(micro_batches).tolist() == batch.tolist()
    for micro_batch in micro_batches:
        assert abs(tokens[micro_batch].sum() - tokens.sum() / n_micro_batches) <= tokens.max()


@pytest.mark.parametrize(
    ("batch", "expected"),
    [(range(8), [[0, 1], [2, 3], [4, 5], [6, 7]]), ([7], [[], [], [], [7]]), ([], [[], [], [], []])],
)
def test_equal_pairs_are_divided_equally_and_some_micro_batches_may_be_empty(batch: Any, expected: Any) -> None:
    found = cut_into_micro_batches(np.array(batch, np.int64), np.full((8, 2), 5), 4)
    assert sorted(as_lists(found)) == expected


def test_a_batch_holds_its_pairs_in_the_given_order_with_start_and_end(tmp_path: Path) -> None:
    write_store(tmp_path, "train", [([10, 11], [20]), ([12], []), ([], [21, 22, 23])], 100)
    batch = read_batch(TokenStore(tmp_path, "train").read(), np.array([2, 0]))
    assert batch.source_ids.tolist() == [2, 10, 11, 2]
    assert batch.decoder_ids.tolist() == [1, 21, 22, 23, 1, 20]
    assert batch.labels.tolist() == [21, 22, 23, 2, 20, 2]
    assert (batch.source.lengths.tolist(), batch.target.lengths.tolist()) == ([1, 3], [4, 2])
    assert (batch.n_source_tokens, batch.n_target_tokens, len(batch)) == (4, 6, 2)


def test_a_batch_of_several_shards_is_that_of_its_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "PAIRS_PER_SHARD", 7)
    random = np.random.default_rng(1)
    sides = [[random.integers(3, 100, n).tolist() for n in random.integers(0, 6, 30)] for _ in range(2)]
    write_store(tmp_path, "train", zip(*sides, strict=True), 100)
    indices = random.permutation(30)[:20]
    batch = read_batch(TokenStore(tmp_path, "train").read(), indices)
    expected = Batch.from_token_ids(*([side[i] for i in indices] for side in sides))
    for name in ("source_ids", "decoder_ids", "labels"):
        assert getattr(batch, name).dtype == np.int64
        np.testing.assert_array_equal(getattr(batch, name), getattr(expected, name))
    for name in ("source", "target"):
        np.testing.assert_array_equal(getattr(batch, name).lengths, getattr(expected, name).lengths)


CONFIG = TrainingConfig(batch_tokens=60)


@dataclass
class Store:
    """40 pairs in shards of nearly equal sizes, of which only the lengths are read; and their numbers in the text."""

    n_shards: int

    @property
    def shard_sizes(self) -> list[int]:
        return list(map(len, np.array_split(np.arange(40), self.n_shards)))

    def read(self, shards: Sequence[int], epoch: int) -> Any:
        numbers = [int(i) for shard in shards for i in np.array_split(np.arange(40), self.n_shards)[shard]]
        return SimpleNamespace(lengths=STORED_LENGTHS[numbers], numbers=numbers)


STORED_LENGTHS = np.random.default_rng(1).integers(1, 9, (40, 2))
N_BATCHES = 12  # of two epochs and a part of the third
several_groups = pytest.mark.parametrize("n_shards", [3, 7], ids=["one group", "three groups"])


def order_of(n_shards: int) -> BatchOrder:
    with mock.patch.object(batching, "SHARDS_AT_ONCE", 3):
        return BatchOrder(Store(n_shards), CONFIG.batch_tokens, CONFIG.seed)  # type: ignore[arg-type]


def batches_from(state: TrainingState, n: int, n_shards: int = 3) -> list[tuple[list[int], TrainingState]]:
    """The next ``n`` batches from a state on, as numbers of pairs in the whole text, each with the state after it."""
    order, found = order_of(n_shards), []
    for _ in range(n):
        position = state.epoch, state.group, state.next_batch
        batch, (epoch, group, index) = order.next(position, state.avoided)
        pairs: Any = order.group(epoch, group)[0]
        state = dataclasses.replace(state, epoch=epoch, group=group, next_batch=index)
        found.append(([pairs.numbers[i] for i in batch], state))
    return found


def test_epochs_of_one_group_follow_each_other_whole() -> None:
    found = batches_from(TrainingState(), N_BATCHES)
    plans = [plan_epoch(STORED_LENGTHS, CONFIG.batch_tokens, seed=CONFIG.seed, epoch=epoch) for epoch in range(3)]
    expected = [(batch.tolist(), epoch, index + 1) for epoch in range(3) for index, batch in enumerate(plans[epoch])]
    assert [(batch, state.epoch, state.next_batch) for batch, state in found] == expected[:N_BATCHES]
    assert found[-1][1].epoch == 2


def test_in_an_epoch_of_several_groups_every_pair_occurs_once_and_groups_are_of_other_shards_than_before() -> None:
    found = batches_from(TrainingState(), 50, n_shards=7)
    groups = {}
    for epoch in range(2):
        ours = [(batch, state.group) for batch, state in found if state.epoch == epoch]
        assert sorted(i for batch, _ in ours for i in batch) == list(range(40))
        assert [group for _, group in ours] == sorted(group for _, group in ours)
        groups[epoch] = [sorted(i for batch, group in ours if group == wanted for i in batch) for wanted in range(3)]
        assert max(map(len, groups[epoch])) <= 3 * -(-40 // 7)
    assert groups[0] != groups[1]


@several_groups
def test_a_new_order_goes_on_from_any_state(n_shards: int) -> None:
    whole = batches_from(TrainingState(), N_BATCHES, n_shards)
    for done, (_, state) in enumerate(whole, 1):
        assert batches_from(state, N_BATCHES - done, n_shards) == whole[done:]


@pytest.mark.parametrize("after", [{"next_batch": 5}, {"next_batch": 8}, {"group": 1}, {"group": 4, "next_batch": 1}])
def test_from_a_state_after_the_last_batch_the_next_epoch_begins(after: dict[str, int]) -> None:
    """Wherever that is: another text under the same run may have fewer batches."""
    assert len(order_of(3).group(0, 0)[1]) == 5
    (first, _), *_ = batches_from(TrainingState(epoch=1), 1)
    assert batches_from(TrainingState(**after), 1)[0][0] == first  # type: ignore[arg-type]


@several_groups
def test_a_group_is_planned_once(n_shards: int) -> None:
    with mock.patch.object(batching, "plan_epoch", wraps=plan_epoch) as plans:
        last = batches_from(TrainingState(), N_BATCHES, n_shards)[-1][1]
    planned = [(call.kwargs["epoch"], call.kwargs["group"]) for call in plans.call_args_list]
    groups = [(epoch, group) for epoch in range(3) for group in range(-(-n_shards // 3))]
    assert planned == groups[: groups.index((last.epoch, last.group)) + 1]


@several_groups
def test_batches_to_avoid_are_skipped_in_their_group_of_their_epoch_alone(n_shards: int) -> None:
    whole = batches_from(TrainingState(), N_BATCHES, n_shards)
    avoided = tuple((state.epoch, state.group, state.next_batch - 1) for _, state in whole[:7:3])
    kept = [batch for i, (batch, _) in enumerate(whole) if i not in (0, 3, 6)]
    assert [batch for batch, _ in batches_from(TrainingState(avoided=avoided), N_BATCHES - 3, n_shards)] == kept


def test_training_on_many_shards_holds_lengths_of_one_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "PAIRS_PER_SHARD", 1_000)
    monkeypatch.setattr(batching, "SHARDS_AT_ONCE", 2)
    n_pairs = 50_000
    write_store(tmp_path, "train", (([7], [8, 9]) for _ in range(n_pairs)), 100)

    def train() -> None:
        order, position = BatchOrder(TokenStore(tmp_path, "train"), 1_000, seed=1), (0, 0, 0)
        while position < (0, 2, 0):
            _, position = order.next(position)

    # bytes: less than one number for each pair; the least of three, because threads of other tests may allocate, too
    assert min(peak_of(train) for _ in range(3)) < 8 * n_pairs


SIZES, WEIGHTS = (37, 250, 13), (2.5, 0.3, 1.0)  # of three files in 300 pairs; shards of 40 pairs do not end with them


def weighted_in(folder: Path, weights: Sequence[float] = WEIGHTS, seed: int = 1) -> WeightedPairs:
    """A store in which the source of pair i is the one token i."""
    with mock.patch.object(store_module, "PAIRS_PER_SHARD", 40):
        write_store(folder, "train", (([i], [7] * (i % 5)) for i in range(300)), 300)
    return WeightedPairs(TokenStore(folder, "train"), SIZES, weights, seed)


def epoch_of(pairs: WeightedPairs, epoch: int) -> list[int]:
    """The numbers of the pairs that the batches of an epoch have, in order."""
    order, numbers, position = BatchOrder(pairs, 30, seed=1), list[int](), (epoch, 0, 0)
    while True:
        batch, position = order.next(position)
        if position[0] != epoch:
            return numbers
        read = order.group(epoch, position[1])[0]
        for i in batch:
            source, target = read.pair(i)
            assert (len(source), len(target)) == tuple(read.lengths[i]) == (1, source[0] % 5)
            numbers += source.tolist()


@pytest.mark.parametrize("at_once", [2, 10])
def test_an_epoch_has_as_many_pairs_of_a_file_as_its_weight_says(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "SHARDS_AT_ONCE", at_once)
    pairs = weighted_in(tmp_path)
    for epoch in range(2):
        counts = np.bincount(epoch_of(pairs, epoch), minlength=300)
        of_files = np.split(counts, np.cumsum(SIZES)[:-1])
        assert [int(part.sum()) for part in of_files] == [92, 75, 13]  # round(2.5 · 37), 0.3 · 250, 13
        assert [set(part) for part in of_files] == [{2, 3}, {0, 1}, {1}]
    assert len(pairs) == 92 + 75 + 13


def test_the_pairs_of_an_epoch_are_a_function_of_seed_and_epoch_and_all_pairs_of_a_file_come_in_turn(
    tmp_path: Path,
) -> None:
    pairs, again = weighted_in(tmp_path), weighted_in(tmp_path)
    epochs = [epoch_of(pairs, epoch) for epoch in range(30)]
    assert epoch_of(again, 7) == epochs[7]
    assert sorted(epochs[7]) != sorted(epochs[8])
    assert sorted(epoch_of(weighted_in(tmp_path, seed=2), 7)) != sorted(epochs[7])
    counts = np.bincount(np.concatenate(epochs), minlength=300)[37:287]
    assert (counts.sum(), counts.min() > 0, counts.max() < 20) == (30 * 75, True, True)  # 9 on average


def test_pairs_of_weight_one_are_those_without_weights_in_the_same_batches(tmp_path: Path) -> None:
    pairs = weighted_in(tmp_path, (1, 1, 1))
    plain = BatchOrder(TokenStore(tmp_path, "train"), 30, seed=1).group(3, 0)
    weighted = BatchOrder(pairs, 30, seed=1).group(3, 0)
    assert as_lists(weighted[1]) == as_lists(plain[1])
    assert weighted[0].lengths.tolist() == plain[0].lengths.tolist()
