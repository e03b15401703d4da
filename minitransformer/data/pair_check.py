"""Signs that the sides of a text do not belong together: copies of the sources, and lines shifted against each other.

A long line has a long translation.  So the logarithms of the lengths (in characters) of sources and targets correlate.
The lengths of sources and of the targets of neighbouring lines correlate much less (docs/guide/data.md).
"""

from __future__ import annotations

import itertools
import logging

import numpy as np

from minitransformer.data.corpus import Corpus, Pair

N_CHECKED = 1_000_000  # pairs, the first ones
BLOCK, SMALLEST_BLOCK = 1_000, 100  # pairs whose lengths are compared at a time
SHIFTS = (-3, -2, -1, 1, 2, 3)  # lines
LEAST_CORRELATION, LEAST_GAIN = 0.5, 0.15  # correlation of shifted lines; its gain over unshifted lines
MOST_COPIES = 0.1  # share of pairs
_CHARACTERS = 80  # of a text, to be shown

_log = logging.getLogger(__name__)


def log_pairs(corpus: Corpus) -> None:
    """Log three training pairs; warn if many targets are copies of their sources, or if lines are shifted."""
    lengths, n_copies, shown, stride = list[tuple[int, int]](), 0, list[tuple[int, Pair]](), 1
    for i, (source, target) in enumerate(itertools.islice(corpus.train(), N_CHECKED)):
        lengths.append((len(source), len(target)))
        n_copies += source == target
        if i % stride == 0:
            shown.append((i, (source, target)))
            if len(shown) == 6:
                shown, stride = shown[::2], 2 * stride
    for number, (source, target) in dict.fromkeys((*shown[:1], *shown[len(shown) // 2 :][:1], *shown[-1:])):
        _log.info(f"{corpus.location(number)}: {source[:_CHARACTERS]!r} → {target[:_CHARACTERS]!r}")
    if n_copies > MOST_COPIES * len(lengths):
        _log.warning(
            f"{n_copies:,} of {len(lengths):,} training pairs have the same text on both sides; a model of these pairs"
            " learns to copy"
        )
    if found := find_shift(np.log1p(np.array(lengths).reshape(-1, 2))):
        start, shift, shifted, unshifted = found
        _log.warning(
            f"{corpus.location(start)}: from about here on, sources seem to belong to the targets {abs(shift)}"
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
