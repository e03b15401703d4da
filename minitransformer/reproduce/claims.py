"""Which comparisons of the paper's Table 3 hold here, and what that makes of the claims drawn from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from minitransformer.reproduce.statistics import Estimate
from minitransformer.reproduce.table3 import PRINTED, Result, short

Results = Mapping[str, Mapping[int, Result]]  # by row, by seed; the base model's are among them

LEAST_LOSS = "table3-B-dk32"  # with h = 32 the least differences that section 6.2 calls worse in words: 0.09 and 0.4
ROUNDING = {"perplexity": 0.01, "bleu": 0.1}  # what a difference of two printed figures may be off by


@dataclass(frozen=True)
class Comparison:
    """A row against the base model by one measure: the paper's difference, and ours, paired by seed.

    ``scale`` is how many times as large as the paper's our base model's perplexity is: differences of perplexity are
    judged as ratios, those of BLEU as they are.
    """

    row: str
    measure: str
    printed: float
    measured: Estimate
    scale: float = 1.0

    @property
    def is_equality(self) -> bool:
        """Whether the two are claimed to be nearly identical (learned positions), or printed as near as rounding."""
        return self.row == "table3-E" or abs(self.printed) <= ROUNDING[self.measure]

    @property
    def verdict(self) -> str:
        """Whether the paper's sign is ours or, of an equality, whether the two are nearly as good here.

        Nearly: they differ by less than what the paper calls worse.  Over several seeds that is what the interval of
        our difference says: "undecided" where a sign is claimed and it holds zero, or where it holds more than what is
        near, but not that alone.  A single seed has none; there is "no difference" then if it is 0.00.
        """
        half_width = self.measured.half_width
        if not math.isfinite(self.measured.mean):
            return "not finite"
        if half_width is None:
            return self._verdict_of_one_seed()
        if self.is_equality:
            if abs(self.measured.mean) + half_width < self._least_loss:
                return "holds"
            return "does not hold" if abs(self.measured.mean) - half_width >= self._least_loss else "undecided"
        if not self.measured.is_not_zero:
            return "undecided"
        return "holds" if self.printed * self.measured.mean > 0 else "does not hold"

    @property
    def _least_loss(self) -> float:
        """The least difference that the paper calls worse, by this measure, at our scale."""
        return abs(printed_difference(LEAST_LOSS, self.measure)) * self.scale

    def _verdict_of_one_seed(self) -> str:
        difference = round(self.measured.mean, 2)
        if self.is_equality:
            return "nearly identical" if abs(difference) < self._least_loss else "further apart"
        if not difference:
            return "no difference"
        return "same sign" if self.printed * difference > 0 else "other sign"

    @property
    def holds(self) -> bool:
        """Whether it comes out as in the paper."""
        return self.verdict in ("holds", "same sign", "nearly identical")


@dataclass(frozen=True)
class Claim:
    """A conclusion of the paper's, and the rows that it is drawn from, by perplexity and by BLEU."""

    text: str
    perplexity: Sequence[str]
    bleu: Sequence[str]

    def among(self, compared: Sequence[Comparison], measure: str) -> list[Comparison]:
        """Those of the comparisons that are the claim's, by one measure."""
        rows = getattr(self, measure)
        return [one for one in compared if one.measure == measure and short(one.row) in rows]


def _claim(text: str, *rows: str) -> Claim:
    return Claim(text, rows, rows)


# Sections 5.4 (label smoothing) and 6.2.  Bigger models are better by perplexity only: the paper's own 8 layers have
# 0.3 BLEU less than 6.  Of heads it names a single one, and too many: that 4 or 16 are worse than 8, the paper does not
# claim, nor that dropout of 0.2 is worse than of 0.1.
CLAIMS = (
    _claim("(A) with 1 or 32 heads models are worse than with 8", "A-h1", "A-h32"),
    _claim("(B) smaller d_k is worse", "B-dk16", "B-dk32"),
    Claim(
        "(C) bigger models are better", ("C-n2", "C-n4", "C-n8", "C-d256", "C-d1024", "C-ff1024", "C-ff4096"), ()
    ),
    _claim("(D) dropout helps", "D-drop0"),
    Claim("(D) label smoothing hurts perplexity and improves BLEU", ("D-ls0", "D-ls2"), ("D-ls0",)),
    _claim("(E) learned positions do nearly the same as sinusoids", "E"),
)  # fmt: skip


def printed_difference(row: str, measure: str) -> float:
    """What the paper prints of a row, less what it prints of the base model."""
    return round(float(getattr(PRINTED[row], measure)) - float(getattr(PRINTED["base"], measure)), 2)


def comparisons(results: Results) -> Iterator[Comparison]:
    """Every row against the base model, by perplexity (less is better) and by BLEU, over the seeds that both have."""
    base = results["base"]
    for row, by_seed in results.items():
        seeds = sorted(by_seed.keys() & base.keys())
        if row == "base" or not seeds:
            continue
        for measure in ("perplexity", "bleu"):
            of_base = [getattr(base[seed], measure) for seed in seeds]
            measured = [getattr(by_seed[seed], measure) - its for seed, its in zip(seeds, of_base, strict=True)]
            scale = fmean(of_base) / PRINTED["base"].perplexity if measure == "perplexity" else 1.0
            yield Comparison(row, measure, printed_difference(row, measure), Estimate.of(measured), scale)
