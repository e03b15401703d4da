"""The choice of the length penalty's exponent α on held-out text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from minitransformer.inference.bleu import SCORE_DIGITS
from minitransformer.inference.task import Evaluation

ALPHAS = (0.0, 0.3, 0.6, 1.0, 1.4, 1.6, 1.8)
LONGEST = 1.2  # times the characters of the references: longer translations repeat themselves, whatever their score


class Tried(NamedTuple):
    """An exponent α, and the evaluation of the translations that a search with this α finds."""

    alpha: float
    found: Evaluation

    @property
    def score(self) -> float:
        """The score, rounded to the digits that are printed."""
        return round(self.found.score.value, SCORE_DIGITS)

    @property
    def length(self) -> float:
        """Characters of the translations, divided by those of the references."""
        samples = self.found.samples
        return sum(len(s.translation) for s in samples) / max(1, sum(len(s.reference) for s in samples))

    @property
    def remark(self) -> str:
        """A remark after the score if the translations are longer than ``LONGEST``, else ""."""
        return f" (translations {self.length:.1f} times as long as the references)" if self.length > LONGEST else ""


class Choice(NamedTuple):
    """The chosen exponent, and all exponents that are as good."""

    chosen: Tried
    best: tuple[float, ...]


def choose_alpha(all_tried: Iterable[Tried], own: float) -> Choice:
    """Choose the exponent with the greatest score; if the model's ``own`` exponent is among the best, keep it.

    An exponent with a lower score than ``own`` is never chosen.  Nor is an exponent with translations longer than
    ``LONGEST``, unless all are so long; then the exponent with the shortest translations is chosen.
    """
    tried = {one.alpha: one for one in sorted(all_tried)}
    no_worse = [one for one in tried.values() if one.score >= tried[own].score]
    fitting = [one for one in no_worse if one.length <= LONGEST] or [min(no_worse, key=lambda one: one.length)]
    greatest = max(one.score for one in fitting)
    best = tuple(sorted(one.alpha for one in fitting if one.score == greatest))
    # An edge of a plateau lies next to worse exponents, so the middle is more likely to be good for other text.
    middles = best[(len(best) - 1) // 2], best[len(best) // 2]
    return Choice(tried[own if own in best else min(middles, key=lambda alpha: abs(alpha - own))], best)
