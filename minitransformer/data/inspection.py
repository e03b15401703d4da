"""The faults of the pairs of a text: counted, shown with examples, and marked for the pairs to drop.

Some faults are seen in a pair alone (``faults_of``).  Repeated pairs, and lines of another script or language than the
rest of their side, are seen in the whole text: memory holds 13 bytes of a pair.
"""

from __future__ import annotations

import itertools
import logging
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from minitransformer.config.data import FAULTS, Fault
from minitransformer.data.faults import MARKUP, MOJIBAKE, faults_of, script_of
from minitransformer.data.line_languages import SideLanguages, can_tell
from minitransformer.data.pair_check import N_CHECKED, log_pairs, warn_of_shift
from minitransformer.data.survey import N_NAMED, Found, Pair

DESCRIPTIONS: dict[Fault, str] = {
    "repeated": "an earlier pair again",
    "copied": "the same text on both sides",
    "mojibake": "UTF-8 that was read as Latin-1 or Windows-1252",
    "markup": "entities or tags",
    "repetition": "one character or word again and again",
    "script": "another script than the rest of the side",
    "language": "another language than the rest of the side",
    "numbers": "other numbers in digits on the two sides",
}
LEAST_SHARE = 0.1  # of a side's lines: a rarer script is not one of the side
N_SAMPLED = 5_000  # pairs, spread over the text: they tell the languages of the sides
MOST_COPIES = 0.1  # share of pairs that are copied; more are worth a warning
N_EXAMPLES = 3
_CHARACTERS, _BEFORE = 80, 20  # of a line that is shown; of these before its mojibake or markup
_BITS: dict[Fault, int] = {fault: 1 << i for i, fault in enumerate(FAULTS)}
_SHOWN_AT = {"mojibake": MOJIBAKE, "markup": MARKUP}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Inspection:
    """The number of pairs with each fault, the pairs that are dropped by fault, and a mask of them.

    Shapes: drop (pairs,), bool; empty if no text was inspected.
    """

    counts: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, Found] = field(default_factory=dict)
    drop: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))

    @classmethod
    def joined(cls, parts: Iterable[Inspection], drop: np.ndarray) -> Inspection:
        """Return the inspection of a text from those of its parts; ``drop`` is the mask of the whole text."""
        counts, dropped = Counter[str](), dict[str, Found]()
        for part in parts:
            counts.update(part.counts)
            for fault, found in part.dropped.items():
                dropped.setdefault(fault, Found()).extend(found)
        return cls(dict(counts), dropped, drop)


@dataclass(frozen=True)
class TextToInspect:
    """A text: its name for the log, the number of its pairs, and functions to read it and to name a pair's location."""

    name: str
    n_pairs: int
    read: Callable[[], Iterable[Pair]]
    location: Callable[[int], str]


def inspect(text: TextToInspect, drop: Sequence[Fault] = ()) -> Inspection:
    """Count the faults of a text and log them with examples; mark the pairs with a fault that is named in ``drop``.

    Pairs that are empty on a side have no faults; ``prepare`` drops them for that.  Languages are compared for all
    pairs if ``drop`` names them, else for a sample, because this takes longer than all the rest.
    Raises: ConfigError if ``drop`` has "language", and the package that tells languages is not installed.
    """
    marks, sample = _mark_pairs(text)
    n_compared = _mark_languages(text, marks, sample, "language" in drop)
    for fault in FAULTS:
        if marks.counts[fault]:
            total = n_compared if fault == "language" else len(marks.masks)
            _log_fault(text, fault, marks, total, fault in drop)
    masks = np.frombuffer(marks.masks, np.uint8)
    dropped, rest = dict[str, Found](), np.ones(len(masks), bool)
    for fault in FAULTS:
        if fault in drop:
            found = np.flatnonzero(rest & (masks & _BITS[fault] > 0))
            rest[found] = False
            if len(found):
                dropped[fault] = Found(len(found), [text.location(int(i)) for i in found[:N_NAMED]])
    return Inspection({fault: marks.counts[fault] for fault in FAULTS if marks.counts[fault]}, dropped, ~rest)


class _Marks:
    """The faults of each pair as bits, the number of pairs with each fault, and the first examples."""

    def __init__(self) -> None:
        self.masks, self.counts, self.examples = bytearray(), Counter[str](), dict[str, list[tuple[int, str]]]()

    def add(self, fault: Fault, i: int, pair: Pair) -> None:
        """Note a fault of the i-th pair, unless it is noted."""
        if not self.masks[i] & _BITS[fault]:
            self.masks[i] |= _BITS[fault]
            self.counts[fault] += 1
            if len(shown := self.examples.setdefault(fault, [])) < N_EXAMPLES:
                shown.append((i, " → ".join(_excerpt(line, fault) for line in pair)))


def _mark_pairs(text: TextToInspect) -> tuple[_Marks, list[tuple[int, Pair]]]:
    """Mark all faults but those of languages, and check the pairs' lengths; return also the sample with its indices."""
    marks, keys, lengths, sample = _Marks(), array("q"), array("i"), list[tuple[int, Pair]]()
    sources, targets = _Scripts(), _Scripts()
    stride = max(1, -(-text.n_pairs // N_SAMPLED))
    for i, pair in enumerate(text.read()):
        source, target = pair
        marks.masks.append(0)
        if i < N_CHECKED:
            lengths.extend((len(source), len(target)))
        is_complete = source != "" and target != ""
        keys.append(hash(pair) if is_complete else i)  # 64 bits: two of 100 million pairs collide once in 3,000 texts
        sources.add(i, source if is_complete else "", pair)
        targets.add(i, target if is_complete else "", pair)
        if is_complete:
            for fault in faults_of(source, target):
                marks.add(fault, i, pair)
            if i % stride == 0:
                sample.append((i, pair))
    log_pairs(sample, text.location)
    warn_of_shift(np.frombuffer(lengths, np.int32).reshape(-1, 2), text.location)
    for side in (sources, targets):
        for i, pair in side.rare():
            marks.add("script", i, pair)
    _mark_repeated(text, marks, np.frombuffer(keys, np.int64))
    return marks, sample


def _mark_repeated(text: TextToInspect, marks: _Marks, keys: np.ndarray) -> None:
    """Mark each pair whose key is that of an earlier pair."""
    is_repeated = np.ones(len(keys), bool)
    is_repeated[np.unique(keys, return_index=True)[1]] = False
    repeated = np.flatnonzero(is_repeated)
    shown = set(repeated[:N_EXAMPLES].tolist())
    for i, pair in enumerate(itertools.islice(text.read(), max(shown, default=-1) + 1)):
        if i in shown:
            marks.add("repeated", i, pair)
    for i in repeated[N_EXAMPLES:].tolist():
        marks.add("repeated", i, ("", ""))


class _Scripts:
    """The script of each line of a side, as a number, and for each script the first lines' pairs."""

    def __init__(self) -> None:
        self._codes, self._numbers = array("H"), dict[str | None, int]({None: 0})  # 0: no letters
        self._first: list[list[tuple[int, Pair]]] = [[]]

    def add(self, i: int, line: str, pair: Pair) -> None:
        """Add the next line, which is of the i-th pair."""
        script = script_of(line)
        number = self._numbers.get(script)
        if number is None:
            number = self._numbers[script] = len(self._first)
            self._first.append([])
        self._codes.append(number)
        if len(first := self._first[number]) < N_EXAMPLES:
            first.append((i, pair))

    def rare(self) -> Iterator[tuple[int, Pair]]:
        """Yield the pairs whose lines have a rare script; first those with text, then the others with empty text."""
        counts = np.bincount(np.frombuffer(self._codes, np.uint16), minlength=1)
        is_rare = (counts > 0) & (counts < LEAST_SHARE * counts[1:].sum())
        is_rare[0] = False  # lines without letters
        for number in np.flatnonzero(is_rare).tolist():
            yield from self._first[number]
        for i in np.flatnonzero(is_rare[np.frombuffer(self._codes, np.uint16)]).tolist():
            yield i, ("", "")


def _mark_languages(text: TextToInspect, marks: _Marks, sample: list[tuple[int, Pair]], compares_all: bool) -> int:
    """Mark pairs with a line of another language than the rest of its side; return the number of compared pairs."""
    if not can_tell(required=compares_all):
        _log.info("languages of lines are not compared; to compare them: pip install py3langid")
        return 0
    sides = [SideLanguages([pair[side] for _, pair in sample]) for side in (0, 1)]
    n_compared = 0
    for i, pair in enumerate(text.read()) if compares_all else sample:
        n_compared += 1
        if any(languages.is_other(line) for languages, line in zip(sides, pair, strict=True)):
            marks.add("language", i, pair)
    return n_compared


def _log_fault(text: TextToInspect, fault: Fault, marks: _Marks, total: int, is_dropped: bool) -> None:
    n = marks.counts[fault]
    is_bad = fault == "copied" and not is_dropped and n > MOST_COPIES * total
    advice = "; a model of these pairs learns to copy" if is_bad else ""
    _log.log(
        logging.WARNING if is_bad else logging.INFO,
        f"{text.name}: {fault} ({DESCRIPTIONS[fault]}): {n:,} of {total:,} pairs{', dropped' * is_dropped}{advice}",
    )
    for i, shown in marks.examples[fault]:
        _log.info(f"  {text.location(i)}: {shown}")


def _excerpt(line: str, fault: Fault) -> str:
    """Return the part of a line that shows its fault, in quotation marks."""
    found = _SHOWN_AT[fault].search(line) if fault in _SHOWN_AT else None
    start = max(0, found.start() - _BEFORE) if found else 0
    end = start + _CHARACTERS
    return "…" * (start > 0) + repr(line[start:end]) + "…" * (len(line) > end)
