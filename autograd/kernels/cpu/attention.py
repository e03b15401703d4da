"""Attention of packed tokens over key ranges and key indices, without padded copies."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.library import Function, is_for_c
from autograd.masks import KeyIndices, KeyRanges
from autograd.ops.attention import attention, check_shapes
from autograd.tensor import Backward

_forward, _backward = Function("attention_forward"), Function("attention_backward")
_forward_of_indices = Function("attention_of_indices")

BLOCK, FEW_LANES = 48, 16  # as in attention.c and common.h


def _is_supported(*qkv: Array, mask: Any, rate: float = 0.0, stream_id: Any = None, of: type) -> bool:
    return isinstance(mask, of) and not (rate and stream_id) and is_for_c(*qkv)


@attention.kernel("cpu", supports=partial(_is_supported, of=KeyRanges))
def attention_over_ranges(
    q: Array, k: Array, v: Array, *, mask: KeyRanges, **no_dropout: Any
) -> tuple[Array, Backward]:
    """Compute the reference's result from packed tokens, over each query's key range.

    Saves: q, k, v, and the attention weights, in rows that are padded to a multiple of FEW_LANES elements.
    """
    check_shapes(q, k, v, mask)
    (n_queries, n_heads, width), v_width, queries, keys = q.shape, v.shape[2], mask.queries, mask.keys
    segments = tuple(
        np.ascontiguousarray(x, np.int64)
        for x in (mask.first, mask.last, queries.starts, queries.lengths, keys.starts, keys.lengths)
    )
    sizes = len(keys), n_heads, width, v_width, 1 / math.sqrt(width)
    weights = np.empty(n_heads * int(np.dot(queries.lengths, _round_up(keys.lengths))), np.float32)
    y = np.empty((n_queries, n_heads, v_width), np.float32)
    longest = _round_up(keys.longest)
    _forward(q, k, v, *segments, np.empty(width * longest, np.float32), weights, y, *sizes)

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        allocate_for_keys = np.empty_like if keys.fill(len(k)) else np.zeros_like  # keys in no segment have gradient 0
        dq, dk, dv = np.empty_like(q), allocate_for_keys(k), allocate_for_keys(v)
        scratch = np.empty((v_width + BLOCK) * longest, np.float32)
        _backward(q, k, v, np.ascontiguousarray(dy, np.float32), weights, *segments, scratch, dq, dk, dv, *sizes)
        return dq, dk, dv

    return y, backward


@attention.kernel("cpu", supports=partial(_is_supported, of=KeyIndices))
def attention_over_indices(
    q: Array, k: Array, v: Array, *, mask: KeyIndices, **no_dropout: Any
) -> tuple[Array, Backward]:
    """Compute the reference's result; read only the keys to which a query attends.  The reference computes gradients.

    Saves: q, k and v.
    """
    check_shapes(q, k, v, mask)
    (n_queries, n_heads, width), v_width, n_keys = q.shape, v.shape[2], mask.indices.shape[1]
    y = np.empty((n_queries, n_heads, v_width), np.float32)
    scratch = np.empty(n_heads * _round_up(n_keys), np.float32)
    indices, scale = np.ascontiguousarray(mask.indices, np.int64), 1 / math.sqrt(width)
    _forward_of_indices(q, k, v, indices, scratch, y, n_queries, n_keys, n_heads, width, v_width, scale)

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dq, dk, dv = attention.reference(q, k, v, mask=mask)[1](dy)
        return dq, dk, dv

    return y, backward


def _round_up(n: Any) -> Any:
    return -(-n // FEW_LANES) * FEW_LANES
