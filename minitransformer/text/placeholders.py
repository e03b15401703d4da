"""Placeholders that a model has read as words: found again in its translation."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from typing import TypeAlias

from minitransformer.text.codes import Code, Part, Parts, textual_codes

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
    found = _replaced(parts, pattern, _occurrences(source, pattern))
    return found if found is not None and _count(found) == _count(source) else None


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


def _replaced(parts: Parts, pattern: re.Pattern[str], occurrences: _Occurrences) -> Parts | None:
    """Replace the words of placeholders by their codes; return None if a word occurs more or less often."""
    found: Parts = []
    for part in parts:
        if isinstance(part, Code):
            found.append(part)
            continue
        end = 0
        for match in pattern.finditer(part):
            if not occurrences[match[0]]:
                return None
            if code := occurrences[match[0]].popleft():
                found += [part[end : match.start()], code]
                end = match.end()
        found.append(part[end:])
    return None if any(occurrences.values()) else [part for part in found if part != ""]


def _count(parts: Sequence[Part]) -> Counter[str]:
    """Return how often each placeholder is in some parts, as a code or within a text."""
    wholes = itertools.chain.from_iterable(textual_codes(part) if isinstance(part, str) else [part] for part in parts)
    return Counter(part.content for part in wholes if isinstance(part, Code) and part.is_placeholder and part.word)
