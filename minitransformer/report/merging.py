"""Subword pieces merged into words, for attention pages and pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from autograd.array import FloatArray
from minitransformer.inference.attention import AttentionWeights
from minitransformer.report.attended import AttendedPair


def merge_words(pair: AttendedPair) -> AttendedPair:
    """Merge the pieces of each word into one token; words are separated by blanks, so they include punctuation.

    For words Q and K: weight(Q, K) = Σ_{k in K} mean_{q in Q} weight(q, k).  Attention to a word is the sum over its
    pieces, and attention of a word is the mean over its pieces, so each row still sums to 1.

    **Source**: Clark, Khandelwal, Levy and Manning 2019, "What Does BERT Look At? An Analysis of BERT's Attention",
    section 4.1.
    """
    source, target = pair.source_starts, pair.target_starts
    inputs, outputs = [0, *(start + 1 for start in target)], [*target, len(pair.outputs) - 1]
    weights = pair.weights
    return dataclasses.replace(
        pair,
        source=_joined(pair.source, source),
        inputs=_joined(pair.inputs, inputs),
        outputs=_joined(pair.outputs, outputs),
        source_starts=list(range(len(source))),
        target_starts=list(range(len(target))),
        weights=AttentionWeights(
            encoder=_merged(weights.encoder, source, source),
            decoder=_merged(weights.decoder, inputs, inputs),
            encoder_decoder=_merged(weights.encoder_decoder, outputs, source),
        ),
    )


def _joined(tokens: Sequence[str], starts: Sequence[int]) -> list[str]:
    """Join displayed tokens (see ``shown_pieces``) to words; a mark "▁" of its own is dropped before other pieces."""
    words = []
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        first, others = tokens[start], [token.removeprefix("·") for token in tokens[start + 1 : end]]
        words.append("".join(others if first == "▁" and others else [first, *others]))
    return words


def _merged(weights: FloatArray, queries: Sequence[int], keys: Sequence[int]) -> FloatArray:
    """Add weights (…, T, S) over the keys of each word, and average them over its queries.

    Args:
        queries, keys: the index of each word's first query, and of its first key.
    """
    n_pieces = np.diff([*queries, weights.shape[-2]])
    sums = np.add.reduceat(np.add.reduceat(weights, keys, axis=-1), queries, axis=-2)
    merged: FloatArray = sums / n_pieces[:, None]
    return merged
