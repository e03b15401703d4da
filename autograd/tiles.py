"""Work lists of attention kernels: blocks of four slots of 16 queries and four slots of 16 keys."""

from __future__ import annotations

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
    long = np.flatnonzero(is_long)
    return Tiles(
        _short_blocks(queries, keys, np.flatnonzero(~is_long)),
        _long_queries(mask, long) if len(long) else _NO_BLOCKS,
        _long_keys(mask, long) if len(long) else _NO_BLOCKS,
        _columns(mask.first, mask.last),
        _columns(segment, n_keys * position - keys.starts[segment]),
        np.array([n_queries * n_keys], np.int32),
    )


_NO_BLOCKS = np.zeros((0, 4 * SLOTS), np.int32)


def _columns(*columns: IntArray) -> Array:
    """Return (T, n) int32, whose columns are n arrays (T,)."""
    return np.stack(columns, axis=1, dtype=np.int32, casting="same_kind")


def _slots_of(lengths: IntArray) -> IntArray:
    return -(-lengths // ROWS)


def _assign_to_blocks(query_counts: IntArray, key_counts: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Assign segments to blocks in order; return each segment's block, first slot of queries and first slot of keys."""
    counts = np.stack([query_counts, key_counts])
    ends = np.cumsum(counts, axis=1)
    starts = ends - counts
    fits = [np.searchsorted(end, start + SLOTS, side="right") for end, start in zip(ends, starts, strict=True)]
    next_first, firsts = np.minimum(*fits).tolist(), [0]  # the first segments of blocks, then the number of segments
    while firsts[-1] < len(next_first):
        firsts.append(next_first[firsts[-1]])
    n_segments = np.diff(firsts)  # of each block
    query_slot, key_slot = starts - np.repeat(starts[:, firsts[:-1]], n_segments, axis=1)
    return np.repeat(np.arange(len(n_segments)), n_segments), query_slot, key_slot


def _short_blocks(queries: Segments, keys: Segments, segments: IntArray) -> Array:
    sides = queries, keys
    block, *first_slots = _assign_to_blocks(*(_slots_of(side.lengths[segments]) for side in sides))
    blocks = np.zeros((int(block.max(initial=-1)) + 1, 2, 2, SLOTS), np.int32)  # side, first or end, slot
    for i, (side, first_slot) in enumerate(zip(sides, first_slots, strict=True)):
        slots = Segments.of_lengths(_slots_of(side.lengths[segments]))
        segment, number = slots.segment_of_token, slots.position_in_segment
        start, length = (x[segments][segment] for x in (side.starts, side.lengths))
        slot = first_slot[segment] + number
        blocks[block[segment], i, 0, slot] = start + ROWS * number
        blocks[block[segment], i, 1, slot] = start + length
    return blocks.reshape(-1, 4 * SLOTS)


def _slots(first: IntArray, end: IntArray) -> IntArray:
    """Return (n, 8): the first rows of four slots, then ``end`` for each slot; both are 0 for slots behind ``end``."""
    rows = first[:, None] + ROWS * np.arange(SLOTS)
    is_used = np.tile(rows < end[:, None], 2)
    return np.where(is_used, _moving_slots(first, end), 0)


def _moving_slots(first: IntArray, end: IntArray) -> IntArray:
    """Return (n, 8): first rows, then ends, of four slots that a kernel moves; zeros where ``first`` is not < ``end``.

    Slots behind ``end`` keep their numbers.
    """
    rows = first[:, None] + ROWS * np.arange(SLOTS)
    return np.where((first < end)[:, None], np.hstack([rows, np.repeat(end[:, None], SLOTS, axis=1)]), 0)


def _long_queries(mask: KeyRanges, segments: IntArray) -> Array:
    _, first, end = _blocks_of(mask.queries, segments)
    rows = Segments(first, np.minimum(first + BLOCK_ROWS, end) - first)
    starts = np.cumsum(rows.lengths) - rows.lengths
    first_key = np.minimum.reduceat(mask.first[rows.tokens], starts)
    last_key = np.maximum.reduceat(mask.last[rows.tokens], starts)
    return np.hstack([_slots(first, end), _moving_slots(first_key, last_key)], dtype=np.int32, casting="same_kind")


def _long_keys(mask: KeyRanges, segments: IntArray) -> Array:
    segment, first, end = _blocks_of(mask.keys, segments)
    rows = Segments(mask.queries.starts[segment], mask.queries.lengths[segment])  # all queries of a block's segment
    query, block = rows.tokens, rows.segment_of_token
    sees = np.flatnonzero((mask.first[query] < first[block] + BLOCK_ROWS) & (mask.last[query] > first[block]))
    queries = Segments.of_lengths(np.bincount(block[sees], minlength=len(first)))  # those that see a key of the block
    seen, is_seen = query[sees], queries.lengths > 0
    first_query, last_query = np.zeros((2, len(first)), np.int64)
    first_query[is_seen] = seen[queries.starts[is_seen]]
    last_query[is_seen] = seen[(queries.starts + queries.lengths - 1)[is_seen]] + 1
    return np.hstack([_moving_slots(first_query, last_query), _slots(first, end)], dtype=np.int32, casting="same_kind")


def _blocks_of(side: Segments, segments: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the segment, the first row and the segment's end for each block of 64 rows of these segments."""
    blocks = Segments.of_lengths(-(-side.lengths[segments] // BLOCK_ROWS))
    segment = segments[blocks.segment_of_token]
    start = side.starts[segment]
    return segment, start + BLOCK_ROWS * blocks.position_in_segment, start + side.lengths[segment]
