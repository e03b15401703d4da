"""Sentences of a text, by the rules and abbreviations of its language in sentencex."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TypeAlias

from minitransformer.config import ConfigError
from minitransformer.data.languages import LANGUAGES, without_region

Split: TypeAlias = Callable[[str], Sequence[str]]
LINE = re.compile(r"[^\n]*\n|[^\n]+")


class SentenceSplitter:
    """A function that cuts a text into sentences by the rules and abbreviations of a language in sentencex.

    The sentences of a text, joined, are the text.  A line end also ends a sentence.  A region or script after the
    language ("de-AT") changes nothing.  For a language without rules of its own, sentencex uses the rules of another
    language.
    Raises: ConfigError if ``language`` is no code of ISO 639-1.
    """

    def __init__(self, language: str) -> None:
        self.language = without_region(language)
        if self.language not in LANGUAGES:  # sentencex would use English rules, so nobody would notice a wrong code
            raise ConfigError(
                f'language {language!r}: expected a code such as "en" or "de"; for a language without a code of two'
                " letters, give that of a language with similar abbreviations"
            )

    def __call__(self, text: str) -> list[str]:
        """Return the sentences of a text, each with the whitespace after it; the sentences, joined, are the text."""
        segment = import_module("sentencex").segment  # when it is needed: search without a road does without
        found = list[str]()
        for line in LINE.findall(text):
            for piece in segment(self.language, line):
                if found and not (piece.strip() and found[-1].strip()):
                    found[-1] += piece
                else:
                    found.append(piece)
        return found


def needs_blank(sentence: str, translation: str) -> bool:
    """Return whether a blank must follow ``translation``, although no blank follows ``sentence``.

    Chinese and Japanese have no blank between sentences.
    """
    return _is_wide(sentence) and translation != "" and not _is_wide(translation)


def _is_wide(text: str) -> bool:
    """Return whether the last letter or digit of a text has full width, as in Chinese and Japanese."""
    last = next(filter(str.isalnum, reversed(text)), text[-1:])
    return last != "" and unicodedata.east_asian_width(last) in ("W", "F")
