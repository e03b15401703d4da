"""The same random sentences for all contestants, with the lengths, and with ``zipf`` the word frequencies, of text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitransformer import ModelConfig
from minitransformer.data.batching import plan_epoch

IdPairs = list[tuple[list[int], list[int]]]


@dataclass(frozen=True)
class Workload:
    """A model, and batches of at most ``batch_tokens`` tokens a side for it."""

    config: ModelConfig
    batch_tokens: int
    n_batches: int
    zipf: bool = False
    """Draw the r-th word with a probability proportional to 1/r, instead of all words equally often.

    On a GPU, the rows of an embedding's gradient that many tokens share are slow.  The tables for CPUs were measured
    with equally frequent words.
    """

    def pairs(self) -> IdPairs:
        """Draw enough pairs for the batches, of log-normal lengths: median 20 tokens, one in a hundred over 65."""
        random = np.random.default_rng(1)
        n = 20 + 130 * self.n_batches * self.batch_tokens // 24 // 100
        lengths = np.clip(np.exp(random.normal(3.0, 0.5, n)), 1, 100)
        targets = np.clip(lengths * np.exp(random.normal(0, 0.15, n)), 1, 100)
        return [
            (self._words(random, int(s)), self._words(random, int(t))) for s, t in zip(lengths, targets, strict=True)
        ]

    def _words(self, random: np.random.Generator, n: int) -> list[int]:
        """Draw n words: ids above those of the symbols, the most frequent first."""
        if not self.zipf:
            return list(random.integers(3, self.config.vocabulary_size, n).tolist())
        cumulative = np.cumsum(1 / np.arange(1, self.config.vocabulary_size - 2))
        return list((3 + np.searchsorted(cumulative, random.random(n) * cumulative[-1])).tolist())

    def batches(self) -> list[IdPairs]:
        """Return the pairs in batches of similar lengths."""
        pairs = self.pairs()
        lengths = np.array([(len(source), len(target)) for source, target in pairs])
        plan = plan_epoch(lengths, self.batch_tokens, seed=1, epoch=0)
        full = [batch for batch in plan if (lengths[batch] + 1).sum(0).max() > 0.8 * self.batch_tokens]
        return [[pairs[i] for i in batch] for batch in full[: self.n_batches]]


WORKLOADS = {
    "tiny": Workload(ModelConfig(4_000, n_layers=2, d_model=128, d_ff=512, n_heads=4, d_k=32, d_v=32), 1_280, 8),
    "small-1024": Workload(
        ModelConfig(10_000, n_layers=3, d_model=256, d_ff=1024, n_heads=4, d_k=64, d_v=64), 2_560, 4
    ),
    "base": Workload(ModelConfig(37_000), 2_000, 3),
}
