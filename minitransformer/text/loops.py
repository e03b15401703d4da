"""Translations that repeat themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from minitransformer.text.words import WORD

LOOP_WORDS = 4  # fewest words of a repetition
LOOP_CHARACTERS = 8  # fewest characters of a repetition, in scripts without blanks between words
NEAR = 1.5  # times the length of a repetition: the distance at which a second occurrence is a loop


def repetition(translation: str, source: str) -> str:
    """Return the words that a translation repeats more often than its source warrants; "" if there are none.

    Four words in a row may occur as often as the most frequent two words in a row of the source.  Otherwise they may
    occur twice if the two occurrences are far apart, as in "on her lap … on her lap".
    """
    words = WORD.findall(translation)
    if len(set(words)) == len(words):
        return ""
    n = LOOP_WORDS if len(translation.split()) * 2 > len(words) else LOOP_CHARACTERS
    warranted = max(1, *(len(places) for places in _places(WORD.findall(source), 2).values()), 0)
    for run, places in _places(words, n).items():
        is_loop = len(places) > 2 or places[-1] - places[0] <= NEAR * n
        if len(places) > warranted and is_loop:
            return " ".join(run)
    return ""


def _places(words: Sequence[str], n: int) -> dict[tuple[str, ...], list[int]]:
    """Return the indices at which each ``n`` words in a row begin."""
    found = defaultdict[tuple[str, ...], list[int]](list)
    for i, run in enumerate(zip(*(words[i:] for i in range(n)), strict=False)):
        found[run].append(i)
    return found
