"""EVALB's file formats: its report, a table of sentences with summaries, and its parameter files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from minitransformer.data.survey import CorpusError, read_lines
from minitransformer.extras.parsing.evalb import COLLINS, Parameters, SentenceCounts, Status, Summary

_HEAD = """\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
============================================================================"""
_RULE = _HEAD.splitlines()[-1]


def report(sentences: Sequence[SentenceCounts], cutoff_length: int = COLLINS.cutoff_length) -> Iterator[str]:
    """Yield the lines that EVALB prints: one for each sentence, totals, and two summaries."""
    yield from _HEAD.splitlines()
    for number, c in enumerate(sentences, 1):
        one = Summary.of([c])
        yield (
            f"{number:4d}  {c.length:3d}    {c.status:d}  {one.recall:6.2f} {one.precision:6.2f}"
            f"  {c.matched:4d}   {c.gold:4d} {c.candidate:4d}   {c.crossing:4d}"
            f"   {c.words:4d}  {c.correct_tags:4d}   {one.tagging_accuracy:6.2f}"
        )
    yield _RULE
    everything = Summary.of(sentences)
    total = everything.total
    yield (
        f"{'':16}{everything.recall:6.2f} {everything.precision:6.2f}"
        f" {total.matched:6d} {total.gold:5d} {total.candidate:5d}  {total.crossing:5d}"
        f"  {total.words:5d} {total.correct_tags:5d}   {everything.tagging_accuracy:6.2f}"
    )
    yield "=== Summary ==="
    yield from _summary_of(everything, "All")
    yield from _summary_of(Summary.of(sentences, cutoff_length), f"len<={cutoff_length}")


def _summary_of(summary: Summary, name: str) -> Iterator[str]:
    yield ""
    yield f"-- {name} --"
    for label, count in (
        ("Number of sentence", len(summary.sentences)),
        ("Number of Error sentence", summary.n_with(Status.ERROR)),
        ("Number of Skip  sentence", summary.n_with(Status.SKIPPED)),
        ("Number of Valid sentence", len(summary.valid)),
    ):
        yield f"{label:25} = {count:6d}"
    for label, figure in (
        ("Bracketing Recall", summary.recall),
        ("Bracketing Precision", summary.precision),
        ("Bracketing FMeasure", summary.f1),
        ("Complete match", summary.complete_match),
        ("Average crossing", summary.average_crossing),
        ("No crossing", summary.crossing_at_most(0)),
        ("2 or less crossing", summary.crossing_at_most(2)),
        ("Tagging accuracy", summary.tagging_accuracy),
    ):
        yield f"{label:25} = {figure:6.2f}"


def read_parameters(path: Path) -> Parameters:
    """Read a parameter file in EVALB's format, such as COLLINS.prm.

    DEBUG and MAX_ERROR are ignored: there is no debug output, and no number of errors ends the evaluation.

    Raises: CorpusError with file and line for an unknown parameter, or for LABELED other than 1.
    """
    deleted, for_length, quotes = set[str](), set[str](), set[str]()
    labels, words, cutoff = dict[str, str](), dict[str, str](), 40
    for number, line in enumerate(read_lines(path), 1):
        match [] if line.startswith("#") else line.split():
            case [] | ["DEBUG" | "MAX_ERROR", _] | ["LABELED", "1"]:
                pass
            case ["DELETE_LABEL", label]:
                deleted.add(label)
            case ["DELETE_LABEL_FOR_LENGTH", label]:
                for_length.add(label)
            case ["QUOTE_LABEL", label]:
                quotes.add(label)
            case ["EQ_LABEL", *names] if len(names) > 1:
                _make_equal(labels, names)
            case ["EQ_WORD", *names] if len(names) > 1:
                _make_equal(words, names)
            case ["CUTOFF_LEN", digits] if digits.isdecimal():
                cutoff = int(digits)
            case _:
                raise CorpusError(
                    f"{path}, line {number}: {line.strip()!r} is no parameter known here; expected DELETE_LABEL,"
                    " DELETE_LABEL_FOR_LENGTH, QUOTE_LABEL, EQ_LABEL, EQ_WORD, CUTOFF_LEN or LABELED 1"
                )
    return Parameters(frozenset(deleted), frozenset(for_length), labels, words, cutoff, frozenset(quotes))


def _make_equal(compared_as: dict[str, str], names: Sequence[str]) -> None:
    """Make ``names`` equal, and also all names that equal one of them so far.

    ``compared_as`` maps equal names to one of them, the representative, which has no entry.
    """
    classes = [compared_as.get(name, name) for name in names]
    members = [name for name, other in compared_as.items() if other in classes]
    compared_as |= dict.fromkeys((*members, *classes), classes[0])
    del compared_as[classes[0]]
