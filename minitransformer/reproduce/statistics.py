"""Means over a few runs, and how far they can be trusted."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# 97.5 % quantile of Student's t for 1, 2, … degrees of freedom; beyond the last the normal distribution's.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
_NORMAL = 1.960


@dataclass(frozen=True)
class Estimate:
    """A mean with half the width of its 95 % confidence interval by Student's t; None of a single number."""

    mean: float
    half_width: float | None

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Estimate:
        """The mean of independent measurements.  Raises: ValueError if there are none."""
        if not numbers:
            raise ValueError("Estimate: there is nothing to take the mean of")
        mean, n = statistics.fmean(numbers), len(numbers)
        if n == 1:
            return cls(mean, None)
        quantile = _T[n - 2] if n - 2 < len(_T) else _NORMAL
        return cls(mean, quantile * statistics.stdev(numbers) / math.sqrt(n))

    @property
    def is_not_zero(self) -> bool:
        """Whether the interval leaves zero out; of a single number, which has none, never."""
        return self.half_width is not None and abs(self.mean) > self.half_width

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.half_width is None else f"{self.mean:.2f} ± {self.half_width:.2f}"
