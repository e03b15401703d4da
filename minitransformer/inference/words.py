"""Words and the subword pieces that spell them, as far as attention weights need them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autograd.array import FloatArray
from minitransformer.model.symbols import BLANK


def word_starts(pieces: Sequence[str]) -> list[int]:
    """Return the index of each word's first piece; a mark of its own belongs to the word after it."""
    marked = [piece.startswith(BLANK) and (i == 0 or pieces[i - 1] != BLANK) for i, piece in enumerate(pieces)]
    return [i for i, begins in enumerate(marked) if begins or i == 0]


def weights_of_words(weights: FloatArray, queries: Sequence[int], keys: Sequence[int]) -> FloatArray:
    """Merge attention weights (…, T, S) between pieces into weights between words.

    For words Q and K: weight(Q, K) = Σ_{k in K} mean_{q in Q} weight(q, k).  Attention to a word is the sum over its
    pieces, and attention of a word is the mean over its pieces, so each row still sums to 1.

    Source: Clark, Khandelwal, Levy and Manning 2019, "What Does BERT Look At? An Analysis of BERT's Attention",
    section 4.1.

    Args:
        queries, keys: the index of each word's first query, and of its first key.
    """
    n_pieces = np.diff([*queries, weights.shape[-2]])
    sums = np.add.reduceat(np.add.reduceat(weights, keys, axis=-1), queries, axis=-2)
    word_scores: FloatArray = sums / n_pieces[:, None]
    return word_scores
