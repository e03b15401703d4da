"""Scaled dot-product attention of packed tokens."""

from __future__ import annotations

import math

from autograd.array import Array, namespace
from autograd.blas import product
from autograd.masks import AttentionMask, pad, unpad
from autograd.op import ShapeError, op
from autograd.ops.dropout import dropout_mask
from autograd.ops.softmax import softmax_gradient, softmax_values
from autograd.random import StreamId
from autograd.tensor import Backward


@op
def attention(
    q: Array, k: Array, v: Array, *, mask: AttentionMask, rate: float = 0.0, stream_id: StreamId | None = None
) -> tuple[Array, Backward]:
    """Return Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V for every head; ``mask`` selects the keys of each query.

    Source: Vaswani et al. 2017, equation 1.  Dropout of the attention weights is that of tensor2tensor; the paper has
        none.
    Shapes: q (T, H, K), k (S, H, K), v (S, H, V) for T queries, S keys and H heads; mask of T queries over S keys.
        Returns (T, H, V).
    Saves: q, k and v padded to (B, H, longest, ·) for the mask's B segments, the attention weights, and the mask.
    Raises: ShapeError if the arguments do not fit together.
    """
    check_shapes(q, k, v, mask)
    xp, scale, n_queries, n_keys = namespace(q), 1 / math.sqrt(q.shape[-1]), len(q), len(k)
    q_rows = _heads_first(pad(q, mask.queries))
    k_rows = _heads_first(pad(k, mask.keys))
    v_rows = _heads_first(pad(v, mask.keys))
    scores = product(q_rows, k_rows.swapaxes(2, 3))
    scores *= scale
    bias = mask.bias(xp, q.dtype)
    if bias is not None:
        scores += bias
    weights = softmax_values(scores)
    kept = weights * dropout_mask(weights, rate, stream_id) if rate and stream_id else weights

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dy_rows = _heads_first(pad(dy, mask.queries))
        factors = dropout_mask(weights, rate, stream_id) if rate and stream_id else 1
        dweights = product(dy_rows, v_rows.swapaxes(2, 3))
        dv_rows = product((weights * factors).swapaxes(2, 3), dy_rows)
        dscores = softmax_gradient(dweights * factors, weights)
        dscores *= scale
        dq = unpad(_heads_last(product(dscores, k_rows)), mask.queries, n_queries)
        dk = unpad(_heads_last(product(dscores.swapaxes(2, 3), q_rows)), mask.keys, n_keys)
        return dq, dk, unpad(_heads_last(dv_rows), mask.keys, n_keys)

    return unpad(_heads_last(product(kept, v_rows)), mask.queries, n_queries), backward


def _heads_first(x: Array) -> Array:
    """Transpose (B, L, H, ·) → (B, H, L, ·)."""
    return x.transpose(0, 2, 1, 3)


def _heads_last(x: Array) -> Array:
    """Transpose (B, H, L, ·) → (B, L, H, ·)."""
    return x.transpose(0, 2, 1, 3)


def check_shapes(q: Array, k: Array, v: Array, mask: AttentionMask) -> None:
    """Check the arguments of ``attention``.  Raises: ShapeError if they do not fit together."""
    if not q.ndim == k.ndim == v.ndim == 3 or not q.shape[1] == k.shape[1] == v.shape[1] or q.shape[2] != k.shape[2]:
        raise ShapeError(
            f"attention: expected q (T, H, K), k (S, H, K), v (S, H, V); got q {q.shape}, k {k.shape}, v {v.shape}"
        )
    if len(k) != len(v):
        raise ShapeError(f"attention: k and v must have the same number of tokens; got k {k.shape}, v {v.shape}")
    if len(q) != mask.queries.n_tokens:
        raise ShapeError(f"attention: the mask is for {mask.queries.n_tokens} queries; got q {q.shape}")
    if len(q) < mask.queries.end:
        raise ShapeError(f"attention: the mask reaches to query {mask.queries.end}; got q {q.shape}")
    if len(k) < mask.keys.end:
        raise ShapeError(f"attention: the mask reaches to key {mask.keys.end}; got k {k.shape}")
