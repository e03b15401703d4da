"""A constraint of a search: no sequence of n tokens occurs twice in a translation.

Source: Paulus et al. 2018, "A deep reinforced model for abstractive summarization", section 2.5.
"""

from __future__ import annotations

import numpy as np

from autograd.array import BoolArray, IntArray
from minitransformer.inference.search import Constraint


class NoRepeat:
    """Forbids tokens that would repeat ``n`` tokens of a hypothesis, besides those that ``other`` forbids.

    If no token were left, only ``other`` holds.

    Args:
        rows: number of hypotheses at the start.
        n_words: size of the target vocabulary.
    """

    def __init__(self, n: int, rows: int, n_words: int, other: Constraint | None = None) -> None:
        self.n, self.n_words, self.other = n, n_words, other
        self.ids: IntArray = np.zeros((rows, 0), np.int64)

    def forbidden(self) -> BoolArray:
        rows, length = self.ids.shape
        forbidden: BoolArray = np.zeros((rows, self.n_words), np.bool_)
        if self.other is not None:
            forbidden = forbidden | self.other.forbidden()
        if length < self.n:
            return forbidden
        given = forbidden.copy()
        windows = np.lib.stride_tricks.sliding_window_view(self.ids, self.n, axis=1)  # (rows, length − n + 1, n)
        newest = self.ids[:, length - self.n + 1 :]  # (rows, n − 1)
        repeated, at = np.nonzero((windows[:, :, :-1] == newest[:, None, :]).all(axis=2))
        forbidden[repeated, windows[repeated, at, -1]] = True
        full = forbidden.all(axis=1)
        forbidden[full] = given[full]
        return forbidden

    def follow(self, rows: IntArray, tokens: IntArray) -> None:
        self.ids = np.concatenate([self.ids[rows], tokens[:, None]], axis=1)
        if self.other is not None:
            self.other.follow(rows, tokens)

    def select(self, rows: IntArray) -> None:
        self.ids = self.ids[rows]
        if self.other is not None:
            self.other.select(rows)
