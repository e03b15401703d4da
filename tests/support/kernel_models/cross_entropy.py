"""cross_entropy.cu: a block has a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_models.common import NEUTRAL, Floats


def cross_entropy_in_place(
    logits: Floats, targets: Any, share: float, confidence: float, impossible: int, n_threads: int = 1024
) -> Floats:
    """Of every row the loss log Σ_w exp z_w − Σ_w q_w z_w; the row becomes p − q.

    q is ``share`` for every word but the impossible one (−1: there is none), and ``confidence`` more for the target.
    A thread reads every ``n_threads``-th word and keeps m, l = Σ exp(z − m) and, but for the impossible one, Σ z:

        m' = max(m, z),  l' = l exp(m − m') + exp(z − m'),

    then the block has M = max m and L = Σ l exp(m − M).  The second pass writes exp(z − M) / L − share; the two words
    with another q follow, the target last, from logits that were read before anything was written.  No word is padding:
    of the last ones there are fewer than threads.  A row whose target is −1 becomes 0 unread.

    Shapes: logits (T, W), changed; targets (T,).  Returns the losses (T,).
    """
    losses = np.full(len(logits), np.nan, logits.dtype)
    for row, (z, target) in enumerate(zip(logits, targets, strict=True)):
        if target < 0:
            z[...] = losses[row] = 0
            continue
        z_target, z_impossible = z[target], 0 if impossible < 0 else z[impossible]
        greatest, total, sums = _of_row(z, impossible, n_threads)
        scale = 1 / total
        z[...] = np.exp(z - greatest) * scale - share
        if impossible >= 0:
            z[impossible] = np.exp(z_impossible - greatest) * scale
        of_target = confidence if target == impossible else share + confidence
        z[target] = np.exp(z_target - greatest) * scale - of_target
        losses[row] = np.log(total) + greatest - (share * sums if share > 0 else 0) - confidence * z_target
    return losses


def _of_row(row: Floats, impossible: int, n_threads: int) -> tuple[Any, Any, Any]:
    """M, L and Σ z of a row, a number of each for every thread until the end."""
    greatest_here = np.full(n_threads, NEUTRAL, row.dtype)
    total, sums = np.zeros((2, n_threads), row.dtype)
    for start in range(0, len(row), n_threads):
        z = row[start : start + n_threads]
        busy = slice(len(z))
        greater = np.maximum(greatest_here[busy], z)
        total[busy] = total[busy] * np.exp(greatest_here[busy] - greater) + np.exp(z - greater)
        sums[busy] += np.where(np.arange(start, start + len(z)) == impossible, 0, z)
        greatest_here[busy] = greater
    greatest = greatest_here.max()
    return greatest, (total * np.exp(greatest_here - greatest)).sum(), sums.sum()
