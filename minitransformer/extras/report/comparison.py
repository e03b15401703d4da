"""Several systems compared on the same sentences, by sacrebleu's paired tests.

Source: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation" (bootstrap); Riezler and Maxwell
2005, "On Some Pitfalls in Automatic Evaluation and Significance Testing for MT" (approximate randomisation).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from minitransformer.inference.bleu import WORDS, bleu_tokenizer

PairedTestName = Literal["bootstrap", "randomisation"]
MetricName = Literal["BLEU", "chrF", "TER"]
System = tuple[str, Sequence[str]]  # its name and its translations

SIGNIFICANT = 0.05
_TESTS = {"bootstrap": "bs", "randomisation": "ar"}  # sacrebleu's names; 1,000 resampled corpora, and 10,000 trials


@dataclass(frozen=True)
class ComparedScore:
    """A system's score in percent, its p-value against the first system, and half of its 95 % interval.

    ``p_value`` is None for the first system, and for a score equal to the first system's: for equal scores, sacrebleu
    returns the smallest possible p-value.  ``interval`` is None if the test computes no interval (randomisation).
    """

    value: float
    p_value: float | None
    interval: float | None

    def __str__(self) -> str:
        interval = "" if self.interval is None else f" ± {self.interval:.2f}"
        if self.p_value is None:
            return f"{self.value:.2f}{interval}"
        return f"{self.value:.2f}{interval} p={self.p_value:.4f}{'*' if self.p_value < SIGNIFICANT else ''}"


@dataclass(frozen=True)
class ComparedMetric:
    """The scores of all systems by one metric, with sacrebleu's signature."""

    name: str
    signature: str
    scores: tuple[ComparedScore, ...]


def compare_systems(
    systems: Sequence[System],
    references: Sequence[str],
    *,
    metrics: Collection[MetricName] = get_args(MetricName),
    test: PairedTestName = "bootstrap",
    language: str | None = None,
) -> list[ComparedMetric]:
    """Compute the metrics of every system, and p-values of the differences from the first system.

    A p-value is the probability that two equally good systems differ at least as much on these sentences.  BLEU has the
    tokenizer of the references' language.  TER counts words, so it is computed only if blanks separate the words.
    Raises: ValueError for fewer than two systems, no references, or unequal numbers of translations and references.
    """
    if len(systems) < 2:
        raise ValueError(f"compare_systems: expected two systems or more; got {len(systems)}")
    if not references or any(len(lines) != len(references) for _, lines in systems):
        raise ValueError("compare_systems: expected as many translations of every system as references, and some")
    tokenizer = bleu_tokenizer(language, [references])
    computed: dict[str, Metric] = {}
    for name in metrics:
        if name == "BLEU":
            computed[name] = BLEU(tokenize=tokenizer)
        elif name == "chrF":
            computed[name] = CHRF()
        elif tokenizer == WORDS:
            computed[name] = TER()
    named: list[System] = [(name, list(lines)) for name, lines in systems]
    signatures, scores = PairedTest(named, computed, [list(references)], test_type=_TESTS[test])()
    return [ComparedMetric(name, str(signature), _scores(scores[name])) for name, signature in signatures.items()]


def _scores(column: Sequence[str | Result]) -> tuple[ComparedScore, ...]:
    """Convert a metric's column of sacrebleu's table; skip strings, which sacrebleu's type of a column allows."""
    results = [result for result in column if isinstance(result, Result)]
    return tuple(
        ComparedScore(result.score, None if result.score == results[0].score else result.p_value, result.ci)
        for result in results
    )


def comparison_table(names: Sequence[str], compared: Sequence[ComparedMetric]) -> Iterator[str]:
    """Yield the lines of a table with a row for each system, then a legend and the metrics' signatures."""
    rows = [["", *(f"{metric.name} {'↓' if metric.name == 'TER' else '↑'}" for metric in compared)]]
    rows += [[name, *(str(metric.scores[i]) for metric in compared)] for i, name in enumerate(names)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield f"p: of the difference from {names[0]}; * p < {SIGNIFICANT}; ↑ higher is better, ↓ lower"
    yield from (f"{metric.name}  {metric.signature}" for metric in compared)
