"""Signs that the sides of a text do not belong together: lines that are shifted against each other.

A long line has a long translation.  So the logarithms of the lengths (in characters) of sources and targets correlate.
The lengths of sources and of the targets of neighbouring lines correlate much less (docs/guide/data.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

N_CHECKED = 1_000_000  # pairs, the first ones
BLOCK, SMALLEST_BLOCK = 1_000, 100  # pairs whose lengths are compared at a time
SHIFTS = (-3, -2, -1, 1, 2, 3)  # lines
LEAST_CORRELATION, LEAST_GAIN = 0.5, 0.15  # correlation of shifted lines; its gain over unshifted lines
_CHARACTERS = 80  # of a text, to be shown

_log = logging.getLogger(__name__)


def log_pairs(pairs: Sequence[tuple[int, tuple[str, str]]], location: Callable[[int], str]) -> None:
    """Log three pairs of a sample: the first, one in the middle, and the last; the numbers are indices in the text."""
    for number, (source, target) in dict.fromkeys((*pairs[:1], *pairs[len(pairs) // 2 :][:1], *pairs[-1:])):
        _log.info(f"{location(number)}: {source[:_CHARACTERS]!r} → {target[:_CHARACTERS]!r}")


def warn_of_shift(lengths: np.ndarray, location: Callable[[int], str]) -> None:
    """Warn if lines are shifted.  Shapes: lengths (pairs, 2), in characters, of the first ``N_CHECKED`` pairs."""
    if found := find_shift(np.log1p(lengths)):
        start, shift, shifted, unshifted = found
        _log.warning(
            f"{location(start)}: from about here on, sources seem to belong to the targets {abs(shift)}"
            f" line{'s' if abs(shift) > 1 else ''} {'later' if shift > 0 else 'earlier'}: the correlation of lengths is"
            f" {shifted:.2f} with these, {unshifted:.2f} with their own; look for a line that was lost or split"
        )


def find_shift(lengths: np.ndarray) -> tuple[int, int, float, float] | None:
    """Return the start of the first shifted block, the shift, and the correlations with and without the shift.

    Shapes: lengths (pairs, 2), logarithms.  Return None if no block is shifted.
    """
    for start in range(0, len(lengths) - SMALLEST_BLOCK + 1, BLOCK):
        block = lengths[start : start + BLOCK]
        unshifted = _correlation(block, 0)
        shifted, shift = max((_correlation(block, shift), shift) for shift in SHIFTS)
        if shifted > max(LEAST_CORRELATION, unshifted + LEAST_GAIN):
            return start, shift, shifted, unshifted
    return None


def _correlation(lengths: np.ndarray, shift: int) -> float:
    """Return the correlation of the sources' lengths with the lengths of the targets ``shift`` lines later."""
    n = len(lengths)
    sources, targets = lengths[max(0, -shift) : n - max(0, shift), 0], lengths[max(0, shift) : n - max(0, -shift), 1]
    return float(np.corrcoef(sources, targets)[0, 1]) if np.ptp(sources) and np.ptp(targets) else 0.0
