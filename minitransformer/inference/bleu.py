"""BLEU and chrF by sacrebleu, each with its signature, which records how it was computed; the better of two figures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


@dataclass(frozen=True)
class Score:
    """A corpus score in percent, with sacrebleu's signature and sacrebleu's output line (``detail``).

    ``interval`` is half the width of the 95 % bootstrap interval; None if it was not requested or cannot be computed.
    """

    name: str
    value: float
    signature: str
    detail: str
    interval: float | None = None

    def __str__(self) -> str:
        return f"{self.detail}  [{self.signature}]"


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False) -> Score:
    """Compute corpus BLEU (Papineni et al. 2002) of detokenised text, with tokenisation 13a.

    Args:
        references: one list of lines for every set of references.
    """
    return score_corpus(BLEU(lowercase=lowercase), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False) -> Score:
    """Compute corpus chrF2 (Popović 2015) of detokenised text."""
    return score_corpus(CHRF(lowercase=lowercase), hypotheses, references)


def score_corpus(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, n_bootstrap: int = 1
) -> Score:
    """Score a corpus by one of sacrebleu's metrics, with an interval from ``n_bootstrap`` resampled corpora.

    Raises: ValueError if there is nothing to score, or a set of references differs in its number of lines.
    """
    if not references:
        raise ValueError("there are no references to score against")
    for number, lines in enumerate(references, 1):
        if len(lines) != len(hypotheses):
            raise ValueError(
                f"reference set {number} has {len(lines)} lines, but there are {len(hypotheses)} hypotheses"
            )
    if not hypotheses:
        raise ValueError("there are no hypotheses to score")
    corpus = list(hypotheses), [list(lines) for lines in references]
    try:
        result = metric.corpus_score(*corpus, n_bootstrap)
    except TypeError:  # sacrebleu 2.6 fails if the chrF of a resampled corpus is 0: nothing matches its references
        result, n_bootstrap = metric.corpus_score(*corpus), 1
    signature, interval = str(metric.get_signature()), None
    if n_bootstrap > 1 and len(hypotheses) > 1:  # resampling a single sentence gives only itself
        details = json.loads(result.format(width=6, is_json=True, signature=signature))
        interval = details.get("confidence_var", 0.0)  # absent if all resampled corpora score 0
    return Score(result.name, float(result.score), signature, str(result), interval)


def is_better(figure: float, kept: float | None, *, greatest: bool) -> bool:
    """Return whether a figure is strictly better than the kept one (None: nothing is kept yet); NaN is never better.

    ``greatest``: the greater figure is better, as of scores; otherwise the lower one, as of losses.
    """
    if kept is None:
        return not math.isnan(figure)
    return figure > kept if greatest else figure < kept
