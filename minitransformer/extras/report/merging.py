"""Attention weights as they are shown: merged into words, or without the end symbol."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from autograd.array import FloatArray
from minitransformer.extras.report.attended import AttendedPair
from minitransformer.inference.attention import AttentionWeights
from minitransformer.model.symbols import BLANK


def merge_words(pair: AttendedPair) -> AttendedPair:
    """Merge the pieces of each word (see ``word_starts``) into one token."""
    source, target = pair.source_starts, pair.target_starts
    inputs, outputs = [0, *(start + 1 for start in target)], [*target, len(pair.outputs) - 1]
    weights = pair.weights
    return dataclasses.replace(
        pair,
        source=_join_words(pair.source, source),
        inputs=_join_words(pair.inputs, inputs),
        outputs=_join_words(pair.outputs, outputs),
        source_starts=list(range(len(source))),
        target_starts=list(range(len(target))),
        weights=AttentionWeights(
            encoder=weights_of_words(weights.encoder, source, source),
            decoder=weights_of_words(weights.decoder, inputs, inputs),
            encoder_decoder=weights_of_words(weights.encoder_decoder, outputs, source),
        ),
    )


def _join_words(tokens: Sequence[str], starts: Sequence[int]) -> list[str]:
    """Join displayed tokens (see ``shown_pieces``) into words; drop a token "▁" before other tokens of its word."""
    words = []
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        first, others = tokens[start], [token.removeprefix("·") for token in tokens[start + 1 : end]]
        words.append("".join(others if first == BLANK and others else [first, *others]))
    return words


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


def without_key(weights: FloatArray, key: int) -> FloatArray:
    """Remove one key from ``weights`` (…, T, S) → (…, T, S − 1), and divide each row by its new sum.

    Heads often put most of their weight on the end symbol; without it, differences among the words become visible.
    A row that is 0 for all other keys stays 0.
    """
    others: FloatArray = np.delete(weights, key, axis=-1)
    total = others.sum(-1, keepdims=True)
    np.divide(others, total, out=others, where=total > 0)
    return others
