"""Work lists of attention kernels: blocks of four slots of 16 queries and four slots of 16 keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from autograd.array import Array, Device, IntArray, device_of, namespace
from autograd.masks import KeyRanges, Segments

ROWS, SLOTS = 16, 4  # rows of a slot; slots of queries, and of keys, in a block
BLOCK_ROWS = ROWS * SLOTS  # a short segment has at most this many queries, and at most this many keys


class Tiles(NamedTuple):
    """Lists of blocks for attention kernels, and numbers of every query.

    A block has four slots of queries and four of keys.  A slot has the 16 packed rows that begin at row ``first``,
    without those from row ``end`` on.  A list of blocks is (n, 16) int32: the four ``first`` of the queries, their four
    ``end``, then the same of the keys.  An empty slot is (0, 0), and a block of zeros is empty.

    - ``short``: blocks of one or several whole segments, so that no query sees a key of another block.
    - ``long_queries``: blocks of 64 queries of a longer segment.  A kernel reads the keys of the four slots, then moves
      the slots by 64 rows, and so on, until all slots are behind their ends.
    - ``long_keys``: blocks of 64 keys of a longer segment; here the slots of queries move.

    - ``ranges`` (T, 2) int32: ``first`` and ``last`` of every query.
    - ``weight_rows`` (T, 2) int32: b and o of every query: its segment, and K · position − first key of the segment.
    - ``weights_of_head`` (1,) int32: Q · K.

    The reference has an array of weights of B segments, H heads, Q queries and K keys, padded to the longest segments.
    Dropout draws by the index in this array, which is (b · H + h) · Q · K + o + j for key j.
    """

    short: Array
    long_queries: Array
    long_keys: Array
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
    """Cache these tiles for the mask; the caller may then change the arrays in place."""
    _tiles[mask] = {device_of(tiles.ranges): tiles}


def count_blocks(queries: IntArray, keys: IntArray) -> tuple[int, int]:
    """Return the number of short blocks for these lengths, and the length of the longer list of long blocks."""
    is_long = np.maximum(queries, keys) > BLOCK_ROWS
    blocks, *_ = _assign_to_blocks(_slots_of(queries[~is_long]), _slots_of(keys[~is_long]))
    long = (int((-(-lengths[is_long] // BLOCK_ROWS)).sum()) for lengths in (queries, keys))
    return int(blocks.max(initial=-1)) + 1, max(long)


def tiles_on_host(mask: KeyRanges, longest: tuple[int, int] | None = None) -> Tiles:
    """Return the tiles of this mask, as NumPy arrays.

    ``longest`` are the lengths Q and K in dropout's indices of weights; by default those of the mask.
    """
    queries, keys = mask.queries, mask.keys
    is_long = np.maximum(queries.lengths, keys.lengths) > BLOCK_ROWS
    n_queries, n_keys = longest or (queries.longest, keys.longest)
    segment, position = queries.segment_of_token, queries.position_in_segment
    arrays = (
        _short_blocks(queries, keys, np.flatnonzero(~is_long)),
        _long_queries(mask, np.flatnonzero(is_long)),
        _long_keys(mask, np.flatnonzero(is_long)),
        np.stack([mask.first, mask.last], 1),
        np.stack([segment, n_keys * position - keys.starts[segment]], 1),
        np.array([n_queries * n_keys]),
    )
    return Tiles(*(x.astype(np.int32) for x in arrays))


def _slots_of(lengths: IntArray) -> IntArray:
    return -(-lengths // ROWS)


def _assign_to_blocks(query_counts: IntArray, key_counts: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Assign segments to blocks in order; return each segment's block, first slot of queries and first slot of keys."""
    block = query_slot = key_slot = -1
    placed = np.empty((3, len(query_counts)), np.int64)
    for i, (n_queries, n_keys) in enumerate(zip(query_counts.tolist(), key_counts.tolist(), strict=True)):
        if block < 0 or query_slot + n_queries > SLOTS or key_slot + n_keys > SLOTS:
            block, query_slot, key_slot = block + 1, 0, 0
        placed[:, i] = block, query_slot, key_slot
        query_slot, key_slot = query_slot + n_queries, key_slot + n_keys
    return placed[0], placed[1], placed[2]


def _short_blocks(queries: Segments, keys: Segments, segments: IntArray) -> IntArray:
    sides = queries, keys
    block, *first_slots = _assign_to_blocks(*(_slots_of(side.lengths[segments]) for side in sides))
    blocks = np.zeros((int(block.max(initial=-1)) + 1, 2, 2, SLOTS), np.int64)  # side, first or end, slot
    for i, (side, first_slot) in enumerate(zip(sides, first_slots, strict=True)):
        n_slots = _slots_of(side.lengths[segments])
        segment_of_slot = np.repeat(np.arange(len(segments)), n_slots)
        number = np.arange(len(segment_of_slot)) - np.repeat(np.cumsum(n_slots) - n_slots, n_slots)
        start, length = (x[segments][segment_of_slot] for x in (side.starts, side.lengths))
        blocks[block[segment_of_slot], i, 0, first_slot[segment_of_slot] + number] = start + ROWS * number
        blocks[block[segment_of_slot], i, 1, first_slot[segment_of_slot] + number] = start + length
    return blocks.reshape(-1, 4 * SLOTS)


def _slots(first: int, end: int) -> list[int]:
    """Return the first rows of four slots, then ``end`` for each slot; both are 0 for slots behind ``end``."""
    rows = range(first, first + BLOCK_ROWS, ROWS)
    return [row if row < end else 0 for row in rows] + [end if row < end else 0 for row in rows]


def _moving_slots(first: int, end: int) -> list[int]:
    """Return first rows, then ends, of four slots that a kernel moves; slots behind ``end`` keep their numbers."""
    return [*range(first, first + BLOCK_ROWS, ROWS), *[end] * SLOTS] if first < end else [0] * 2 * SLOTS


def _as_blocks(rows: Iterable[list[int]]) -> IntArray:
    return np.array(list(rows), np.int64).reshape(-1, 4 * SLOTS)


def _long_queries(mask: KeyRanges, segments: IntArray) -> IntArray:
    def block(first: int, end: int) -> list[int]:
        last = min(first + BLOCK_ROWS, end)
        keys = int(mask.first[first:last].min()), int(mask.last[first:last].max())
        return _slots(first, end) + _moving_slots(*keys)

    return _as_blocks(block(first, end) for _, first, end in _blocks_of(mask.queries, segments))


def _long_keys(mask: KeyRanges, segments: IntArray) -> IntArray:
    def block(segment: int, first: int, end: int) -> list[int]:
        start = int(mask.queries.starts[segment])
        own = slice(start, start + int(mask.queries.lengths[segment]))
        seen = np.flatnonzero((mask.first[own] < first + BLOCK_ROWS) & (mask.last[own] > first))
        queries = (start + int(seen[0]), start + int(seen[-1]) + 1) if len(seen) else (0, 0)
        return _moving_slots(*queries) + _slots(first, end)

    return _as_blocks(block(*long_block) for long_block in _blocks_of(mask.keys, segments))


def _blocks_of(side: Segments, segments: IntArray) -> Iterable[tuple[int, int, int]]:
    """Yield the segment, the first row and the segment's end for each block of 64 rows of these segments."""
    for segment in segments.tolist():
        start, end = int(side.starts[segment]), int(side.starts[segment] + side.lengths[segment])
        yield from ((segment, first, end) for first in range(start, end, BLOCK_ROWS))
