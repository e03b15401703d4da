"""Characters that a tokenizer does not know: a model does not read them, and a translation has them as they are.

Source: Luong et al. 2015, "Addressing the rare word problem in neural machine translation": copy an unknown word by the
alignment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.symbols import UNKNOWN
from minitransformer.text.codes import Code, Part, Parts, Span, replaced

_JOINERS = "\u200d\ufe0e\ufe0f\u20e3"  # zero width joiner, variation selectors, keycap
_RUN = re.compile(r"\w+|[^\w\s]+|\s+")


class UnknownWord(Code):
    """A word with an unknown letter, in place of which a translation has the word itself."""


class KnownCharacters:
    """The characters that a tokenizer knows."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known, self._unknown = set[str](), set[str]()

    def lacking(self, texts: Sequence[str]) -> list[bool]:
        """Return for each text whether the tokenizer has no subword for some of its characters."""
        if self._tokenizer.spells_no_words:
            return [False] * len(texts)
        self._look_up(set().union(*texts))
        return [not self._unknown.isdisjoint(text) for text in texts]

    def unknown_in(self, text: str) -> str:
        """Return the unknown characters of a text, each once."""
        self._look_up(set(text))
        return "".join(character for character in dict.fromkeys(text) if character in self._unknown)

    def _look_up(self, characters: set[str]) -> None:
        """Find out which of these characters are unknown; a character is unknown in every text, or in none."""
        new = sorted(characters - self._known - self._unknown)
        for character, ids in zip(new, self._tokenizer.encode_source(new), strict=True):
            (self._unknown if UNKNOWN in ids else self._known).add(character)

    def with_codes(self, parts: Sequence[Part]) -> Parts:
        """Return parts in which unknown signs, and words with an unknown letter, are codes.

        A placeholder with unknown characters gets a stand-in: its other characters, if they have a letter or a digit.
        """
        return [self._with_stand_in(part) for part in replaced(parts, self._unknown_spans)]

    def _unknown_spans(self, text: str) -> Iterator[Span]:
        """Yield words with an unknown letter, and unknown signs; emoji that are joined to one sign stay together."""
        for run in _RUN.finditer(text):
            if not (unknown := self.unknown_in(run[0])):
                continue
            if run[0][0].isalnum() or run[0][0] == "_":
                yield *run.span(), [UnknownWord(run[0], is_placeholder=True, stand_in="")]
            else:
                first = f"[{re.escape(unknown)}]"
                signs = re.compile(f"{first}(?:{first}|[{_JOINERS}])*")
                for sign in signs.finditer(text, *run.span()):
                    yield *sign.span(), [Code(sign[0], is_break=sign[0].isspace())]

    def _with_stand_in(self, part: Part) -> Part:
        if isinstance(part, str) or not (unknown := self.unknown_in(part.word)):
            return part
        rest = part.word.translate(dict.fromkeys(map(ord, unknown)))
        return replace(part, stand_in=rest if any(map(str.isalnum, rest)) else "", origin=part)
