"""Log-probabilities of given pairs of sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autograd import namespace, no_tape, to_device, to_host
from autograd.ops.softmax import log_softmax_values
from minitransformer.data.batching import cut_by_tokens
from minitransformer.model.batch import Batch, IdPair
from minitransformer.model.transformer import Transformer
from minitransformer.system.threads import map_in_threads, require_wanted

TOKENS_AT_ONCE = 2_000


@dataclass(frozen=True)
class TargetScore:
    """The score of one pair or several: log p(target | source) in nats, and the number of target tokens with END."""

    log_probability: float
    n_tokens: int

    @property
    def loss(self) -> float:
        """Nats per target token, without label smoothing."""
        return -self.log_probability / max(1, self.n_tokens)

    @property
    def perplexity(self) -> float:
        """exp(loss), per subword token; so compare only models with the same vocabulary."""
        return math.exp(min(self.loss, 700))

    @classmethod
    def sum(cls, scores: Sequence[TargetScore]) -> TargetScore:
        """Add up the scores of pairs."""
        return cls(math.fsum(score.log_probability for score in scores), sum(score.n_tokens for score in scores))


def score_pairs(model: Transformer, pairs: Sequence[IdPair], *, n_threads: int = 1) -> list[TargetScore]:
    """Score pairs of ids without start and end symbols; return the scores in the order of the pairs.

    Pairs of similar length are computed together in batches, on threads.  Each batch has one BLAS thread, even if there
    are fewer batches than cores: with more threads, BLAS would round sums differently.
    """
    model = model.in_float32()
    lengths = np.array([(len(target), len(source)) for source, target in pairs], np.int64).reshape(-1, 2) + 1
    batches = cut_by_tokens(np.lexsort(lengths.T[::-1]), lengths, TOKENS_AT_ONCE)
    scores: list[TargetScore] = [TargetScore(0.0, 0)] * len(pairs)
    results = map_in_threads(
        lambda batch: _score_batch(model, [pairs[i] for i in batch]), batches, min(n_threads, max(1, len(batches)))
    )
    for batch, batch_scores in zip(batches, results, strict=True):
        for i, score in zip(batch, batch_scores, strict=True):
            scores[i] = score
    return scores


def _score_batch(model: Transformer, pairs: Sequence[IdPair]) -> list[TargetScore]:
    require_wanted()
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    batch = Batch.from_token_ids(sources, targets, source_end=model.config.source_end)
    with no_tape():
        log_p = log_softmax_values(model.logits(batch).value)
    rows = namespace(log_p).arange(len(log_p))
    label_log_p = to_host(log_p[rows, to_device(batch.labels, model.device)]).astype(np.float64)
    sums = np.add.reduceat(label_log_p, batch.target.starts)
    return [TargetScore(float(s), int(n)) for s, n in zip(sums, batch.target.lengths, strict=True)]
