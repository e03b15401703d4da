"""Attention over spans of keys by tensor cores, without an array of queries times keys."""

from __future__ import annotations

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.driver import launch
from autograd.ops.attention import attention, check_shapes
from autograd.random import Site
from autograd.spans import BlockMask, Blocks, IntArray, KeySpans
from autograd.tensor import Backward

SOURCE = "attention.cu"
WIDTHS = (32, 64)
PASSES = ("forward", "backward_of_queries", "backward_of_keys")
ROWS, WARPS, THREADS = 16, 4, 128  # of a tile; of a block, a tile of one head each


class Tiles(NamedTuple):
    """Where the work is, on the device.

    Shapes: of_queries and of_keys (tiles, 4) int32: first row, end of its block, and the first and the end of the rows
    of the other side that it may meet; spans (T, 2) int32: first and last of every query.
    """

    of_queries: Array
    of_keys: Array
    spans: Array


_tiles: WeakKeyDictionary[KeySpans, Tiles] = WeakKeyDictionary()  # every layer asks for the same again


def kernel_name(of_pass: str, width: int) -> str:
    """Of one of ``PASSES``, for heads of this width."""
    return f"attention_{of_pass}_{width}"


def tiles_of(spans: KeySpans, like: Array) -> Tiles:
    """The tiles of these spans on the GPU, where ``like`` is."""
    if spans not in _tiles:
        of_queries = _tiles_of_blocks(spans.queries, spans.keys)
        if len(of_queries):
            starts = of_queries[:, 0]
            of_queries[:, 2] = np.minimum.reduceat(spans.first, starts)
            of_queries[:, 3] = np.maximum.reduceat(spans.last, starts)
        arrays = of_queries, _tiles_of_keys(spans), np.stack([spans.first, spans.last], 1)
        _tiles[spans] = Tiles(*(namespace(like).asarray(x.astype(np.int32)) for x in arrays))
    return _tiles[spans]


def _tiles_of_keys(spans: KeySpans) -> IntArray:
    """Of the queries of its sentence a tile meets those from the first to the last that see one of its keys."""
    tiles = _tiles_of_blocks(spans.keys, spans.queries)
    n_tiles, block = -(-spans.keys.lengths // ROWS), spans.queries.block_of_token
    first_tile, start = (np.cumsum(n_tiles) - n_tiles)[block], spans.keys.starts[block]
    first, last = (first_tile + (key - start) // ROWS for key in (spans.first, spans.last - 1))
    n_seen = last - first + 1  # tiles, by every query
    seen = np.repeat(first - np.cumsum(n_seen) + n_seen, n_seen) + np.arange(n_seen.sum())
    query = np.repeat(spans.queries.tokens, n_seen)
    tiles[:, 2:] = tiles[:, [3, 2]]  # so that a tile that nobody sees meets nothing
    np.minimum.at(tiles[:, 2], seen, query)
    np.maximum.at(tiles[:, 3], seen, query + 1)
    return tiles


def _tiles_of_blocks(rows: Blocks, others: Blocks) -> IntArray:
    n_tiles = -(-rows.lengths // ROWS)
    block = np.repeat(np.arange(len(rows)), n_tiles)
    place = ROWS * (np.arange(len(block)) - np.repeat(np.cumsum(n_tiles) - n_tiles, n_tiles))
    ends = rows.starts + rows.lengths, others.starts, others.starts + others.lengths
    return np.stack([rows.starts[block] + place, *(end[block] for end in ends)], axis=1)


def _room_for_gradients(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """Where dq, dk and dv go: those of keys and values are 0, because keys may belong to no block.

    Of the same shape they lie in one array, in the order in which parameters of self-attention do, last first: so the
    gradients of their weights are a stack of products.
    """
    xp = namespace(q)
    if q.shape != k.shape:
        return xp.empty_like(q), xp.zeros_like(k), xp.zeros_like(v)
    dv, dk, dq = room = xp.empty((3, *q.shape), q.dtype)
    room[:2] = 0
    return dq, dk, dv


def _is_supported(
    q: Array, k: Array, v: Array, *, spans: BlockMask, rate: float = 0.0, site: Site | None = None
) -> bool:
    stored = all(str(x.dtype) == "bfloat16" and x.flags.c_contiguous for x in (q, k, v))
    widths = q.shape[-1] == v.shape[-1] and q.shape[-1] in WIDTHS
    return stored and widths and isinstance(spans, KeySpans) and not (rate and site)


@attention.kernel("cuda", supports=_is_supported, takes_bfloat16=True)
def attention_in_tiles(
    q: Array, k: Array, v: Array, *, spans: KeySpans, **no_dropout: object
) -> tuple[Array, Backward]:
    """The reference's equations, 16 queries against 16 keys at a time, with softmax's maximum and sum kept up to date.

    Source: Dao et al. 2022 (FlashAttention), algorithms 1 and 4.
    Saves: q, k, v, y, and the logarithm of every row's denominator (T, H).
    """
    check_shapes(q, k, v, spans)
    xp, tiles, (n_queries, n_heads, width) = namespace(q), tiles_of(spans, q), q.shape
    y, log_normalisers = xp.empty_like(q), xp.empty((n_queries, n_heads), np.float32)

    def run(of_pass: str, of_rows: Array, *arrays: Array) -> None:
        n_tiles = len(of_rows)
        if n_tiles:
            launch(
                SOURCE, kernel_name(of_pass, width), -(-n_tiles * n_heads // WARPS), THREADS, *arrays,
                np.int32(n_tiles), np.int32(n_heads), np.float32(1 / math.sqrt(width)),
            )  # fmt: skip

    run("forward", tiles.of_queries, q, k, v, tiles.of_queries, tiles.spans, y, log_normalisers)

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        dy = xp.ascontiguousarray(dy, dtype=q.dtype)
        dq, dk, dv = _room_for_gradients(q, k, v)
        along = xp.empty_like(log_normalisers)
        run(
            "backward_of_queries", tiles.of_queries,
            q, k, v, y, dy, tiles.of_queries, tiles.spans, log_normalisers, dq, along,
        )  # fmt: skip
        run(
            "backward_of_keys", tiles.of_keys, q, k, v, dy, tiles.of_keys, tiles.spans, log_normalisers, along, dk, dv
        )  # fmt: skip
        return dq, dk, dv

    return y, backward
