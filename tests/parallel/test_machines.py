"""Ranks of which some share memory, as on several machines: who speaks with whom, and how subtrees are held."""

import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import TIME_LIMIT

from parallel.communicator import ALIGNMENT, shard_of_rank
from parallel.exact_sum import (
    CHUNK,
    SendReceive,
    add_along_tree,
    round_to_bfloat16,
    send_receive_schedule,
    subtrees_within,
    sum_by_machines,
    tree_of,
    upcast_to_float32,
)

NODES = st.lists(st.integers(0, 5), min_size=1, max_size=24).map(
    lambda machines: [[r for r, machine in enumerate(machines) if machine == m] for m in sorted(set(machines))]
)
LEAVES = st.integers(0, 5).flatmap(
    lambda bits: st.tuples(st.just(range(2**bits)), st.lists(st.integers(0, 3), min_size=2**bits, max_size=2**bits))
)


def sum_along_tree(numbers: list[Any]) -> Any:
    while len(numbers) > 1:
        numbers = [left + right for left, right in zip(numbers[::2], numbers[1::2], strict=True)]
    return numbers[0]


def rounded(numbers: Any) -> Any:
    return numbers.astype(ml_dtypes.bfloat16).astype(np.float32)


@given(NODES)
def test_every_rank_receives_from_one_rank_of_every_other_node(nodes: list[list[int]]) -> None:
    for own in nodes:
        for rank in own:
            senders = [call.partner for call in send_receive_schedule(nodes, rank) if call.receives]
            assert [sum(partner in ranks for partner in senders) for ranks in nodes] == [
                int(ranks != own) for ranks in nodes
            ]


@given(NODES)
def test_exchanges_are_the_same_to_both_ranks_and_no_ranks_wait_in_a_circle(nodes: list[list[int]]) -> None:
    """Two ranks whose next exchange is with each other go on; if there always are two, all exchanges end.

    Both know who sends.
    """
    left = {rank: list(send_receive_schedule(nodes, rank)) for rank in range(sum(map(len, nodes)))}
    while any(left.values()):
        met = [
            rank
            for rank, of_rank in left.items()
            if of_rank and left[of_rank[0].partner] and left[of_rank[0].partner][0].partner == rank
        ]
        assert met
        for rank in met:
            call = left[rank][0]
            assert SendReceive(rank, call.receives, call.sends) == left[call.partner][0]
        for rank in met:
            left[rank].pop(0)


def test_ranks_of_one_machine_share_the_work() -> None:
    """Three on one, two on the other: the third one's partner is the first, which so has two."""
    partners = {rank: [call.partner for call in send_receive_schedule([[0, 1, 2], [3, 4]], rank)] for rank in range(5)}
    assert partners == {0: [3], 1: [4], 2: [3], 3: [0, 2], 4: [1]}


@given(LEAVES)
def test_machines_hold_the_largest_subtrees_that_they_can(leaves: tuple[range, list[int]]) -> None:
    whole, machine_of = leaves
    held = {m: subtrees_within([r for r in whole if machine_of[r] == m], whole) for m in set(machine_of)}
    assert sorted(rank for subtrees in held.values() for subtree in subtrees for rank in subtree) == list(whole)
    for subtrees in held.values():
        assert all(s.start % len(s) == 0 and len(s).bit_count() == 1 for s in subtrees)
        siblings = [range(s.start ^ len(s), (s.start ^ len(s)) + len(s)) for s in subtrees]
        assert not set(siblings) & set(subtrees)


@given(LEAVES, st.integers(0, 40), st.integers(0, 2**32))
def test_sums_of_subtrees_have_the_bits_of_the_tree(leaves: tuple[range, list[int]], first: int, seed: int) -> None:
    whole, machine_of = leaves
    numbers = np.random.default_rng(seed).standard_normal((len(whole), 70), np.float32)
    of_leaves = {range(r, r + 1): numbers[r] for r in whole}
    sums: dict[range, Any] = {}
    for machine in set(machine_of):
        for subtree in subtrees_within([r for r in whole if machine_of[r] == machine], whole):
            sums[subtree] = np.empty(70, np.float32)
            add_along_tree(tree_of(subtree, of_leaves, first), sums[subtree])
    found = next((array for subtree, array in sums.items() if first in subtree), np.empty(70, np.float32))  # in place
    add_along_tree(tree_of(whole, sums, first), found)
    assert np.array_equal(found, sum_along_tree(list(numbers)))


def test_what_is_narrowed_is_rounded_to_the_nearest_bfloat16() -> None:
    """All upper halves of a float32, with lower halves on both sides of the middle, and in it."""
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    numbers = ((np.arange(1 << 16, dtype=np.uint32) << 16)[:, None] | lower).view(np.float32).reshape(-1)
    assert numbers.size > CHUNK
    bits, back = np.empty(numbers.size, np.uint16), np.empty(numbers.size, np.float32)
    round_to_bfloat16(numbers, bits)
    upcast_to_float32(bits, back)
    with np.errstate(all="ignore"):
        expected = rounded(numbers)
    assert np.array_equal(back, expected, equal_nan=True)
    assert np.isnan(back).sum() == np.isnan(numbers).sum()


class Mailboxes:
    """A transport between ranks that are threads; ``sent`` counts numbers by sender and receiver."""

    def __init__(
        self, rank: int, size: int, boxes: dict[tuple[int, int], SimpleQueue[Any]], sent: Counter[Any]
    ) -> None:
        self.rank, self.size, self._boxes, self._sent = rank, size, boxes, sent

    def sendrecv_array(self, sent: Any, received: Any, partner: int) -> None:
        if len(sent):
            self._sent[self.rank, partner] += sent.size
            self._boxes[self.rank, partner].put(sent.copy())
        if len(received):
            received[...] = self._boxes[partner, self.rank].get(timeout=TIME_LIMIT)


@pytest.mark.parametrize(
    ("n_machines", "n_local", "n_working"), [(2, 2, 4), (3, 2, 4), (2, 4, 4), (4, 2, 8), (3, 4, 8)]
)
@pytest.mark.parametrize("rounds", [False, True])
def test_a_sum_within_machines_first_has_the_bits_of_the_tree_and_sends_to_partners_only(
    n_machines: int, n_local: int, n_working: int, rounds: bool
) -> None:
    """Machines without a working rank get the sums of their shards, too; only what comes from another is rounded."""
    size, sent = n_machines * n_local, Counter[Any]()
    n = size * ALIGNMENT
    boxes = {pair: SimpleQueue[Any]() for pair in itertools.product(range(size), repeat=2)}
    summands = [np.random.default_rng(rank).standard_normal(n, np.float32) for rank in range(n_working)]
    flats = [summands[rank].copy() if rank < n_working else np.full(n, np.nan, np.float32) for rank in range(size)]

    def add(rank: int) -> None:
        transport = Mailboxes(rank, size, boxes, sent)
        sum_by_machines(flats[rank], transport, n_working, 1 << 20, n_local, rounds=rounds)

    with ThreadPoolExecutor(size) as executor:
        list(executor.map(add, range(size)))
    of_machines = [sum_along_tree(summands[i : i + n_local]) for i in range(0, n_working, n_local)]
    for rank, flat in enumerate(flats):
        received = [s if i == rank // n_local or not rounds else rounded(s) for i, s in enumerate(of_machines)]
        shard = shard_of_rank(rank, size, n)
        assert np.array_equal(flat[shard], sum_along_tree(received)[shard]), f"rank {rank}"
    between = {pair: count for pair, count in sent.items() if pair[0] // n_local != pair[1] // n_local}
    assert all((sender - receiver) % n_local == 0 for sender, receiver in between)
    assert set(between.values()) == {ALIGNMENT}
