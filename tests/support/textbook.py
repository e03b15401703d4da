"""The operations in plain NumPy, in float64, written for clearness alone."""

import math
from typing import Any

import numpy as np

from autograd import KeyRanges, ops
from autograd.random import StreamId


def log_softmax(x: Any) -> Any:
    """−log Σ_j exp(x_j − x_i): only differences matter, so large numbers do not either."""
    return -np.logaddexp.reduce(x[..., None, :] - x[..., :, None], axis=-1)


def softmax(x: Any) -> Any:
    return np.exp(log_softmax(x))


def gelu(x: Any) -> Any:
    return x * np.vectorize(lambda each: (1 + math.erf(each / math.sqrt(2))) / 2, otypes=[float])(x)


def layer_norm(x: Any, gain: Any, bias: Any, eps: float = 1e-6) -> Any:
    return gain * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) + bias


def smoothed_targets(
    shape: Any, targets: Any, smoothing: float, over: str = "V-1", impossible: int | None = None
) -> Any:
    """The distribution that cross-entropy compares with: class by class, token by token."""
    q = np.zeros(shape)
    for row, target in zip(q, targets, strict=True):
        sharing = [w for w in range(len(row)) if over == "V" or w not in (target, impossible)]
        row[target] = 1 - smoothing
        row[sharing] += smoothing / max(1, len(sharing))
    return q


def cross_entropy(logits: Any, targets: Any, smoothing: float = 0.0, **convention: Any) -> Any:
    return -(smoothed_targets(logits.shape, targets, smoothing, **convention) * log_softmax(logits)).sum()


def attention(q: Any, k: Any, v: Any, mask: KeyRanges, rate: float = 0.0, stream_id: StreamId | None = None) -> Any:
    """By a boolean mask over all pairs of tokens."""
    scores = np.einsum("thk,shk->hts", q, k) / np.sqrt(q.shape[-1])
    allowed = np.where(mask.matrix(), np.exp(scores), 0)
    weights = allowed / allowed.sum(-1, keepdims=True)
    return np.einsum("hts,shv->thv", weights * _dropout_of_weights(mask, q.shape[1], rate, stream_id), v)


def _dropout_of_weights(mask: KeyRanges, n_heads: int, rate: float, stream_id: StreamId | None) -> Any:
    """Drawn for (segment, head, position of query, position of key), read for (head, query, key)."""
    queries, keys = mask.queries, mask.keys
    ones = np.ones((len(queries), n_heads, queries.longest, keys.longest))
    kept = ops.dropout(ones, rate=rate, stream_id=stream_id).value if rate else ones
    of_pairs = kept[
        queries.segment_of_token[:, None], :, queries.position_in_segment[:, None], keys.position_in_segment
    ]
    return of_pairs.transpose(2, 0, 1)
