"""Noise in a pair of lines: capitals, title case, no end mark, typing errors and wrong blanks.

Sources: Belinkov & Bisk 2018, "Synthetic and Natural Noise Both Break Neural Machine Translation", for typing
    errors.  Bogoychev et al. 2023, "OpusCleaner and OpusTrainer, open source toolkits for training Machine
    Translation and Large language models", for noise that is drawn during training.  **Differs**: a line has one
    typing error for each ten words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import NamedTuple, TypeAlias

from minitransformer.config import NoiseKind
from minitransformer.data.survey import Pair
from minitransformer.model.symbols import LANGUAGE_CODE
from minitransformer.text.casing import in_form

Change: TypeAlias = Callable[[str, str | None, Random], str]
"""A function of a line, the code of its language and a random generator; it returns the line with noise."""

_WORD = re.compile(r"[^\W\d_]{2,}")
_MARKS = ".!?…。．！？।۔؟։።။។"
_END_MARK = re.compile(rf"(?<=[^\s{_MARKS}])\s*[{_MARKS}]+\s*$")
_WORDS_PER_ERROR = 10
_KEYS = (
    "qwertyuiop", "asdfghjkl", "zxcvbnm", "йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю",
    "ςερτυθιοπ", "ασδφγηξκλ", "ζχψωβνμ",
)  # fmt: skip
_NEIGHBOURS = {
    key: row[max(0, i - 1) : i] + row[i + 1 : i + 2] for row in _KEYS for i, key in enumerate(row)
}  # in the same row of a keyboard


class Noise(NamedTuple):
    """A kind of noise; the target is changed in the same way only if ``both`` is true and the source has changed."""

    change: Change
    both: bool


def add_noise(
    pair: Pair, kinds: Collection[NoiseKind], languages: Sequence[str | None], random: Random
) -> tuple[str, str]:
    """Return a source and its target with some kinds of noise, applied in the order of ``NOISES``.

    The language code of a multilingual model (">>fra<<") stays as it is.  If the source has letters of a script without
    capitals, neither side gets capitals.

    Args:
        languages: codes of source and target, for their rules of capitals.
        random: only its method ``random`` is called, whose numbers are the same in all versions of Python.
    """
    source, target = pair
    code = LANGUAGE_CODE.match(source)
    start = len(source) - len(source[code.end() :].lstrip()) if code else 0
    for kind, noise in NOISES.items():
        if kind in kinds:
            changed = source[:start] + noise.change(source[start:], languages[0], random)
            if noise.both and changed != source:
                target = noise.change(target, languages[1], random)
            source = changed
    return source, target


def _remove_end_mark(line: str, language: str | None, random: Random) -> str:
    return _END_MARK.sub("", line)


def _add_typos(line: str, language: str | None, random: Random) -> str:
    words = list(_WORD.finditer(line))
    n = min(len(words), 1 + len(words) // _WORDS_PER_ERROR)
    for i in sorted({_draw(len(words), random) for _ in range(n)}, reverse=True):
        start, end = words[i].span()
        line = line[:start] + _mistype(line[start:end], random) + line[end:]
    return line


def _mistype(word: str, random: Random) -> str:
    """Return a word with two letters swapped, or a letter left out, typed twice, or replaced by its neighbour."""
    i = _draw(len(word) - 1, random)
    before, letter, next_, after = word[:i], word[i], word[i + 1], word[i + 2 :]
    keys = _NEIGHBOURS.get(letter.lower(), letter)
    key = keys[_draw(len(keys), random)]
    found = (
        before + next_ + letter + after,
        before + next_ + after,
        before + (key.upper() if letter.isupper() else key) + next_ + after,
    )
    twice = before + letter + letter + next_ + after
    chosen = [*found, twice][_draw(4, random)]
    return twice if chosen == word else chosen  # two equal letters were swapped, or the neighbours are not known


def _misplace_blanks(line: str, language: str | None, random: Random) -> str:
    """Leave out one blank; double another blank, and put one before the line, each in half of the lines."""
    words = line.split(" ")
    blanks = [" "] * (len(words) - 1)
    if blanks and random.random() < 0.5:
        blanks[_draw(len(blanks), random)] = "  "
    if blanks:
        blanks[_draw(len(blanks), random)] = ""
    first = " " if random.random() < 0.5 else ""
    return first + "".join(word + blank for word, blank in zip(words, [*blanks, ""], strict=True))


def _capitalise_words(line: str, language: str | None, random: Random) -> str:
    return in_form(line, "title", language) if _has_only_cased_letters(line) else line


def _write_in_capitals(line: str, language: str | None, random: Random) -> str:
    return in_form(line, "capitals", language) if _has_only_cased_letters(line) else line


def _has_only_cased_letters(line: str) -> bool:
    """Return False for a line with letters of Chinese or Arabic, even if Latin words are among them."""
    return all(unicodedata.category(character) != "Lo" for character in line)


def _draw(n: int, random: Random) -> int:
    return int(random.random() * n)


NOISES: dict[NoiseKind, Noise] = {
    "no_end_mark": Noise(_remove_end_mark, both=True),
    "typos": Noise(_add_typos, both=False),
    "blanks": Noise(_misplace_blanks, both=False),
    "title": Noise(_capitalise_words, both=True),
    "capitals": Noise(_write_in_capitals, both=True),
}
