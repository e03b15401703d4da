"""Tiles of 16 rows for attention kernels.

Each tile of queries has the range of keys that it needs, and each tile of keys the range of queries.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from autograd.array import Array, Device, IntArray, device_of, namespace
from autograd.masks import KeyRanges, Segments

ROWS = 16  # of a tile


class Tiles(NamedTuple):
    """Tiles of queries for the forward pass and dq, and tiles of keys for dk and dv.

    Shapes: of_queries and of_keys (tiles, 4) int32; ranges (T, 2) int32: ``first`` and ``last`` of every query.  The
    four numbers of a tile are its first row, the end of its segment, and the first and the end of the keys (for a tile
    of queries) or queries (for a tile of keys) that it needs.  A tile of zeros is empty.

    Dropout numbers the weights as the reference's array of B segments, H heads, Q queries and K keys, padded to the
    longest segments.  weight_rows (T, 2) int32 has for every query its segment b, and o = K · position − first key of
    the segment; weights_of_head (1,) int32 is Q · K.  So the weight of key j has the index (b · H + h) · Q · K + o + j.
    """

    of_queries: Array
    of_keys: Array
    ranges: Array
    weight_rows: Array
    weights_of_head: Array


# Cached: every layer uses the same tiles.
_tiles: WeakKeyDictionary[KeyRanges, dict[Device, Tiles]] = WeakKeyDictionary()


def tiles_of(mask: KeyRanges, like: Array) -> Tiles:
    """Return the tiles of this mask on the device of ``like``, cached."""
    on_devices, device = _tiles.setdefault(mask, {}), device_of(like)
    if device not in on_devices:
        on_devices[device] = Tiles(*map(namespace(like).asarray, tiles_on_host(mask)))
    return on_devices[device]


def keep_tiles(mask: KeyRanges, tiles: Tiles) -> None:
    """Set the cached tiles of this mask, so that the caller can change the arrays in place."""
    _tiles[mask] = {device_of(tiles.ranges): tiles}


def count_tiles(lengths: IntArray) -> int:
    """Return the number of tiles of segments of these lengths."""
    return int((-(-lengths // ROWS)).sum())


def tiles_on_host(mask: KeyRanges, longest: tuple[int, int] | None = None) -> Tiles:
    """Return the tiles of this mask, as NumPy arrays.

    ``longest`` are the lengths Q and K by which weights are numbered; by default those of the mask.
    """
    of_queries = _tiles_of_segments(mask.queries, mask.keys)
    if len(of_queries):
        starts = of_queries[:, 0]
        of_queries[:, 2] = np.minimum.reduceat(mask.first, starts)
        of_queries[:, 3] = np.maximum.reduceat(mask.last, starts)
    n_queries, n_keys = longest or (mask.queries.longest, mask.keys.longest)
    segment, position = mask.queries.segment_of_token, mask.queries.position_in_segment
    weight_rows = np.stack([segment, n_keys * position - mask.keys.starts[segment]], 1)
    ranges, weights_of_head = np.stack([mask.first, mask.last], 1), np.array([n_queries * n_keys])
    arrays = of_queries, _tiles_of_keys(mask), ranges, weight_rows, weights_of_head
    return Tiles(*(x.astype(np.int32) for x in arrays))


def _tiles_of_keys(mask: KeyRanges) -> IntArray:
    """Return the tiles of keys; each needs the queries from the first to the last that attend to one of its keys."""
    tiles = _tiles_of_segments(mask.keys, mask.queries)
    n_tiles, segment = -(-mask.keys.lengths // ROWS), mask.queries.segment_of_token
    first_tile, start = (np.cumsum(n_tiles) - n_tiles)[segment], mask.keys.starts[segment]
    first, last = (first_tile + (key - start) // ROWS for key in (mask.first, mask.last - 1))
    n_seen = last - first + 1  # number of tiles, for every query
    seen = np.repeat(first - np.cumsum(n_seen) + n_seen, n_seen) + np.arange(n_seen.sum())
    query = np.repeat(mask.queries.tokens, n_seen)
    tiles[:, 2:] = tiles[:, [3, 2]]  # so that a tile without queries has an empty range
    np.minimum.at(tiles[:, 2], seen, query)
    np.maximum.at(tiles[:, 3], seen, query + 1)
    return tiles


def _tiles_of_segments(rows: Segments, others: Segments) -> IntArray:
    n_tiles = -(-rows.lengths // ROWS)
    segment = np.repeat(np.arange(len(rows)), n_tiles)
    position = ROWS * (np.arange(len(segment)) - np.repeat(np.cumsum(n_tiles) - n_tiles, n_tiles))
    ends = rows.starts + rows.lengths, others.starts, others.starts + others.lengths
    return np.stack([rows.starts[segment] + position, *(end[segment] for end in ends)], axis=1)
