"""A paired test of two systems' BLEU on the same sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, Result


@dataclass(frozen=True)
class PairedScore:
    """BLEU of a baseline and of another system, and whether chance explains the difference.

    ``p_value`` is the probability of a difference of this size between equal systems; None if the scores are the same.
    ``interval`` is half the width of the 95 % bootstrap interval of ``bleu``.
    """

    baseline: float
    bleu: float
    interval: float
    p_value: float | None
    signature: str


def paired_bootstrap(baseline: Sequence[str], other: Sequence[str], references: Sequence[str]) -> PairedScore:
    """Compare two systems' translations by paired bootstrap resampling, with sacrebleu's 1,000 resamples and seed.

    Source: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation".
    """
    systems: list[tuple[str, Sequence[str]]] = [("baseline", list(baseline)), ("other", list(other))]
    signatures, results = PairedTest(systems, {"BLEU": BLEU()}, [list(references)], test_type="bs")()
    first, second = (result for result in results["BLEU"] if isinstance(result, Result))
    assert second.p_value is not None
    assert second.ci is not None
    # For translations with the same counts sacrebleu 2.6 gives p = 1 / 1,001: no resample differs more than none.
    p_value = None if first.score == second.score else float(second.p_value)
    return PairedScore(first.score, second.score, float(second.ci), p_value, str(signatures["BLEU"]))
