"""The pairs and batches of an epoch: a pure function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from autograd.array import IntArray
from autograd.random import StreamId, permutation
from minitransformer.data.store import Pairs, TrainingPairs
from minitransformer.model.batch import Batch
from minitransformer.system.threads import ThreadPool

POOL = 128  # batches per pool; pairs are sorted by length within a pool, and pools differ between epochs
SHARDS_AT_ONCE = 10  # file shards that are planned together, which bounds memory: 5,000,000 pairs
# Random stream ids
_ORDER_OF_PAIRS, _ORDER_OF_BATCHES, _ORDER_OF_SHARDS = 0x706169727300, 0x626174636800, 0x736861726400
_WEIGHTED_PAIRS = 0x776569676800

Read = TypeVar("Read")
Position: TypeAlias = tuple[int, int, int]  # of a batch: epoch, index of the group of shards, index in the group's plan


def plan_epoch(lengths: IntArray, batch_tokens: int, *, seed: int, epoch: int, group: int = 0) -> list[IntArray]:
    """Return the batches of a group of shards in an epoch, as arrays of pair indices; every pair occurs once.

    Pairs are shuffled, sorted by length within pools, and cut into batches of at most ``batch_tokens`` tokens a side,
    end symbols included.  A longer pair is a batch of its own.  Then the batches are shuffled.

    Shapes: lengths (n, 2), source and target tokens without end symbols.
    """
    order = permutation(StreamId(seed, _ORDER_OF_PAIRS, epoch, group), len(lengths))
    n_tokens = len(lengths) + int(lengths.max(axis=1, initial=0).sum())  # of each pair's longer side, with end symbol
    pairs_per_pool = max(1, POOL * batch_tokens * len(order) // max(1, n_tokens))
    batches = []
    for start in range(0, len(order), pairs_per_pool):
        pool = order[start : start + pairs_per_pool]
        with_ends = lengths[pool] + 1
        target_then_source = np.lexsort((with_ends[:, 0], with_ends[:, 1]))
        batches += [pool[run] for run in cut_by_tokens(target_then_source, with_ends, batch_tokens)]
    return [batches[i] for i in permutation(StreamId(seed, _ORDER_OF_BATCHES, epoch, group), len(batches))]


def cut_by_tokens(indices: IntArray, lengths: IntArray, batch_tokens: int) -> list[IntArray]:
    """Cut a sequence of indices into runs of at most ``batch_tokens`` tokens on each side.

    A longer sentence is a run of its own.

    Shapes: indices (m,), which index the rows of lengths (n, sides).
    """
    ends = np.cumsum(lengths[indices], axis=0)
    cuts = [0]
    while cuts[-1] < len(indices):
        start = cuts[-1]
        limits = batch_tokens + (ends[start - 1] if start else np.zeros_like(ends[0]))
        fits = min(int(np.searchsorted(side, limit, side="right")) for side, limit in zip(ends.T, limits, strict=True))
        cuts.append(max(start + 1, fits))
    return [indices[a:b] for a, b in pairwise(cuts)]


def cut_into_micro_batches(indices: IntArray, lengths: IntArray, n_micro_batches: int) -> list[IntArray]:
    """Cut a batch into micro-batches of nearly equal numbers of tokens; if there are few pairs, some are empty."""
    n_tokens = (lengths[indices] + 1).sum(axis=1)
    middles = np.cumsum(n_tokens) - n_tokens / 2
    micro_batch_of_pair = np.minimum(
        (middles * n_micro_batches / max(1, n_tokens.sum())).astype(np.int64), n_micro_batches - 1
    )
    return [indices[micro_batch_of_pair == micro_batch] for micro_batch in range(n_micro_batches)]


class WeightedPairs:
    """Training pairs of several files; an epoch has weight × as many pairs of each file.

    Of a file with n pairs and weight w, an epoch has round(w · n) pairs: each pair as often as it is contained in w as
    a whole, and a random subset of the pairs once more, drawn anew in every epoch.  The subset is drawn in each shard
    in proportion to the shard's pairs of the file, so that no more than some shards need to be read.  The choice is a
    pure function of seed, epoch and shard.

    Args:
        file_sizes: number of pairs of each file; pairs of a file follow each other, also beyond the end of a shard.
        weights: a positive number for each file.
    """

    def __init__(self, store: TrainingPairs, file_sizes: Sequence[int], weights: Sequence[float], seed: int) -> None:
        self.shard_sizes = store.shard_sizes
        self._store, self._seed, self._weights = store, seed, weights
        self._file_bounds = list(pairwise(np.cumsum([0, *file_sizes]).tolist()))
        self._shard_bounds = list(pairwise(np.cumsum([0, *self.shard_sizes]).tolist()))

    def __len__(self) -> int:
        files = zip(self._weights, self._file_bounds, strict=True)
        return sum(round(weight * (end - first)) for weight, (first, end) in files)

    def read(self, shards: Sequence[int], epoch: int) -> Pairs:
        """Return the pairs drawn from these shards for an epoch; all copies of a pair have the same tokens."""
        drawn, n_before = [np.empty(0, np.int64)], 0
        for shard in shards:
            first, end = self._shard_bounds[shard]
            drawn += [n_before - first + indices for indices in self._draw(first, end, epoch)]
            n_before += end - first
        return self._store.read(shards, epoch).selected(np.concatenate(drawn))

    def _draw(self, first: int, end: int, epoch: int) -> Iterator[IntArray]:
        """Yield the drawn pairs of the shard with the pairs first … end − 1, as indices in the whole text."""
        for weight, (file_first, file_end) in zip(self._weights, self._file_bounds, strict=True):
            start, stop = max(first, file_first), min(end, file_end)
            if start < stop:
                n_wanted = round(weight * (stop - file_first)) - round(weight * (start - file_first))
                n_copies, n_more = divmod(n_wanted, stop - start)
                order = permutation(StreamId(self._seed, _WEIGHTED_PAIRS, epoch, start), stop - start)
                yield np.tile(np.arange(start, stop), n_copies)
                yield start + order[:n_more]


class BatchOrder:
    """The batches of a training, one after the other: a pure function of seed, epoch and the lengths of sentences.

    In each epoch the file shards are shuffled and divided into groups, which are planned one at a time.
    """

    def __init__(self, store: TrainingPairs, batch_tokens: int, seed: int) -> None:
        self._store, self._batch_tokens, self._seed = store, batch_tokens, seed
        self._n_groups = -(-len(store.shard_sizes) // SHARDS_AT_ONCE)
        self._latest = dict[tuple[int, int], tuple[Pairs, list[IntArray]]]()  # the group that was planned last

    def next(self, position: Position, avoided: Collection[Position] = ()) -> tuple[IntArray, Position]:
        """Return the batch at a position, as indices of pairs of its group, and the position after the batch.

        At the end of a group return the first batch of the next group.  Batches at ``avoided`` positions are skipped.
        """
        epoch, group, index = position
        while True:
            if group >= self._n_groups:
                epoch, group, index = epoch + 1, 0, 0
            elif index >= len(plan := self.group(epoch, group)[1]):  # greater: saved with a longer plan
                group, index = group + 1, 0
            elif (epoch, group, index) in avoided:
                index += 1
            else:
                return plan[index], (epoch, group, index + 1)

    def following(self, position: Position, avoided: Collection[Position]) -> IntArray | None:
        """Return the batch that ``next`` returns for the same arguments; None if its group is not the latest one."""
        epoch, group, index = position
        _, plan = self._latest.get((epoch, group), (None, []))
        return next((plan[i] for i in range(index, len(plan)) if (epoch, group, i) not in avoided), None)

    def group(self, epoch: int, number: int) -> tuple[Pairs, list[IntArray]]:
        """Return the pairs of a group of shards, and all its batches."""
        if (epoch, number) not in self._latest:
            self._latest.clear()  # before the next plan is made: memory never holds two plans
            order = permutation(StreamId(self._seed, _ORDER_OF_SHARDS, epoch), len(self._store.shard_sizes))
            start, end = (len(order) * i // self._n_groups for i in (number, number + 1))
            pairs = self._store.read(sorted(order[start:end].tolist()), epoch)
            plan = plan_epoch(pairs.lengths, self._batch_tokens, seed=self._seed, epoch=epoch, group=number)
            self._latest[epoch, number] = pairs, plan
        return self._latest[epoch, number]


class ReadAhead(Generic[Read]):
    """The next batch of a training, which a thread reads while this batch is computed.

    The thread reads one batch at a time, and only after ``begin``.  The batch does not depend on the thread.
    """

    def __init__(self) -> None:
        self._executor = ThreadPool(1, thread_name_prefix="read-ahead")
        self._begun: tuple[IntArray, Future[Read]] | None = None

    def begin(self, batch: IntArray, read: Callable[[IntArray], Read]) -> None:
        """Begin to compute ``read(batch)`` on the thread; ``read`` must not use the device."""
        self._begun = batch, self._executor.submit(read, batch)

    def take(self, batch: IntArray, read: Callable[[IntArray], Read]) -> Read:
        """Return ``read(batch)``, from the thread if it was begun with this array, else computed here.

        Raises: what ``read`` raises.
        """
        begun, self._begun = self._begun, None
        return begun[1].result() if begun is not None and begun[0] is batch else read(batch)


def read_micro_batches(
    pairs: Pairs, batch: IntArray, n_micro_batches: int, wanted: Sequence[int]
) -> tuple[list[Batch | None], list[IntArray]]:
    """Cut a batch into micro-batches; return the micro-batches with the ``wanted`` indices, None for an empty one.

    Also return the lengths of all micro-batches, end symbols included: an array (B, 2) for each.
    """
    cut = cut_into_micro_batches(batch, pairs.lengths, n_micro_batches)
    read = [read_batch(pairs, cut[i]) if len(cut[i]) else None for i in wanted]
    return read, [pairs.lengths[indices] + 1 for indices in cut]


def read_batch(pairs: Pairs, indices: IntArray) -> Batch:
    """Return the pairs with these indices as a packed batch."""
    return Batch.of(pairs.packed(indices, 0), pairs.packed(indices, 1))
