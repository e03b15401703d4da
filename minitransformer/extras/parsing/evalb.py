"""Labelled bracketing recall, precision and F1, as Sekine and Collins' EVALB computes them.

Source: Black et al. 1991 (the measure); EVALB of 2006, its manual and its parameter file COLLINS.prm.
Differs: a bracket without a label, such as the treebank's outermost one, does not count here; in EVALB it counts.
Other differences are listed in docs/parsing.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import accumulate, compress
from typing import Self, TypeAlias

from minitransformer.extras.parsing.plain import TRACE, category
from minitransformer.extras.parsing.tree import Constituent, Leaf, Tree
from minitransformer.inference.bleu import Score

QUOTES = frozenset({"'", '"', "/"})  # words that EVALB treats as quotes


@dataclass(frozen=True)
class Parameters:
    """The parameters of EVALB; the defaults are the values in COLLINS.prm."""

    deleted: frozenset[str] = frozenset({"TOP", TRACE, ",", ":", "``", "''", "."})
    """DELETE_LABEL: labels of brackets, and tags of words, that do not count."""
    deleted_for_length: frozenset[str] = frozenset({TRACE})
    """DELETE_LABEL_FOR_LENGTH: tags of words that do not count in a sentence's length."""
    equal_labels: Mapping[str, str] = field(default_factory=lambda: {"PRT": "ADVP"})
    """EQ_LABEL: a map from labels and tags to the label or tag that replaces each of them in comparisons."""
    equal_words: Mapping[str, str] = field(default_factory=dict)
    """EQ_WORD: a map from words to the word that replaces each of them in comparisons."""
    cutoff_length: int = 40
    """CUTOFF_LEN: the greatest length of sentences in the second summary."""
    quote_labels: frozenset[str] = frozenset()
    """QUOTE_LABEL: tags of quotes, among which parsers may choose wrongly; COLLINS.prm has none, new.prm has some."""

    def label(self, name: str) -> str:
        """Return the label or tag used in comparisons: without functional tags, then mapped by ``equal_labels``."""
        return self.equal_labels.get(category(name), category(name))

    def is_deleted(self, leaf: Leaf) -> bool:
        """Return whether a word does not count."""
        return category(leaf.tag) in self.deleted

    def is_quote(self, leaf: Leaf) -> bool:
        """Return whether a word is a quote that may count in one tree and not in the other."""
        return leaf.word in QUOTES and category(leaf.tag) in self.quote_labels


COLLINS = Parameters()


class Status(IntEnum):
    """The status of a sentence: only valid sentences count in the scores."""

    VALID = 0
    ERROR = 1  # the candidate is no tree, or the trees differ in the words that count
    SKIPPED = 2  # no word of the candidate counts


@dataclass(frozen=True)
class SentenceCounts:
    """The counts of one sentence: brackets, words and tags.  All counts are 0 unless its status is VALID."""

    length: int
    status: Status
    matched: int = 0
    gold: int = 0
    candidate: int = 0
    crossing: int = 0
    words: int = 0
    correct_tags: int = 0


def compare(gold: Tree, candidate: Tree | None, parameters: Parameters = COLLINS) -> SentenceCounts:
    """Count the brackets of ``candidate`` that match a bracket of ``gold``, brackets that cross one, and correct tags.

    Punctuation and traces are removed before words and spans are compared; each tree's own tags mark them.  If the
    remaining words differ, the status is ERROR, unless only quotes differ (``quote_labels``).  A candidate that is no
    tree is given as None, and has the status ERROR, too.
    """
    length = sum(category(leaf.tag) not in parameters.deleted_for_length for leaf in gold.leaves)
    if candidate is None:
        return SentenceCounts(length, Status.ERROR)
    kept = _kept_leaves(gold, parameters), _kept_leaves(candidate, parameters)
    if not any(kept[1]):
        return SentenceCounts(length, Status.SKIPPED)
    if sum(kept[0]) != sum(kept[1]):
        _count_quotes_of_either(gold, candidate, kept, parameters)
    if _words(gold, kept[0], parameters) != _words(candidate, kept[1], parameters):
        return SentenceCounts(length, Status.ERROR)
    right, guessed = _brackets(gold, kept[0], parameters), _brackets(candidate, kept[1], parameters)
    return SentenceCounts(
        length,
        Status.VALID,
        matched=(right & guessed).total(),
        gold=right.total(),
        candidate=guessed.total(),
        crossing=_n_crossing(right, guessed),
        words=sum(kept[0]),
        correct_tags=sum(
            parameters.label(a.tag) == parameters.label(b.tag)
            for a, b in zip(compress(gold.leaves, kept[0]), compress(candidate.leaves, kept[1]), strict=True)
        ),
    )


def with_tags_of(gold: Tree, candidate: Tree) -> Tree:
    """Return the candidate with the gold tree's tags, or the unchanged candidate if the numbers of words differ.

    Traces of the gold tree are not words here.  Tags decide which words are punctuation and do not count; the trees of
    a parser without tags need the gold tags.
    """
    leaves = [leaf for leaf in gold.leaves if category(leaf.tag) != TRACE]
    words = candidate.words
    if len(leaves) != len(words):
        return candidate
    return candidate.with_leaves(Leaf(leaf.tag, word) for leaf, word in zip(leaves, words, strict=True))


Kept: TypeAlias = list[bool]  # for every leaf, True if it counts


def _kept_leaves(tree: Tree, parameters: Parameters) -> Kept:
    return [not parameters.is_deleted(leaf) for leaf in tree.leaves]


def _words(tree: Tree, kept: Kept, parameters: Parameters) -> list[str]:
    return [parameters.equal_words.get(leaf.word, leaf.word) for leaf in compress(tree.leaves, kept)]


def _count_quotes_of_either(gold: Tree, candidate: Tree, kept: tuple[Kept, Kept], parameters: Parameters) -> None:
    """Mark both quotes of a pair as counting in ``kept``, if only one of them counts so far.

    A pair is a quote from each tree, with equally many counting words before each quote.
    """
    quotes = [[i for i, leaf in enumerate(t.leaves) if parameters.is_quote(leaf)] for t in (gold, candidate)]
    for j in quotes[1]:
        n_before = sum(kept[1][:j])
        for i in quotes[0]:
            if sum(kept[0][:i]) == n_before and kept[0][i] != kept[1][j]:
                kept[0][i] = kept[1][j] = True


def _brackets(tree: Tree, kept: Kept, parameters: Parameters) -> Counter[Constituent]:
    """Return the brackets that count: their label is not deleted, and they contain at least one word that counts.

    Positions are numbered over the words that count.  EQ_LABEL applies before deletion: a label that is equal to a
    deleted label is deleted, too.  A word is deleted only if its own tag is listed (``is_deleted``).
    """
    deleted = {"", *map(parameters.label, parameters.deleted)}
    positions = [0, *accumulate(kept)]
    found: Counter[Constituent] = Counter()
    for name, first, last in tree.constituents():
        label, start, end = parameters.label(name), positions[first], positions[last]
        if label not in deleted and start < end:
            found[Constituent(label, start, end)] += 1
    return found


def _n_crossing(gold: Counter[Constituent], candidate: Counter[Constituent]) -> int:
    """Count the candidate's brackets that overlap a gold bracket while neither contains the other."""
    spans = {(g.start, g.end) for g in gold}
    return sum(
        n
        for c, n in candidate.items()
        if any(c.start < start < c.end < end or start < c.start < end < c.end for start, end in spans)
    )


@dataclass(frozen=True)
class Summary:
    """EVALB's summary of a set of sentences; counts and ``average_crossing`` are numbers, other figures percentages."""

    sentences: Sequence[SentenceCounts]
    valid: Sequence[SentenceCounts]

    @classmethod
    def of(cls, sentences: Sequence[SentenceCounts], longest: int | None = None) -> Self:
        """Summarise all sentences, or only sentences of at most ``longest`` words."""
        chosen = [c for c in sentences if longest is None or c.length <= longest]
        return cls(chosen, [c for c in chosen if c.status is Status.VALID])

    def n_with(self, status: Status) -> int:
        """Return the number of sentences with a status."""
        return sum(c.status is status for c in self.sentences)

    @cached_property
    def total(self) -> SentenceCounts:
        """The sums of the counts of the valid sentences."""
        names = ("length", "matched", "gold", "candidate", "crossing", "words", "correct_tags")
        return SentenceCounts(
            status=Status.VALID, **{name: sum(getattr(c, name) for c in self.valid) for name in names}
        )

    @property
    def recall(self) -> float:
        return percent(self.total.matched, self.total.gold)

    @property
    def precision(self) -> float:
        return percent(self.total.matched, self.total.candidate)

    @property
    def f1(self) -> float:
        """The harmonic mean of recall and precision: 2 · matched brackets / brackets of both trees."""
        return percent(2 * self.total.matched, self.total.gold + self.total.candidate)

    @property
    def complete_match(self) -> float:
        return percent(sum(c.matched == c.gold == c.candidate for c in self.valid), len(self.valid))

    @property
    def average_crossing(self) -> float:
        return self.total.crossing / len(self.valid) if self.valid else 0.0

    def crossing_at_most(self, n: int) -> float:
        """Return the percentage of sentences with at most ``n`` crossing brackets."""
        return percent(sum(c.crossing <= n for c in self.valid), len(self.valid))

    @property
    def tagging_accuracy(self) -> float:
        return percent(self.total.correct_tags, self.total.words)


def percent(part: int, whole: int) -> float:
    """Return 100 · part / whole; 0 if ``whole`` is 0."""
    return 100 * part / whole if whole else 0.0


def bracketing_f1(candidates: Sequence[Tree], references: Sequence[Tree]) -> Score:
    """Compute labelled bracketing F1 as EVALB does with COLLINS.prm; the references' tags mark punctuation."""
    pairs = zip(references, candidates, strict=True)
    summary = Summary.of([compare(gold, with_tags_of(gold, tree)) for gold, tree in pairs])
    detail = (
        f"F1 = {summary.f1:.2f} (recall {summary.recall:.2f}, precision {summary.precision:.2f},"
        f" complete match {summary.complete_match:.2f}; errors {summary.n_with(Status.ERROR)} of {len(candidates):,})"
    )
    return Score("F1", summary.f1, "evalb:COLLINS|tags:gold", detail)
