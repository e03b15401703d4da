"""The rule by which characters are replaced before text is split into pieces; sentencepiece stores it in the model.

So every program that reads the model applies the rule.
Source: https://google.github.io/sentencepiece/doc/normalization/, the format of rules.
"""

from __future__ import annotations

import itertools
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from minitransformer.config import TextNormalisation
from minitransformer.data.protobuf import bytes_field, fields
from minitransformer.data.survey import Found

_SEPARATORS = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"  # control characters between words, or lines
BLANKS = f" {_SEPARATORS}"
BETWEEN_WORDS = re.compile(f"[{BLANKS}]+")
# Characters that no script needs: soft hyphen, word joiner, byte order mark, U+FFFD and control characters.
_NEVER_NEEDED = ["\xad", "\u2060", "\ufeff", "\ufffd", *map(chr, (*range(1, 9), *range(0xE, 0x1C), 0x7F))]
# Persian needs the non-joiner U+200C, Khmer the space of no width U+200B, emoji the joiner U+200D.
# Source: Unicode 16, DerivedCoreProperties.txt, Default_Ignorable_Code_Point, without unassigned ones.
_SOMETIMES_NEEDED = (
    (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F),
    (0x202A, 0x202E), (0x2061, 0x2064), (0x2066, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0),
    (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0001, 0xE0001), (0xE0020, 0xE007F), (0xE0100, 0xE01EF),
)  # fmt: skip
_INVISIBLE = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in _SOMETIMES_NEEDED) + "]")
_LINES_PER_NEED = 1_000  # text needs an invisible character that more than one in this many lines has
_MOST_NAMED = 20  # characters in a message
_NORMALIZER_SPEC, _NAME, _RULES_FILE = 3, 1, 6  # numbers of fields in sentencepiece_model.proto


def words_of_line(line: str) -> list[str]:
    """Split a line into words at blanks and separators; other spaces, as in "10\u00a0mg", are part of a word."""
    return [word for word in BETWEEN_WORDS.split(line) if word]


def rules(kind: TextNormalisation, lines: Iterable[str]) -> str:
    """Return the rules for text like these lines, as sentencepiece's table: old code points, tab, new code points.

    Separators become blanks.  Invisible characters are removed, except those that the lines need.
    """
    replaced = dict.fromkeys(_SEPARATORS, " ") | dict.fromkeys([*_NEVER_NEEDED, *_needless_characters(lines)], "")
    if kind == "nfc":
        replaced |= dict(_compositions())
    return "".join(f"{_code_points(old)}\t{_code_points(new)}\n" for old, new in replaced.items())


def with_rule_name(model: bytes, kind: TextNormalisation) -> bytes:
    """Return a sentencepiece model that names its rule ``kind``, and does not contain the path of the rules' file."""
    parts = list[bytes]()
    for number, field, value in fields(model):
        if number == _NORMALIZER_SPEC:
            spec = b"".join(inner for n, inner, _ in fields(value) if n not in (_NAME, _RULES_FILE))
            parts.append(bytes_field(_NORMALIZER_SPEC, bytes_field(_NAME, kind.encode()) + spec))
        else:
            parts.append(field)
    return b"".join(parts)


class LostCharacters:
    """The lines that lose characters when they are encoded and decoded, and the lost characters."""

    def __init__(self) -> None:
        self.found, self._characters, self._n_lines = Found(), Counter[str](), 0

    def compare(self, lines: Iterable[str], decoded: Iterable[str], location: Callable[[int], str]) -> None:
        """Compare the next lines with the text of their pieces; runs of blanks may differ.

        ``location`` returns the location of a line from its index among all compared lines.
        """
        for line, text in zip(lines, decoded, strict=True):
            if text != line and (lost := Counter(" ".join(words_of_line(line))) - Counter(text)):
                self.found.add(location(self._n_lines))
                self._characters.update(lost.keys())
            self._n_lines += 1

    def extend(self, later: LostCharacters) -> None:
        """Add the lost characters of later lines."""
        self.found.extend(later.found)
        self._characters.update(later._characters)
        self._n_lines += later._n_lines

    @property
    def description(self) -> str:
        """A sentence that counts the lines and names the characters."""
        return (
            f"target lines that no model can write, because their pieces lose characters: {self.found.count:,} of"
            f" {self._n_lines:,} ({self.found.locations}); lost: {named(self._characters)}"
        )


def named(counts: Mapping[str, int]) -> str:
    """Return the most frequent characters with their counts; if some are left out, also how many there are in all."""
    most = sorted(counts.items(), key=lambda count: -count[1])[:_MOST_NAMED]
    rest = f", … ({len(counts):,} in all)" if len(counts) > len(most) else ""
    return ", ".join(f"{_display(character)} {count:,}" for character, count in most) + rest


def _display(character: str) -> str:
    is_visible = character.isprintable() and not unicodedata.category(character).startswith("M")
    return character if is_visible else f"U+{ord(character):04X}"


def _needless_characters(lines: Iterable[str]) -> list[str]:
    n_lines, counts = 0, Counter[str]()
    for line in lines:
        n_lines += 1
        if not line.isascii():
            counts.update(set(_INVISIBLE.findall(line)))
    invisible = itertools.chain.from_iterable(range(first, last + 1) for first, last in _SOMETIMES_NEEDED)
    return [chr(code) for code in invisible if counts[chr(code)] * _LINES_PER_NEED <= n_lines]


def _compositions() -> Iterator[tuple[str, str]]:
    """Yield each spelling of a character that normalisation form C changes, and its form C.

    Marks may follow a letter in any order, and the first of them may already be composed with the letter.
    """
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        decomposed, composed = (unicodedata.normalize(form, character) for form in ("NFD", "NFC"))
        if decomposed == character or unicodedata.category(character) == "Cs":
            continue
        if composed != character:
            yield character, composed
            continue
        for marks in itertools.permutations(decomposed[1:]):
            for n_composed in range(len(marks)):
                prefix = unicodedata.normalize("NFC", decomposed[0] + "".join(marks[:n_composed]))
                spelling = prefix + "".join(marks[n_composed:])
                if unicodedata.normalize("NFC", spelling) == character:
                    yield spelling, character


def _code_points(text: str) -> str:
    return " ".join(f"{ord(character):X}" for character in text)
