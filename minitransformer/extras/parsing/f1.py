"""A single score for parsed trees."""

from __future__ import annotations

from collections.abc import Sequence

from minitransformer.extras.parsing.evalb import Status, Summary, compare, with_tags_of
from minitransformer.extras.parsing.tree import Tree
from minitransformer.inference.bleu import Score


def bracketing_f1(candidates: Sequence[Tree], references: Sequence[Tree]) -> Score:
    """Compute labelled bracketing F1 as EVALB does with COLLINS.prm; the references' tags mark punctuation."""
    pairs = zip(references, candidates, strict=True)
    summary = Summary.of([compare(gold, with_tags_of(gold, tree)) for gold, tree in pairs])
    detail = (
        f"F1 = {summary.f1:.2f} (recall {summary.recall:.2f}, precision {summary.precision:.2f},"
        f" complete match {summary.complete_match:.2f}; errors {summary.n_with(Status.ERROR)} of {len(candidates):,})"
    )
    return Score("F1", summary.f1, "evalb:COLLINS|tags:gold", detail)
