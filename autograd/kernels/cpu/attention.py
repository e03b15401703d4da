"""Attention whose weights are never normalised: their sums are divided out of the result."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autograd.array import Array
from autograd.ops.attention import attention, check_shapes, heads_first, heads_last
from autograd.random import Site
from autograd.spans import BlockMask, pack, place_side_by_side
from autograd.tensor import Backward

FEW = 12
SAFE_SCORE = 40.0  # exp of ±40 neither overflows nor loses digits in float32, and neither do sums of thousands of them


def _plain(*qkv: Array, spans: BlockMask, rate: float = 0.0, site: Site | None = None) -> bool:
    """A lone key is left to the reference: its score has gradient 0 exactly, where this kernel has rounding.

    Adam divides a gradient by its own size, and would follow that rounding at the full rate.
    """
    return not (rate and site) and spans.keys.longest > 1


@attention.kernel("cpu", supports=_plain)
def attention_unnormalised(
    q: Array, k: Array, v: Array, *, spans: BlockMask, **no_dropout: Any
) -> tuple[Array, Backward]:
    """y_i = Σ_j e_ij v_j / t_i with e_ij = exp(s_ij) and t_i = Σ_j e_ij; scores are shifted only where they are large.

    With dy' = dy / t:  de_ij/dy' = ⟨dy'_i, v_j⟩ − ⟨dy'_i, y_i⟩,  ds = e ⊙ de,  dv = eᵀ dy',  dq = ds k,  dk = dsᵀ q.
    Source: that ⟨dy_i, y_i⟩ is the sum over keys in softmax's gradient, Dao et al. 2022 (FlashAttention), appendix B.2.
    Saves: q, k and v with their sentences side by side, e, 1/t, and y.
    """
    check_shapes(q, k, v, spans)
    scale = 1 / math.sqrt(q.shape[-1])
    q_rows, k_rows, v_rows = (
        heads_first(place_side_by_side(x, blocks))
        for x, blocks in ((q, spans.queries), (k, spans.keys), (v, spans.keys))
    )
    e = q_rows @ _transposed(k_rows, q_rows.shape[2])
    e *= scale
    _exponentiate(e, spans.bias(np, q.dtype))
    inverse_total = 1 / (e @ np.ones(e.shape[3], e.dtype))[..., None]
    y = pack(heads_last((e @ v_rows) * inverse_total), spans.queries, len(q))

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dy_rows = heads_first(place_side_by_side(dy, spans.queries)) * inverse_total
        dy_y = heads_first(place_side_by_side(np.vecdot(dy, y)[..., None], spans.queries))
        ds = dy_rows @ _transposed(v_rows, q_rows.shape[2])
        ds -= dy_y * inverse_total
        ds *= e
        dv = e.swapaxes(2, 3) @ dy_rows
        ds *= scale
        dk = ds.swapaxes(2, 3) @ q_rows
        return (
            pack(heads_last(ds @ k_rows), spans.queries, len(q)),
            pack(heads_last(dk), spans.keys, len(k)),
            pack(heads_last(dv), spans.keys, len(v)),
        )

    return y, backward


def _transposed(rows: Array, n_factors: int) -> Array:
    """(B, H, L, K) → (B, H, K, L), to be multiplied by matrices of ``n_factors`` rows.

    OpenBLAS multiplies small matrices by a transposed one at half its speed, so that from some rows on a copy pays.
    """
    transposed = rows.swapaxes(2, 3)
    return transposed if n_factors < FEW else np.ascontiguousarray(np.ascontiguousarray(rows).swapaxes(2, 3))


def _exponentiate(scores: Array, bias: Array | None) -> None:
    """exp of scores and bias in place, less the greatest score of a row where exp could overflow or vanish without.

    A row's numbers depend on nothing but the row: where no score at all is large, none need be looked at one by one.
    """
    all_safe = scores.max(initial=0) <= SAFE_SCORE and scores.min(initial=0) >= -SAFE_SCORE
    if bias is not None:
        scores += bias
    if not all_safe:
        greatest = scores.max(-1, keepdims=True)
        scores -= np.where(np.abs(greatest) > SAFE_SCORE, greatest, 0)
    np.exp(scores, out=scores)
