"""Placeholders that a model has read as words: found again in its translation."""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from minitransformer.text.codes import Code, Part, Parts, Span, replaced, with_textual_codes

_Occurrences: TypeAlias = dict[str, deque[Code | None]]


def with_placeholders(source: Sequence[Part], parts: Parts) -> Parts | None:
    """Return the parts of a translation with a code for each placeholder that is written there as a word.

    None if a word of a placeholder occurs more or less often than in the source, or if there are other placeholders.
    """
    codes = [part for part in source if isinstance(part, Code) and part.word]
    if not codes:
        return parts
    patterns = sorted({_pattern(code) for code in codes}, key=lambda pattern: (-len(pattern), pattern))
    pattern = re.compile("|".join(patterns))
    occurrences = _occurrences(source, pattern)

    def codes_of(text: str) -> Iterator[Span]:
        for match in pattern.finditer(text):
            if code := occurrences[match[0]].popleft():
                yield *match.span(), [code]

    try:
        found = replaced(parts, codes_of)
    except IndexError:  # a word occurs more often than in the source
        return None
    return None if any(occurrences.values()) or _count(found) != _count(source) else found


def _pattern(code: Code) -> str:
    return re.escape(code.word) if code.stand_in is None else rf"(?<!\w){re.escape(code.word)}(?!\w)"


def _occurrences(source: Sequence[Part], pattern: re.Pattern[str]) -> _Occurrences:
    """Return for each word its occurrences in the source: a code, or None for a word of the text itself."""
    found: _Occurrences = defaultdict(deque)
    for part in source:
        if isinstance(part, Code) and part.word:
            found[part.word].append(part)
        elif isinstance(part, str):
            for word in pattern.findall(part):
                found[word].append(None)
    return found


def _count(parts: Sequence[Part]) -> Counter[str]:
    """Return how often each placeholder is in some parts, as a code or within a text."""
    codes = (part for part in with_textual_codes(parts) if isinstance(part, Code))
    return Counter(code.content for code in codes if code.is_placeholder and code.word)
