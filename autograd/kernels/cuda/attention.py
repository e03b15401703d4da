"""Attention without an array of the size queries × keys: over key ranges by tensor cores, and to cached keys."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.driver import STORAGE, launch
from autograd.kernels.cuda.dropout import numbers_of
from autograd.masks import AttentionMask, CachedKeys, KeyRanges
from autograd.ops.attention import attention, check_shapes
from autograd.ops.dropout import threshold_and_scale
from autograd.precision import as_gradient_of, upcast
from autograd.random import StreamId
from autograd.tensor import Backward, Gradient
from autograd.tiles import Tiles, tiles_of

SOURCE = "attention.cu"
WIDTHS = (16, 32, 64, 128)
PASSES = ("forward", "backward_of_queries", "backward_of_keys", "backward")
THREADS = 128  # of a block: a warp for each slot of ``autograd.tiles``
WIDEST_IN_ONE_PASS = 64  # wider heads do not fit into shared memory
CACHED_SOURCE = "cached_attention.cu"
WIDEST_CACHED = THREADS  # at the end a thread adds the warps' sums for one number of a head


def kernel_name(pass_name: str, width: int, drops: bool) -> str:
    """Return the name of the kernel of one of ``PASSES`` for heads of this width, with or without dropout."""
    return f"attention_{pass_name}{'_dropped' if drops else ''}_{width}"


def cached_kernel_name(dtype: object) -> str:
    """Return the name of the kernel of attention to cached keys of this dtype."""
    return f"cached_attention_{STORAGE[str(dtype)]}"


def _empty_gradients(q: Array, k: Array, v: Array, mask: KeyRanges) -> tuple[Array, Array, Array]:
    """Allocate dq, dk and dv; dk and dv are set to 0 if some keys may belong to no segment.

    If q and k have one shape, dq, dk and dv are slices of one array, in reverse order, like the parameters of
    self-attention.  So the gradients of the weights can be computed as one stack of products.
    """
    xp = namespace(q)
    if q.shape != k.shape:
        return xp.empty_like(q), xp.zeros_like(k), xp.zeros_like(v)
    dv, dk, dq = together = xp.empty((3, *q.shape), q.dtype)
    if mask.keys is not mask.queries:
        together[:2] = 0
    return dq, dk, dv


def _is_supported(
    q: Array, k: Array, v: Array, *, mask: AttentionMask, rate: float = 0.0, stream_id: StreamId | None = None
) -> bool:
    del rate, stream_id
    stored = all(str(x.dtype) == "bfloat16" and x.flags.c_contiguous for x in (q, k, v))
    widths = q.shape[-1] == v.shape[-1] and q.shape[-1] in WIDTHS
    return stored and widths and isinstance(mask, KeyRanges)


def _dropout_arguments(tiles: Tiles, rate: float, stream_id: StreamId | None) -> tuple[Array | np.generic | None, ...]:
    """Return the arguments for dropout, the last ones of every kernel; kernels without dropout ignore them."""
    threshold, scale = threshold_and_scale(rate)
    return (
        *numbers_of(stream_id or StreamId(0, 0)),
        tiles.weight_rows,
        tiles.weights_of_head,
        np.int32(threshold),
        np.float32(scale),
    )


@attention.kernel("cuda", supports=_is_supported, takes_16_bits=True)
def attention_in_tiles(
    q: Array, k: Array, v: Array, *, mask: KeyRanges, rate: float = 0.0, stream_id: StreamId | None = None
) -> tuple[Array, Backward]:
    """Compute the reference's result, 64 keys at a time, with a running maximum and sum for softmax.

    Weights are dropped where the reference drops them; the backward pass draws the mask again.
    Source: Dao et al. 2022 (FlashAttention), algorithms 1 and 4.  The backward pass is one kernel for short segments of
        narrow heads, two kernels for others.
    Saves: q, k, v, y, and the logarithm to base 2 of the softmax denominator of every query and head (T, H).
    """
    check_shapes(q, k, v, mask)
    xp, tiles, (n_queries, n_heads, width) = namespace(q), tiles_of(mask, q), q.shape
    drops = bool(rate and stream_id)
    dropout = _dropout_arguments(tiles, rate if drops else 0.0, stream_id)
    y, log_normalisers = xp.empty_like(q), xp.empty((n_queries, n_heads), np.float32)

    def run(pass_name: str, blocks: Array, *arrays: Array) -> None:
        if len(blocks):
            launch(
                SOURCE,
                kernel_name(pass_name, width, drops),
                len(blocks) * n_heads,
                THREADS,
                *arrays,
                np.int32(n_heads),
                np.float32(1 / math.sqrt(width)),
                *dropout,
            )

    for blocks in (tiles.short, tiles.long_queries):
        run("forward", blocks, q, k, v, blocks, tiles.ranges, y, log_normalisers)

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dy = xp.ascontiguousarray(dy, dtype=q.dtype)
        dq, dk, dv = _empty_gradients(q, k, v, mask)

        def in_two_passes(queries: Array, keys: Array) -> None:
            along = xp.empty_like(log_normalisers)
            run("backward_of_queries", queries, q, k, v, y, dy, queries, tiles.ranges, log_normalisers, dq, along)
            run("backward_of_keys", keys, q, k, v, dy, keys, tiles.ranges, log_normalisers, along, dk, dv)

        if width <= WIDEST_IN_ONE_PASS:
            run("backward", tiles.short, q, k, v, dy, tiles.short, tiles.ranges, log_normalisers, dq, dk, dv)
        else:
            in_two_passes(tiles.short, tiles.short)
        if len(tiles.long_keys):
            in_two_passes(tiles.long_queries, tiles.long_keys)
        return dq, dk, dv

    return y, backward


def _is_cached(
    q: Array, k: Array, v: Array, *, mask: AttentionMask, rate: float = 0.0, stream_id: StreamId | None = None
) -> bool:
    return (
        isinstance(mask, CachedKeys)
        and str(q.dtype) in STORAGE
        and all(x.dtype == q.dtype and x.flags.c_contiguous for x in (q, k, v))
        and max(q.shape[-1], v.shape[-1]) <= WIDEST_CACHED
        and mask.keys.stride_over(k.shape[0]) is not None
        and (mask.slots is None or mask.slots.flags.c_contiguous)
        and not (rate and stream_id)
    )


@attention.kernel("cuda", supports=_is_cached, takes_16_bits=True)
def attention_to_cached_keys(
    q: Array, k: Array, v: Array, *, mask: CachedKeys, rate: float = 0.0, stream_id: StreamId | None = None
) -> tuple[Array, Backward]:
    """Compute the reference's result with a running maximum and sum for softmax; read only the keys of the mask.

    The backward pass, which a search does not need, is the reference's.
    Saves: q, k and v.
    """
    check_shapes(q, k, v, mask)
    del rate, stream_id
    (n_queries, n_heads, width), slots = q.shape, mask.slots
    y = namespace(q).empty((n_queries, n_heads, v.shape[-1]), q.dtype)
    if y.size:
        launch(
            CACHED_SOURCE,
            cached_kernel_name(q.dtype),
            n_queries * n_heads,
            THREADS,
            *(q, k, v, mask.n_steps, slots, y),
            *map(np.int32, (n_heads, width, v.shape[-1], mask.queries.longest)),
            *map(np.int32, (len(k) // len(mask.keys), mask.n_slots, 0 if slots is None else slots.shape[2])),
            np.int32(len(mask.n_steps) > 1),
            np.int32(-1 if mask.neighbourhood is None else mask.neighbourhood),
            np.float32(1 / math.sqrt(width)),
        )

    def backward(dy: Array) -> Sequence[Gradient | None]:
        gradients = attention.reference(*map(upcast, (q, k, v)), mask=mask)[1](upcast(dy))
        return [as_gradient_of(x, dx) for x, dx in zip((q, k, v), gradients, strict=True)]

    return y, backward
