"""cross_entropy.cu: a block has a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_models.common import NEUTRAL, Floats

LOG2_OF_E = 1.4426950408889634


def exponential(x: Any) -> Any:
    """2 to the power of x · log₂ e, which of ``NEUTRAL`` is −∞."""
    with np.errstate(over="ignore"):
        return np.exp2(x * x.dtype.type(LOG2_OF_E))


def cross_entropy_in_place(
    logits: Floats,
    targets: Any,
    share: float,
    confidence: float,
    impossible: int,
    n_threads: int = 512,
    first: int = 0,
    words_of_vector: int = 8,
) -> Floats:
    """Of every row the loss log Σ_w exp z_w − Σ_w q_w z_w; the row becomes p − q.

    q is ``share`` for every word but the impossible one (−1: there is none), and ``confidence`` more for the target.
    A row is cut into vectors of ``words_of_vector`` words from word ``first`` on, where 16 aligned bytes begin, and the
    single words before and behind them.  A thread reads every ``n_threads``-th vector, then every ``n_threads``-th
    single word.  It keeps m, l = Σ exp(z − m) and, but for the impossible word, Σ z; of a vector with words i:

        m' = max(m, max_i z_i),  l' = l exp(m − m') + Σ_i exp(z_i − m'),

    then the block has M = max m and L = Σ l exp(m − M).  The second pass writes exp(z − M) / L − share; the two words
    with another q follow, the target last, from logits that were read before anything was written.  A row whose target
    is −1 becomes 0 unread.

    Shapes: logits (T, W), changed; targets (T,).  Returns the losses (T,).
    """
    losses = np.full(len(logits), np.nan, logits.dtype)
    for row, (z, target) in enumerate(zip(logits, targets, strict=True)):
        if target < 0:
            z[...] = losses[row] = 0
            continue
        z_target, z_impossible = z[target], np.zeros_like(z[0]) if impossible < 0 else z[impossible]
        vectors, single = _cut(len(z), min(first, len(z)), words_of_vector)
        greatest, total, sums = _of_row(z, vectors, single, impossible, n_threads)
        scale = 1 / total
        for words in (vectors, single):  # every word once
            z[words] = exponential(z[words] - greatest) * scale - share
        if impossible >= 0:
            z[impossible] = exponential(z_impossible - greatest) * scale
        of_target = confidence if target == impossible else share + confidence
        z[target] = exponential(z_target - greatest) * scale - of_target
        losses[row] = np.log(total) + greatest - (share * sums if share > 0 else 0) - confidence * z_target
    return losses


def _cut(n_words: int, first: int, words_of_vector: int) -> tuple[Any, Any]:
    """The words of every vector (vectors, words_of_vector), and the single words (n, 1)."""
    n_in_vectors = (n_words - first) // words_of_vector * words_of_vector
    vectors = first + np.arange(n_in_vectors).reshape(-1, words_of_vector)
    i = np.arange(n_words - n_in_vectors)[:, None]
    return vectors, np.where(i < first, i, i + n_in_vectors)


def _of_row(row: Floats, vectors: Any, single: Any, impossible: int, n_threads: int) -> tuple[Any, Any, Any]:
    """M, L and Σ z of a row, a number of each for every thread until the end."""
    greatest_here = np.full(n_threads, NEUTRAL, row.dtype)
    total, sums = np.zeros((2, n_threads), row.dtype)
    for all_words in (vectors, single):
        for start in range(0, len(all_words), n_threads):
            words = all_words[start : start + n_threads]
            z, busy = row[words], slice(len(words))
            greater = np.maximum(greatest_here[busy], z.max(1))
            total[busy] *= exponential(greatest_here[busy] - greater)
            total[busy] += exponential(z - greater[:, None]).sum(1)
            sums[busy] += np.where(words == impossible, 0, z).sum(1)
            greatest_here[busy] = greater
    greatest = greatest_here.max()
    return greatest, (total * exponential(greatest_here - greatest)).sum(), sums.sum()
