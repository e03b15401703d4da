"""Subword sampling: training text is segmented anew in every epoch.

Sources: Provilkov et al. 2020 (BPE-dropout); Kudo 2018 (subword regularization).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import sentencepiece

from autograd.array import IntArray
from autograd.random import StreamId, random_words
from minitransformer.data.store import SIDES, Pairs, TokenStore
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.symbols import UNKNOWN

_STREAM = 0x737562776F72  # a random stream id that no model uses
_PAIRS_AT_ONCE = 10_000


class SubwordSampler:
    """A token store whose pairs are segmented anew in every epoch: a pure function of seed and epoch.

    A sentence keeps its segmentation if it contains unknown characters, or if the new one is longer than any sentence
    of the store.  So memory and learned positions that suffice for the store suffice for every epoch.

    Args:
        rate: with BPE, the probability that a merge is skipped; with a unigram model, the exponent of a segmentation's
            probability: the smaller, the more different the segmentations.
    """

    def __init__(self, store: TokenStore, tokenizer: Tokenizer, rate: float, seed: int) -> None:
        self._store, self._models = store, (tokenizer.source, tokenizer.target)
        self._rate, self._seed = rate, seed
        self._longest = store.lengths.max(axis=0, initial=0)
        self._epoch, self._pairs = -1, _SampledPairs([], [])

    def __len__(self) -> int:
        return len(self._store)

    def of_epoch(self, epoch: int) -> Pairs:
        """Return the pairs of an epoch; the last epoch's stay in memory."""
        if epoch != self._epoch:
            self._pairs, self._epoch = self._sample(epoch), epoch
        return self._pairs

    def _sample(self, epoch: int) -> _SampledPairs:
        """Segment all pairs in a thread of its own.

        sentencepiece has a generator for each thread, and seeds it when the thread first draws.
        """
        sides: list[list[np.ndarray[Any, Any]]] = [[], []]
        errors: list[BaseException] = []

        def work() -> None:
            try:
                sentencepiece.set_random_generator_seed(_seed_of(self._seed, epoch))
                for start in range(0, len(self), _PAIRS_AT_ONCE):
                    for side in range(len(SIDES)):
                        sides[side] += self._sample_side(side, range(start, min(start + _PAIRS_AT_ONCE, len(self))))
            except BaseException as error:  # raised again below
                errors.append(error)

        thread = threading.Thread(target=work, name="subword-sampling")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return _SampledPairs(*sides)

    def _sample_side(self, side: int, indices: range) -> Iterator[np.ndarray[Any, Any]]:
        model, longest = self._models[side], self._longest[side]
        for i in indices:
            ids = self._store.pair(i)[side]
            text = model.decode(ids.tolist())
            sampled = model.encode(text, enable_sampling=True, alpha=self._rate, nbest_size=-1)
            keeps = len(sampled) > longest or UNKNOWN in ids or UNKNOWN in sampled
            yield np.asarray(ids if keeps else sampled, ids.dtype)


class _SampledPairs:
    """The pairs of one epoch, in flat arrays."""

    def __init__(self, sources: list[np.ndarray[Any, Any]], targets: list[np.ndarray[Any, Any]]) -> None:
        sides = (sources, targets)
        lengths = [np.fromiter(map(len, side), np.int64, len(side)) for side in sides]
        self.lengths: IntArray = np.stack(lengths, axis=1)
        self._flat = [np.concatenate(side) if side else np.empty(0, np.uint16) for side in sides]
        self._ends = np.cumsum(self.lengths, axis=0)

    def __len__(self) -> int:
        return len(self.lengths)

    def pair(self, i: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        source, target = (
            flat[end - length : end]
            for flat, end, length in zip(self._flat, self._ends[i], self.lengths[i], strict=True)
        )
        return source, target


def _seed_of(seed: int, epoch: int) -> int:
    """Return a seed for sentencepiece's generator, which takes 32 bits."""
    words = random_words(np.empty(0), stream_id=StreamId(seed, _STREAM, epoch), count=1)
    return int(words[0]) & 0xFFFFFFFF
