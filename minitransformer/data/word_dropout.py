"""Word dropout: in every epoch some words of the source become the class of rare words that they would have."""

from __future__ import annotations

import numpy as np

from autograd.random import StreamId, named_stream_id, uniform
from minitransformer.data.rare_words import WordEncoder
from minitransformer.data.store import FlatPairs, Pairs, TokenStore
from minitransformer.data.tokenizer import Tokenizer


class WordDropout:
    """The pairs of a token store; sources have classes in place of some words, others in every epoch.

    An occurrence of a word becomes its class with probability α / (α + n), where the word occurs n times in the
    sources.  So the model learns what the classes of new words do from words that it also knows by themselves.  The
    result is a pure function of seed, epoch and pair.

    Source: Kiperwasser & Goldberg 2016, "Simple and Accurate Dependency Parsing Using Bidirectional LSTM Feature
    Representations", section 5, after Iyyer et al. 2015.  **Differs**: a word becomes its class, not one unknown word.

    Args:
        strength: α.
    """

    def __init__(self, store: TokenStore, tokenizer: Tokenizer, strength: float, seed: int) -> None:
        self._store, self._seed = store, seed
        self._sources = store.tokens(0)
        self._class_of = np.asarray(WordEncoder(tokenizer.source).classes(), self._sources.dtype)
        counts = np.bincount(self._sources, minlength=len(self._class_of))
        self._probability = strength / (strength + counts)
        self._latest: tuple[int, FlatPairs] | None = None  # the last epoch that was asked for, and its pairs

    def __len__(self) -> int:
        return len(self._store)

    def of_epoch(self, epoch: int) -> Pairs:
        """Return the pairs of an epoch; the last epoch's stay in memory."""
        if self._latest is None or self._latest[0] != epoch:
            lengths = self._store.lengths
            sides = (self._dropped(epoch), lengths[:, 0]), (self._store.tokens(1), lengths[:, 1])
            self._latest = epoch, FlatPairs(sides)
        return self._latest[1]

    def _dropped(self, epoch: int) -> np.ndarray:
        words = self._sources
        stream = named_stream_id(self._seed, "word dropout").stream
        drawn = uniform(StreamId(self._seed, stream, epoch), (len(words),))
        return np.where(drawn < self._probability[words], self._class_of[words], words)
