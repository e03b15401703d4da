"""The fixed order in which arrays are added up, so that the sum has the same bits wherever its summands lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]

PIECE = 1 << 15  # elements added up at once, so that what is on its way between two additions stays in a cache


def add_along_tree(summands: Sequence[Numbers], out: Numbers) -> None:
    """(s₀ + s₁) + (s₂ + s₃) … into ``out``, which may be s₀; a power of two of them."""
    for start in range(0, len(out), PIECE):
        piece = slice(start, start + PIECE)
        _add([summand[piece] for summand in summands], out[piece])


def _add(summands: Sequence[Numbers], out: Numbers) -> None:
    if len(summands) == 1:
        out[...] = summands[0]
    elif len(summands) == 2:
        np.add(summands[0], summands[1], out=out)
    else:
        half, of_right = len(summands) // 2, np.empty_like(out)
        _add(summands[:half], out)
        _add(summands[half:], of_right)
        out += of_right
