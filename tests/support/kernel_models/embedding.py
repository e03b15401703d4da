"""embedding.cu: neighbours of y in groups of 512; rows of equal ids are added in pieces of a run of the order."""

from __future__ import annotations

from typing import Any

import numpy as np

from autograd.random import StreamId
from kernel_models.common import Floats
from kernel_models.philox import philox_block

ELEMENTS_OF_A_WARP, DRAWS = 512, 16
PIECE = 32


def kept_bits(stream_id: StreamId, n: int, threshold: int) -> Any:
    """Of n elements, padded to groups of 512: bit i % 16 of number i / 16 says that element i is kept.

    Lane l of warp g draws block 32 g + l of four words, whose 16 numbers decide on its 16 elements.
    """
    numbers = []
    for block in range(-(-n // ELEMENTS_OF_A_WARP) * ELEMENTS_OF_A_WARP // DRAWS):
        words = philox_block(stream_id, block)
        numbers.append(sum(1 << i for i in range(DRAWS) if words[i // 4] >> 16 * (i % 4) & 0xFFFF >= threshold))
    return np.array(numbers, np.uint16)


def is_kept(kept: Any, elements: Any) -> Any:
    return (kept[elements // DRAWS] >> elements % DRAWS & 1).astype(bool)


def embed(
    table: Floats, ids: Any, encodings: Floats, positions: Any, kept: Any, scale: float, scale_of_kept: float, n: int
) -> Floats:
    """y, of which a warp has 512 neighbours, which may be of several rows, and a lane n of them at a time.

    n divides the width, or is 1: n neighbours are of one row.
    """
    width = table.shape[1]
    y = np.full(len(ids) * width, np.nan, table.dtype)
    for first in range(0, y.size, ELEMENTS_OF_A_WARP):
        token, column = divmod(first, width)
        for i in range(0, min(ELEMENTS_OF_A_WARP, y.size - first), n):
            rows, at = divmod(column + i, width)
            columns = slice(at, at + n)
            x = scale * table[ids[token + rows], columns] + encodings[positions[token + rows], columns]
            bits = is_kept(kept, first + i + np.arange(n))
            y[first + i : first + i + n] = np.where(bits, x * scale_of_kept, 0)
    return y.reshape(-1, width)


def add_rows(dy: Floats, kept: Any, ids: Any, order: Any, table: Floats, scale: float) -> None:
    """table[id] += scale · Σ kept_t · dy[t] over the tokens t of an id, by pieces of at most 32 in the order.

    A run of equal ids is cut at every multiple of 32.  A whole run is added to the table; other pieces are summed to
    memory: the one that a cut begins to the first row of that cut, the one that begins behind a cut to the second.
    Then the pieces of a run are added in their order.  Behind the last token the order is −1.
    """
    n, width = int((order >= 0).sum()), dy.shape[1]
    run = ids[order[:n]]  # the id at every index of the order
    sums = np.full((-(-len(order) // PIECE), 2, width), np.nan, table.dtype)
    masked = np.where(is_kept(kept, np.arange(dy.size)).reshape(dy.shape), dy, 0)
    for first in range(n):
        continues = first > 0 and run[first - 1] == run[first]
        if continues and first % PIECE:
            continue
        end = min(first // PIECE * PIECE + PIECE, n)
        last = first + int((run[first:end] == run[first]).sum())
        piece = scale * masked[order[first:last]].sum(0)
        if continues or (last == end < n and run[end] == run[first]):
            sums[first // PIECE, int(not continues)] = piece
        else:
            table[run[first]] += piece
    for cut in range(PIECE, n, PIECE):
        begins_here = cut == PIECE or run[cut - PIECE - 1] != run[cut]
        if run[cut - 1] == run[cut] and begins_here:
            n_cuts = int((run[cut::PIECE] == run[cut]).sum())
            pieces = sums[cut // PIECE : cut // PIECE + n_cuts, 0]
            table[run[cut]] += sum(pieces, sums[cut // PIECE - 1, 1])
