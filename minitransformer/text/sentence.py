"""A sentence of a text: what a model reads of it, and what its translation becomes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from minitransformer.data.numbers import changed_numbers
from minitransformer.text.casing import Form, in_form
from minitransformer.text.codes import Code, Part, Parts, Span, plain_text, replaced
from minitransformer.text.loops import repetition
from minitransformer.text.placeholders import with_placeholders
from minitransformer.text.placement import FlatText, with_codes, with_marks, without_codes
from minitransformer.text.terms import TermCode, with_targets
from minitransformer.text.translation import CUT, Note, Translation
from minitransformer.text.unknown import UnknownWord

UNCERTAIN = "codes were placed without a word to which they belong: check them"
_STAND_INS = ("35", "48", "72", "26", "57", "64", "93", "81")  # short numbers, which models copy
_PLAIN_NUMBER = re.compile(r"(?<![\w.,:])\d{2,}(?![\w]|[.,:]\d)")


@dataclass(eq=False, slots=True)
class Sentence:
    """A sentence: its parts as they are in the text, and ``read``, the parts in the form that a model reads.

    ``place`` is the index of its text, and its index within the text.  ``code`` is the language code before it, such as
    ">>fra<< ", or "".  ``form`` is how the sentence is written.
    A translation that repeats itself is searched again with ``no_repeat``, one that loses a placeholder again without
    the words of placeholders (``keeps_words``).
    """

    parts: Parts
    read: Parts
    place: tuple[int, int]
    code: str = ""
    form: Form = "sentence"
    target_language: str | None = None
    forbids_loops: bool = True
    copies_numbers: bool = True
    keeps_words: bool = True
    no_repeat: bool = False
    has_stand_ins: bool = False
    notes: list[Note] = field(default_factory=list)
    found: list[Translation] = field(default_factory=list)
    _flat: tuple[Parts, bool, FlatText] | None = None  # of the ``read`` and ``keeps_words`` for which it was made

    @property
    def flat(self) -> FlatText:
        """The text that a model reads, and the codes that it does not read."""
        if self._flat is None or self._flat[0] is not self.read or self._flat[1] != self.keeps_words:
            flat = without_codes(with_marks(self.read), keep_words=self.keeps_words)
            self._flat = self.read, self.keeps_words, flat
        return self._flat[2]

    @property
    def line(self) -> str:
        """The line that a model translates."""
        text = self.flat.text.strip()
        return self.code + text if text else ""

    def copy(self) -> None:
        """Take the sentence itself as its translation."""
        self.found = [Translation(plain_text(self.parts), 0.0, 0.0, parts=list(self.parts))]

    def take(self, translations: Sequence[Translation]) -> bool:
        """Take translations of ``line``, best first; return False if the sentence must be translated again."""
        flat, best = self.flat, translations[0]
        if self.forbids_loops and not self.no_repeat and (best.is_cut or repetition(best.text, flat.text)):
            self.no_repeat = True
            return False
        placed = [self._placed(flat, each) for each in translations]
        if placed[0] is None:
            self.keeps_words = False
            return False
        if self.copies_numbers and not self.has_stand_ins and self._takes_numbers_out(placed[0]):
            return False
        self.found = [each for each in placed if each is not None]
        if self.no_repeat and not best.is_cut:
            is_loop = repetition(best.text, flat.text) != ""
            message = "the translation repeats itself" if is_loop else "searched again, because it repeated itself"
            self.notes.append(Note("loop", message, is_uncertain=is_loop))
        return True

    def _placed(self, flat: FlatText, translation: Translation) -> Translation | None:
        """Return a translation with its codes; None if it has lost or invented a placeholder."""
        links = translation.alignment
        if self.code:  # it is the first word of the line
            links = tuple((i - 1, j) for i, j in links if i)
        parts, is_uncertain = with_codes(flat, translation.text, links)
        if self.keeps_words and (placed := with_placeholders(self.read, parts)) is not None:
            parts = placed
        elif self.keeps_words:
            return None
        parts, unplaced = with_targets([_original(part) for part in parts])
        notes = [*translation.notes]
        notes += [Note("codes", UNCERTAIN, is_uncertain=True)] * is_uncertain
        notes += [Note("terms", "no word of the translation belongs to a term", term, True) for term in unplaced]
        notes += [Note("cut", CUT, is_uncertain=True)] * translation.is_cut
        if self.form != "sentence":
            language = self.target_language
            parts = [_in_form(part, self.form, language) for part in parts]
        return replace(translation, parts=parts, notes=tuple(notes))

    def _takes_numbers_out(self, translation: Translation) -> bool:
        """Put stand-ins for the numbers that a translation has changed; return whether there are any."""
        changed = set(changed_numbers(self.flat.text, plain_text(translation.parts)))
        if not changed:
            return False
        numbers = iter(number for number in _STAND_INS if number not in self.flat.text)

        def stand_ins(text: str) -> Iterator[Span]:
            for match in _PLAIN_NUMBER.finditer(text):
                if match[0] in changed and (stand_in := next(numbers, None)):
                    yield *match.span(), [Code(match[0], is_placeholder=True, stand_in=stand_in)]
                    self.has_stand_ins = True

        self.read = replaced(self.read, stand_ins)
        return self.has_stand_ins


def _in_form(part: Part, form: Form, language: str | None) -> Part:
    """Write texts, terms and unknown words in capitals or in title case; other codes stay."""
    if isinstance(part, str):
        return in_form(part, form, language)
    is_text = isinstance(part, TermCode | UnknownWord)
    return replace(part, content=in_form(part.content, form, language)) if is_text else part


def _original(part: Part) -> Part:
    """Return the code of the segment for which a code stands."""
    return part.origin if isinstance(part, Code) and part.origin else part
