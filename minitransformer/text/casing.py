"""Lines in capitals, and lines With Every Word Capitalised: a model reads them as ordinary sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from minitransformer.data.languages import without_region
from minitransformer.data.tokenizer import Tokenizer

Form: TypeAlias = Literal["sentence", "capitals", "title"]

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_TWO_LETTERS = re.compile(r"[^\W\d_]{2}")
_ENGLISH_I = re.compile(r"\bi\b")
_TURKISH = ("tr", "az")  # i and İ, ı and I are the pairs of these languages
_TO_LOWER, _TO_UPPER = str.maketrans({"I": "ı", "İ": "i"}), str.maketrans({"i": "İ", "ı": "I"})
_FEWEST_WORDS = 4  # of a line in title case: fewer capitalised words may be names
_LONG_WORD = 4  # letters: titles may have shorter words, such as "of", in lower case


def form_of(text: str) -> Form:
    """Return how a text is written.

    "capitals": all letters are capitals, and two of them stand in a row.  "title": at least four words begin with a
    capital, among them all words of four letters and more, and no word is in capitals throughout.
    """
    if text[1:].islower():
        return "sentence"
    if text.isupper():
        return "capitals" if _TWO_LETTERS.search(text) else "sentence"
    words = _WORD.findall(text)
    capitalised = [word for word in words if word[0].isupper() and not (len(word) > 1 and word.isupper())]
    others = [word for word in words if not word[0].isupper()]
    is_title = len(capitalised) >= _FEWEST_WORDS and len(others) * 2 < len(words)
    return "title" if is_title and all(len(word) < _LONG_WORD for word in others) else "sentence"


def in_sentence_case(texts: Sequence[str], language: str | None, tokenizer: Tokenizer) -> list[str]:
    """Return the pieces of a sentence in capitals or title case as an ordinary sentence.

    The tokenizer chooses between "haus" and "Haus": the spelling with fewer subwords, or else the lower case, is the
    one that its training text had.  The first word begins with a capital.
    """
    words = [word for text in texts for word in _WORD.findall(text)]
    lowered = [_lower(word, language) for word in words]
    spellings = [spelling for word in lowered for spelling in (word, _capitalised(word, language))]
    n_pieces = iter(map(len, tokenizer.encode_source(spellings)))
    chosen = [
        capital if n_capital < n_lower else lower
        for lower, capital, n_lower, n_capital in zip(spellings[::2], spellings[1::2], n_pieces, n_pieces, strict=True)
    ]
    if without_region(language or "") == "en":
        chosen = [_ENGLISH_I.sub("I", word) for word in chosen]
    chosen[:1] = [_capitalised(word, language) for word in chosen[:1]]
    remaining = iter(chosen)
    return [_WORD.sub(lambda match: next(remaining), text) for text in texts]


def in_form(text: str, form: Form, language: str | None) -> str:
    """Return a text in capitals or in title case, by the rules of its language."""
    if form == "capitals":
        return _upper(text, language)
    return _WORD.sub(lambda match: _capitalised(match[0], language), text) if form == "title" else text


def _lower(text: str, language: str | None) -> str:
    return (text.translate(_TO_LOWER) if without_region(language or "") in _TURKISH else text).lower()


def _upper(text: str, language: str | None) -> str:
    code = without_region(language or "")
    if code == "de":  # GROẞ, the first spelling in the rules of 2024 (Rat für deutsche Rechtschreibung, § 25 E3)
        text = text.replace("ß", "ẞ")
    return (text.translate(_TO_UPPER) if code in _TURKISH else text).upper()


def _capitalised(word: str, language: str | None) -> str:
    return _upper(word[0], language) + word[1:]
