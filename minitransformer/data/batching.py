"""The batches of an epoch: a pure function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np

from autograd.array import IntArray
from autograd.random import StreamId, permutation
from minitransformer.data.store import Pairs, TrainingPairs
from minitransformer.model.batch import Batch

POOL = 128  # batches per pool; pairs are sorted by length within a pool, and pools differ between epochs
_ORDER_OF_PAIRS, _ORDER_OF_BATCHES = 0x706169727300, 0x626174636800  # random stream ids that no model uses


def plan_epoch(lengths: IntArray, batch_tokens: int, *, seed: int, epoch: int) -> list[IntArray]:
    """Return the batches of an epoch, each an array of indices of pairs; every pair occurs once.

    Pairs are shuffled, sorted by length within pools, and cut into batches of at most ``batch_tokens`` tokens a side,
    end symbols included.  A longer pair is a batch of its own.  Then the batches are shuffled.

    Shapes: lengths (n, 2), source and target tokens without end symbols.
    """
    order = permutation(StreamId(seed, _ORDER_OF_PAIRS, epoch), len(lengths))
    n_tokens = len(lengths) + int(lengths.max(axis=1, initial=0).sum())  # of the longer sides
    pairs_per_pool = max(1, POOL * batch_tokens * len(order) // max(1, n_tokens))
    batches = []
    for start in range(0, len(order), pairs_per_pool):
        pool = order[start : start + pairs_per_pool]
        with_ends = lengths[pool] + 1
        target_then_source = np.lexsort((with_ends[:, 0], with_ends[:, 1]))
        batches += [pool[run] for run in cut_by_tokens(target_then_source, with_ends, batch_tokens)]
    return [batches[i] for i in permutation(StreamId(seed, _ORDER_OF_BATCHES, epoch), len(batches))]


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
    """Cut a batch into micro-batches of nearly equal numbers of tokens; of few pairs, some are empty; of none, all."""
    n_tokens = (lengths[indices] + 1).sum(axis=1)
    middles = np.cumsum(n_tokens) - n_tokens / 2
    micro_batch_of_pair = np.minimum(
        (middles * n_micro_batches / max(1, n_tokens.sum())).astype(np.int64), n_micro_batches - 1
    )
    return [indices[micro_batch_of_pair == micro_batch] for micro_batch in range(n_micro_batches)]


class BatchOrder:
    """The batches of a training, one after the other: a pure function of seed, epoch and the lengths of sentences."""

    def __init__(self, store: TrainingPairs, batch_tokens: int, seed: int) -> None:
        self._store, self._batch_tokens, self._seed = store, batch_tokens, seed
        self._epoch, self._plan = -1, list[IntArray]()  # the epoch that was planned last, and its batches

    def next(self, epoch: int, index: int, avoided: Collection[tuple[int, int]] = ()) -> tuple[IntArray, int, int]:
        """Return the batch at this index of an epoch, as indices of pairs, its epoch, and the index after it.

        At the end of an epoch it is the first batch of the next one.  Batches in ``avoided`` are skipped: pairs of
        epoch and index.
        """
        while True:
            plan = self.epoch(epoch)
            if index >= len(plan):  # greater: the epoch has fewer batches than when the index was saved
                epoch, index = epoch + 1, 0
            elif (epoch, index) in avoided:
                index += 1
            else:
                return plan[index], epoch, index + 1

    def epoch(self, epoch: int) -> list[IntArray]:
        """Return all batches of an epoch."""
        if epoch != self._epoch:
            lengths = self._store.of_epoch(epoch).lengths
            self._plan = plan_epoch(lengths, self._batch_tokens, seed=self._seed, epoch=epoch)
            self._epoch = epoch
        return self._plan


def read_micro_batches(
    pairs: Pairs, batch: IntArray, n_micro_batches: int, wanted: Sequence[int]
) -> tuple[list[Batch | None], list[IntArray]]:
    """Cut a batch into micro-batches; read those with the ``wanted`` indices, None for one without pairs.

    Also return the lengths of all micro-batches, end symbols included: an array (B, 2) for each.
    """
    cut = cut_into_micro_batches(batch, pairs.lengths, n_micro_batches)
    read = [read_batch(pairs, cut[i]) if len(cut[i]) else None for i in wanted]
    return read, [pairs.lengths[indices] + 1 for indices in cut]


def read_batch(pairs: Pairs, indices: IntArray) -> Batch:
    """Return the pairs of these indices as a packed batch."""
    read = [pairs.pair(int(i)) for i in indices]
    return Batch.from_token_ids([source for source, _ in read], [target for _, target in read])
