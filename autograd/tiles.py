"""Where the work of attention over spans is: tiles of rows, and the rows of the other side that each may meet."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from autograd.array import Array, Device, device_of, namespace
from autograd.spans import Blocks, IntArray, KeySpans

ROWS = 16  # of a tile


class Tiles(NamedTuple):
    """Where the work is.

    Shapes: of_queries and of_keys (tiles, 4) int32: first row, end of its block, and the first and the end of the rows
    of the other side that it may meet; spans (T, 2) int32: first and last of every query.  A tile of zeros is empty.
    """

    of_queries: Array
    of_keys: Array
    spans: Array


_tiles: WeakKeyDictionary[KeySpans, dict[Device, Tiles]] = WeakKeyDictionary()  # every layer asks for the same again


def tiles_of(spans: KeySpans, like: Array) -> Tiles:
    """The tiles of these spans on the device of ``like``."""
    on_devices, device = _tiles.setdefault(spans, {}), device_of(like)
    if device not in on_devices:
        on_devices[device] = Tiles(*map(namespace(like).asarray, tiles_on_host(spans)))
    return on_devices[device]


def keep_tiles(spans: KeySpans, tiles: Tiles) -> None:
    """Let ``tiles``, on a device, be those of these spans: so they lie where somebody else can change them."""
    _tiles[spans] = {device_of(tiles.spans): tiles}


def count_tiles(lengths: IntArray) -> int:
    """Of blocks of these lengths."""
    return int((-(-lengths // ROWS)).sum())


def tiles_on_host(spans: KeySpans) -> Tiles:
    """The tiles of these spans, as NumPy arrays."""
    of_queries = _tiles_of_blocks(spans.queries, spans.keys)
    if len(of_queries):
        starts = of_queries[:, 0]
        of_queries[:, 2] = np.minimum.reduceat(spans.first, starts)
        of_queries[:, 3] = np.maximum.reduceat(spans.last, starts)
    arrays = of_queries, _tiles_of_keys(spans), np.stack([spans.first, spans.last], 1)
    return Tiles(*(x.astype(np.int32) for x in arrays))


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
