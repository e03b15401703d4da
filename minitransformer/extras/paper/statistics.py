"""Means over a few runs, with confidence intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# 97.5 % quantiles: of Student's t for 1, 2, … degrees of freedom, and of the normal distribution.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
_NORMAL = 1.95996


@dataclass(frozen=True)
class Estimate:
    """A mean, and half the width of its 95 % confidence interval by Student's t.

    The width is None for a single number, and if the mean is not finite.
    """

    mean: float
    half_width: float | None

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Estimate:
        """Estimate the mean of independent measurements.  Raises: ValueError if there are none."""
        if not numbers:
            raise ValueError("Estimate: expected at least one number; got none")
        mean, n = statistics.fmean(numbers), len(numbers)
        if n == 1 or not math.isfinite(mean):
            return cls(mean, None)
        return cls(mean, _quantile(n - 1) * statistics.stdev(numbers) / math.sqrt(n))

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.half_width is None else f"{self.mean:.2f} ± {self.half_width:.2f}"


def _quantile(freedom: int) -> float:
    """Return t with P(T ≤ t) = 0.975 for ``freedom`` degrees of freedom, to four digits.

    Source: Abramowitz & Stegun (1964), Handbook of Mathematical Functions, 26.7.5, for values beyond the table ``_T``.
    """
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = _NORMAL
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))
