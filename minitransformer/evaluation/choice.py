"""The choice among measured figures: a tie, or a figure that does not move, changes nothing."""

from __future__ import annotations

import math


def is_better(figure: float, kept: float | None, *, greatest: bool) -> bool:
    """Return whether a figure is strictly better than the kept one (None: nothing is kept yet); NaN is never better.

    ``greatest``: the greater figure is better, as of scores; otherwise the lower one, as of losses.
    """
    if kept is None:
        return not math.isnan(figure)
    return figure > kept if greatest else figure < kept
