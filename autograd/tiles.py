"""Tiles of 16 rows for attention kernels, each with the range of rows of the other side that it needs."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from autograd.array import Array, Device, IntArray, device_of, namespace
from autograd.spans import Blocks, KeySpans

ROWS = 16  # of a tile


class Tiles(NamedTuple):
    """Tiles of queries for the forward pass and dq, and tiles of keys for dk and dv.

    Shapes: of_queries and of_keys (tiles, 4) int32: first row, end of its block, first and end of the needed rows of
    the other side; spans (T, 2) int32: ``first`` and ``last`` of every query.  A tile of zeros is empty.
    """

    of_queries: Array
    of_keys: Array
    spans: Array


# Cached: every layer uses the same tiles.
_tiles: WeakKeyDictionary[KeySpans, dict[Device, Tiles]] = WeakKeyDictionary()


def tiles_of(spans: KeySpans, like: Array) -> Tiles:
    """Return the tiles of these spans on the device of ``like``, cached."""
    on_devices, device = _tiles.setdefault(spans, {}), device_of(like)
    if device not in on_devices:
        on_devices[device] = Tiles(*map(namespace(like).asarray, tiles_on_host(spans)))
    return on_devices[device]


def keep_tiles(spans: KeySpans, tiles: Tiles) -> None:
    """Set the cached tiles of these spans, so that the caller can change the arrays in place."""
    _tiles[spans] = {device_of(tiles.spans): tiles}


def count_tiles(lengths: IntArray) -> int:
    """Return the number of tiles of blocks of these lengths."""
    return int((-(-lengths // ROWS)).sum())


def tiles_on_host(spans: KeySpans) -> Tiles:
    """Return the tiles of these spans, as NumPy arrays."""
    of_queries = _tiles_of_blocks(spans.queries, spans.keys)
    if len(of_queries):
        starts = of_queries[:, 0]
        of_queries[:, 2] = np.minimum.reduceat(spans.first, starts)
        of_queries[:, 3] = np.maximum.reduceat(spans.last, starts)
    arrays = of_queries, _tiles_of_keys(spans), np.stack([spans.first, spans.last], 1)
    return Tiles(*(x.astype(np.int32) for x in arrays))


def _tiles_of_keys(spans: KeySpans) -> IntArray:
    """Return the tiles of keys; each needs the queries from the first to the last that attend to one of its keys."""
    tiles = _tiles_of_blocks(spans.keys, spans.queries)
    n_tiles, block = -(-spans.keys.lengths // ROWS), spans.queries.block_of_token
    first_tile, start = (np.cumsum(n_tiles) - n_tiles)[block], spans.keys.starts[block]
    first, last = (first_tile + (key - start) // ROWS for key in (spans.first, spans.last - 1))
    n_seen = last - first + 1  # number of tiles, for every query
    seen = np.repeat(first - np.cumsum(n_seen) + n_seen, n_seen) + np.arange(n_seen.sum())
    query = np.repeat(spans.queries.tokens, n_seen)
    tiles[:, 2:] = tiles[:, [3, 2]]  # so that a tile without queries has an empty range
    np.minimum.at(tiles[:, 2], seen, query)
    np.maximum.at(tiles[:, 3], seen, query + 1)
    return tiles


def _tiles_of_blocks(rows: Blocks, others: Blocks) -> IntArray:
    n_tiles = -(-rows.lengths // ROWS)
    block = np.repeat(np.arange(len(rows)), n_tiles)
    place = ROWS * (np.arange(len(block)) - np.repeat(np.cumsum(n_tiles) - n_tiles, n_tiles))
    ends = rows.starts + rows.lengths, others.starts, others.starts + others.lengths
    return np.stack([rows.starts[block] + place, *(end[block] for end in ends)], axis=1)
