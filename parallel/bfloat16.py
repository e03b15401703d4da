"""Numbers on their way between ranks as bfloat16: the upper half of a float32, of 8 bits of precision.

NumPy's and CuPy's arrays are flat here; bits lie in uint16, which every library carries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

RUN = 1 << 15  # elements narrowed at once on a host, so that what is in between stays in a cache


def narrow(x: Any, bits: Any) -> None:
    """Put float32 into ``bits`` as bfloat16: to the nearest, ties to even; what is no number stays none."""
    run = RUN if isinstance(x, np.ndarray) else max(1, x.size)
    for start in range(0, x.size, run):
        wide = x[start : start + run].view(np.uint32)
        is_nan = ((wide & 0x7FFF_FFFF) > 0x7F80_0000).astype(np.uint32)
        upper = (wide + ((wide >> 16 & 1) + 0x7FFF)) >> 16
        bits[start : start + run] = (upper | is_nan * 0x7FC0).astype(np.uint16)


def widen(bits: Any, out: Any) -> None:
    """The same numbers in float32, into ``out``."""
    wide = out.view(np.uint32)
    wide[...] = bits
    wide <<= 16
