"""Attention that divides the result, instead of the weights, by the softmax denominators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.head_rows import HeadRows
from autograd.kernels.cpu.sums import weighted_sums
from autograd.masks import AttentionMask
from autograd.ops.attention import attention, check_shapes
from autograd.random import StreamId
from autograd.tensor import Backward

FEW = 12  # rows; a product with fewer uses the transposed view, others a transposed copy
SAFE_SCORE = 40.0  # exp(±40), and sums of thousands of them, neither overflow nor lose digits in float32


def _plain(*qkv: Array, mask: AttentionMask, rate: float = 0.0, stream_id: StreamId | None = None) -> bool:
    return not (rate and stream_id) and mask.keys.longest > 0


@attention.kernel("cpu", supports=_plain)
def attention_unnormalised(
    q: Array, k: Array, v: Array, *, mask: AttentionMask, **no_dropout: Any
) -> tuple[Array, Backward]:
    """Return y_i = Σ_j e_ij v_j / t_i with e_ij = exp(s_ij) and t_i = Σ_j e_ij; only large scores are shifted.

    With dy' = dy / t:  de_ij/dy' = ⟨dy'_i, v_j⟩ − ⟨dy'_i, y_i⟩,  ds = e ⊙ de,  dv = eᵀ dy',  dq = ds k,  dk = dsᵀ q.
    Source: Dao et al. 2022 (FlashAttention), appendix B.2: ⟨dy_i, y_i⟩ is the sum over keys in softmax's gradient.
    The score of a query with one key only, such as the first of every target sentence, counts as 0: its weight is
    exactly 1, its gradient exactly 0.  Otherwise Adam, which divides a gradient by its own size, would amplify
    rounding errors to full steps.
    Saves: q, k and v padded to (B, H, longest, ·), e, 1/t, and y.
    """
    check_shapes(q, k, v, mask)
    scale, n_heads = 1 / math.sqrt(q.shape[-1]), q.shape[1]
    queries, keys = HeadRows(mask.queries, n_heads, len(q)), HeadRows(mask.keys, n_heads, len(k))
    q_rows, k_rows, v_rows = queries.of(q), keys.of(k), keys.of(v)
    e = q_rows @ _transposed(k_rows, q_rows.shape[2])
    e *= scale
    _clear(e, mask)
    _exponentiate(e, mask.bias(np, q.dtype))
    inverse_total = 1 / queries.packed(weighted_sums(e, np.ones(e.shape[3], e.dtype))[..., None])
    y = queries.packed(e @ v_rows)
    y *= inverse_total

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dy = dy * inverse_total
        dy_rows = queries.of(dy)
        ds = dy_rows @ _transposed(v_rows, q_rows.shape[2])
        ds -= queries.of(np.vecdot(dy, y)[..., None])
        ds *= e
        _clear(ds, mask)
        dv = e.swapaxes(2, 3) @ dy_rows
        ds *= scale
        dk = ds.swapaxes(2, 3) @ q_rows
        return queries.packed(ds @ k_rows), keys.packed(dk), keys.packed(dv)

    return y, backward


def _clear(scores: Array, mask: AttentionMask) -> None:
    """Set the scores of queries with one key only to 0, in place."""
    segments, positions = mask.lone
    if len(segments):
        scores[segments, :, positions] = 0


def _transposed(rows: Array, n_factors: int) -> Array:
    """Transpose (B, H, L, K) → (B, H, K, L), as the right factor of matrices of ``n_factors`` rows.

    OpenBLAS multiplies small matrices by a transposed one at half its speed, so with FEW rows or more a copy pays.
    """
    transposed = rows.swapaxes(2, 3)
    return transposed if n_factors < FEW else np.ascontiguousarray(np.ascontiguousarray(rows).swapaxes(2, 3))


def _exponentiate(scores: Array, bias: Array | None) -> None:
    """Compute exp(scores + bias) in place; shift rows by their maximum where exp could overflow or vanish.

    Each row's result depends only on that row.  If no score of the array is large, the maxima per row are skipped.
    """
    all_safe = scores.max(initial=0) <= SAFE_SCORE and scores.min(initial=0) >= -SAFE_SCORE
    if bias is not None:
        scores += bias
    if not all_safe:
        greatest = scores.max(-1, keepdims=True)
        scores -= np.where(np.abs(greatest) > SAFE_SCORE, greatest, 0)
    np.exp(scores, out=scores)
