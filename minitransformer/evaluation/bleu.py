"""BLEU and chrF, by sacrebleu, each with the signature that makes it comparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


@dataclass(frozen=True)
class Score:
    """A corpus score in percent, with sacrebleu's signature and its line of detail."""

    name: str
    value: float
    signature: str
    detail: str

    def __str__(self) -> str:
        return f"{self.detail}  [{self.signature}]"


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False) -> Score:
    """Corpus BLEU (Papineni et al. 2002) of detokenised text, tokenisation 13a.

    Args:
        references: one list of lines for every set of references.
    """
    return _score(BLEU(lowercase=lowercase), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Corpus chrF2 (Popović 2015)."""
    return _score(CHRF(), hypotheses, references)


def _score(metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    if not references:
        raise ValueError("there are no references to score against")
    for number, lines in enumerate(references, 1):
        if len(lines) != len(hypotheses):
            raise ValueError(
                f"reference set {number} has {len(lines)} lines, but there are {len(hypotheses)} hypotheses"
            )
    if not hypotheses:
        raise ValueError("there are no hypotheses to score")
    result = metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
    return Score(result.name, float(result.score), str(metric.get_signature()), str(result))
