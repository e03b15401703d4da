"""embedding.cu: rows are added in the order of sorted ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_models.common import Floats

WARPS = 8


def sort_ids(ids: Any) -> tuple[Any, Any]:
    """Ids in order, and where each stood: an id's place is the number of smaller ones, and of equal ones before it.

    other < id + 1 says both of ids before it, other < id of those behind.
    """
    sorted_ids, order = np.full_like(ids, -1), np.full_like(ids, -1)
    for here, id_here in enumerate(ids):
        place = (ids < id_here + (np.arange(len(ids)) < here)).sum()
        sorted_ids[place], order[place] = id_here, here
    return sorted_ids, order


def add_rows(dy: Floats, sorted_ids: Any, order: Any, table: Floats) -> None:
    """table[id] += Σ dy[t] over the tokens t of an id, by the block of its first one in order.

    Warp w adds the rows that come w-th, (w + 8)-th …; the sums of the warps are added in their order.
    """
    for first, id_here in enumerate(sorted_ids):
        if first and sorted_ids[first - 1] == id_here:
            continue
        end = first + int((sorted_ids[first:] == id_here).sum())
        of_warps = [dy[order[first + warp : end : WARPS]].sum(0) for warp in range(WARPS)]
        table[id_here] += sum(of_warps[1:], of_warps[0])
