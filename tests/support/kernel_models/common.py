"""common.cuh."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, Any]
NEUTRAL = -float(np.finfo(np.float32).max)
"""Of a maximum (``Max::kNeutral``); finite, because −∞ − (−∞) is no number."""


def bf16_bits(x: Any) -> Any:
    """``bf16_pair``: the upper halves of float32 numbers, to the nearest, ties to even; a NaN becomes 0x7FFF.

    Half a unit of what stays, less 1, carries where the rest is above the middle; the last bit that stays, where it is
    odd, makes up for the 1.
    """
    bits = np.asarray(x, np.float32).view(np.uint32)
    return np.where(np.isnan(x), 0x7FFF, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
