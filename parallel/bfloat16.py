"""Conversion of messages to bfloat16, the upper half of a float32, with 8 bits of precision.

Arrays are flat, of NumPy or CuPy.  The bits are stored as uint16, a type that every library can send.
(``autograd.precision`` rounds by ``ml_dtypes``, an optional package that training in float32 does not need.  A test
compares the bits.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parallel.tree import CHUNK


def round_to_bfloat16(x: Any, bits: Any) -> None:
    """Write float32 to ``bits`` as bfloat16: to the nearest, ties to even; NaN stays NaN."""
    chunk = CHUNK if isinstance(x, np.ndarray) else max(1, x.size)
    for start in range(0, x.size, chunk):
        wide = x[start : start + chunk].view(np.uint32)
        is_nan = ((wide & 0x7FFF_FFFF) > 0x7F80_0000).astype(np.uint32)
        upper = (wide + ((wide >> 16 & 1) + 0x7FFF)) >> 16
        bits[start : start + chunk] = (upper | is_nan * 0x7FC0).astype(np.uint16)


def upcast_to_float32(bits: Any, out: Any) -> None:
    """Write bfloat16 to ``out`` as float32, exactly."""
    wide = out.view(np.uint32)
    wide[...] = bits
    wide <<= 16
