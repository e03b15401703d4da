"""The comparisons and conclusions of the paper's Table 3, tested against our results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from minitransformer.extras.paper.statistics import Estimate
from minitransformer.extras.paper.table3 import PRINTED, Result, short

Results = Mapping[str, Mapping[int, Result]]  # by row and seed; the base model is one of the rows

LEAST_LOSS = "table3-B-dk32"  # the row with the least differences that section 6.2 calls worse: PPL 0.09, BLEU 0.4
ROUNDING = {"perplexity": 0.01, "bleu": 0.1}  # rounding error of the difference of two printed numbers


@dataclass(frozen=True)
class Comparison:
    """The difference between a row and the base model in one measure, as printed in the paper and as measured here.

    Our difference is paired by seed.  ``scale`` converts a printed difference to our scale: for perplexity, it is our
    base model's perplexity divided by the paper's; for BLEU, it is 1.
    """

    row: str
    measure: str
    printed: float
    measured: Estimate
    scale: float = 1.0

    @property
    def is_equality(self) -> bool:
        """True if the paper calls row and base model nearly identical, or prints numbers equal up to rounding."""
        return self.row == "table3-E" or abs(self.printed) <= ROUNDING[self.measure]

    @property
    def outcome(self) -> str:
        """The result of comparing our difference with the paper's difference.

        The paper's difference is a sign (better or worse) or an equality.  A sign holds if our difference has the same
        sign; an equality holds if our difference is nearly zero.  "Nearly zero" means less than the least difference
        that the paper calls worse.

        With several seeds, the confidence interval of our difference decides: "holds", "does not hold", or "undecided".
        A sign is undecided if the interval contains zero; an equality is undecided if the interval contains both
        differences that are nearly zero and larger differences.

        A single seed has no interval.  A sign is then "same sign", "other sign", or "no difference" if our difference
        rounds to 0.00; an equality is "nearly identical" or "further apart".  If our difference is no finite number,
        the result is "not finite".
        """
        half_width = self.measured.half_width
        if not math.isfinite(self.measured.mean):
            return "not finite"
        if half_width is None:
            return self._result_of_one_seed()
        if self.is_equality:
            if abs(self.measured.mean) + half_width < self._least_loss:
                return "holds"
            return "does not hold" if abs(self.measured.mean) - half_width >= self._least_loss else "undecided"
        if abs(self.measured.mean) <= half_width:
            return "undecided"
        return "holds" if self.printed * self.measured.mean > 0 else "does not hold"

    @property
    def _least_loss(self) -> float:
        """The least difference that the paper calls worse in this measure, at our scale."""
        return abs(printed_difference(LEAST_LOSS, self.measure)) * self.scale

    def _result_of_one_seed(self) -> str:
        difference = round(self.measured.mean, 2)
        if self.is_equality:
            return "nearly identical" if abs(difference) < self._least_loss else "further apart"
        if not difference:
            return "no difference"
        return "same sign" if self.printed * difference > 0 else "other sign"

    @property
    def holds(self) -> bool:
        """True if our result agrees with the paper."""
        return self.outcome in ("holds", "same sign", "nearly identical")


@dataclass(frozen=True)
class Claim:
    """A conclusion of the paper, and the rows that support the conclusion by perplexity and by BLEU."""

    text: str
    perplexity: Sequence[str]
    bleu: Sequence[str]

    def among(self, compared: Sequence[Comparison], measure: str) -> list[Comparison]:
        """Return the comparisons, in one measure, of the rows that support the claim."""
        rows = getattr(self, measure)
        return [one for one in compared if one.measure == measure and short(one.row) in rows]


def _claim(text: str, *rows: str) -> Claim:
    return Claim(text, rows, rows)


# From sections 5.4 (label smoothing) and 6.2.  "Bigger models are better" is tested by perplexity only, because in the
# paper 8 layers have 0.3 BLEU less than 6.  The paper claims that one head and too many heads are worse than 8; it does
# not claim that 4 or 16 heads are worse than 8, nor that a dropout of 0.2 is worse than 0.1.
CLAIMS = (
    _claim("(A) with 1 or 32 heads models are worse than with 8", "A-h1", "A-h32"),
    _claim("(B) smaller d_k is worse", "B-dk16", "B-dk32"),
    Claim("(C) bigger models are better", ("C-n2", "C-n4", "C-n8", "C-d256", "C-d1024", "C-ff1024", "C-ff4096"), ()),
    _claim("(D) dropout helps", "D-drop0"),
    Claim("(D) label smoothing hurts perplexity and improves BLEU", ("D-ls0", "D-ls2"), ("D-ls0",)),
    _claim("(E) learned positions do nearly the same as sinusoids", "E"),
)


def printed_difference(row: str, measure: str) -> float:
    """Return the number that the paper prints for a row, minus the number of the base model."""
    return round(float(getattr(PRINTED[row], measure)) - float(getattr(PRINTED["base"], measure)), 2)


def comparisons(results: Results) -> Iterator[Comparison]:
    """Yield the comparisons of rows with the base model, by perplexity and by BLEU, over the seeds of both.

    A row without a seed of the base model is left out.
    """
    base = results["base"]
    for row, by_seed in results.items():
        seeds = sorted(by_seed.keys() & base.keys())
        if row == "base" or not seeds:
            continue
        for measure in ("perplexity", "bleu"):
            base_values = [getattr(base[seed], measure) for seed in seeds]
            measured = [getattr(by_seed[seed], measure) - its for seed, its in zip(seeds, base_values, strict=True)]
            scale = fmean(base_values) / PRINTED["base"].perplexity if measure == "perplexity" else 1.0
            yield Comparison(row, measure, printed_difference(row, measure), Estimate.of(measured), scale)
