"""Trees as sequences of symbols, and back from whatever sequence a model makes.

Source: Vinyals et al. 2015, "Grammar as a Foreign Language", section 2.2 and figure 1: brackets depth first, closing
ones with their label, words left out and their tags made alike: (S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from minitransformer.config import LeafSymbols
from minitransformer.trees.tree import Closing, Leaf, Opening, Step, Tree, without_empty

WORD = "XX"  # the symbol of a word of any tag
MOST_MISSING = 500  # leaves that are looked for; a line of a million words must not take gigabytes to align

PUNCTUATION = {"-LRB-", "-RRB-", "$", "#", ",", ".", ":", "``", "''"}  # tags that say what the word looks like
_LOOKS = (
    (re.compile(r"-LRB-|-LCB-|-LSB-|[(\[{]"), "-LRB-"),
    (re.compile(r"-RRB-|-RCB-|-RSB-|[)\]}]"), "-RRB-"),
    (re.compile(r"``|[“‘]"), "``"),
    (re.compile(r"''|\"|[”’']"), "''"),
    (re.compile(r"[.?!]"), "."),
    (re.compile(r"[:;]|--|\.\.\.|[–—…]"), ":"),
    (re.compile(r"[,$#]"), ""),
)


def linearised(tree: Tree, leaves: LeafSymbols = "normalised") -> list[str]:
    """The symbols of a tree: "(NP" opens, ")NP" closes, and every leaf is a symbol.

    Args:
        leaves: "normalised" leaves tags of punctuation and makes all others XX, as in the source; "tags" leaves all
            tags, as tensor2tensor does.
    """
    symbols = []
    for step in tree.walk:
        match step:
            case Opening(label):
                symbols.append(f"({label}")
            case Closing(label):
                symbols.append(f"){label}")
            case Leaf(tag, _):
                symbols.append(tag if leaves == "tags" or tag in PUNCTUATION else WORD)
    return symbols


def tree_of(symbols: Sequence[str], words: Sequence[str]) -> Tree:
    """The tree over exactly these words that the symbols tell, mended where they tell none.

    The inverse of ``linearised``, but for tags that were normalised.  A closing bracket closes what stands open within
    its own, and is left out if nothing of its label is open; what is open at the end is closed.  Where there are more
    or fewer leaves than words, leaves and words are aligned, punctuation with its like; surplus leaves are left out,
    words without a leaf stand beside their neighbour to the left, and brackets around nothing are left out.
    """
    rows = iter(_rows_of_leaves([symbol for symbol in symbols if not _is_bracket(symbol)], words))
    walk: list[Step] = []
    open_labels: list[str] = []
    for symbol in symbols:
        if symbol.startswith("("):
            open_labels.append(symbol[1:])
            walk.append(Opening(symbol[1:]))
        elif symbol.startswith(")"):
            walk += _closings(open_labels, symbol[1:])
        else:
            walk += next(rows)
    walk += [Closing(label) for label in reversed(open_labels)]
    walk += next(rows, [])  # words of a sequence without leaves
    return Tree(tuple(without_empty(walk)))


def _is_bracket(symbol: str) -> bool:
    return symbol.startswith(("(", ")"))


def _closings(open_labels: list[str], label: str) -> Iterable[Closing]:
    """The closings down to the innermost open bracket of this label, which leaves the stack; none if there is none."""
    if label not in open_labels:
        return
    while (innermost := open_labels.pop()) != label:
        yield Closing(innermost)
    yield Closing(label)


def _rows_of_leaves(symbols: Sequence[str], words: Sequence[str]) -> list[list[Leaf]]:
    """For every symbol its word, if it has one, and words without a symbol that follow it, or precede the first."""
    rows: list[list[Leaf]] = [[] for _ in symbols] or [[]]
    place = 0
    for word, own in zip(words, _matched(symbols, words), strict=True):
        place = place if own is None else own
        rows[place].append(Leaf(looks(word) if own is None else symbols[own], word))
    return rows


def looks(word: str) -> str:
    """The symbol that a word has in all likelihood: its tag, if it is punctuation, else XX."""
    return next((tag or word for pattern, tag in _LOOKS if pattern.fullmatch(word)), WORD)


def _matched(symbols: Sequence[str], words: Sequence[str]) -> list[int | None]:
    """For every word the place of its symbol, in order, or None: the alignment of least cost.

    Of equal ones that which pairs the first ones: a model loses count late.  The search stops at its greatest length,
    whatever a line holds, so only words up to MOST_MISSING more than there are symbols are looked at.

    Source: Needleman and Wunsch 1970.
    """
    if len(symbols) == len(words):
        return list(range(len(words)))
    matched: list[int | None] = [None] * len(words)
    i, j = len(symbols), min(len(words), len(symbols) + MOST_MISSING)
    costs = _costs(symbols, words[:j])
    while i and j:
        if costs[i][j] == costs[i - 1][j] + _ALONE:
            i -= 1
        elif costs[i][j] == costs[i][j - 1] + _ALONE:
            j -= 1
        else:
            i, j = i - 1, j - 1
            matched[j] = i
    return matched


_ALONE, _UNLIKE = 3, 4  # what it costs to leave one over, and to pair two that do not look alike


def _costs(symbols: Sequence[str], words: Sequence[str]) -> list[list[int]]:
    """The least cost of aligning the first i symbols with the first j words."""
    costs = [[_ALONE * j for j in range(len(words) + 1)]]
    expected = [looks(word) for word in words]
    for i, symbol in enumerate(symbols, 1):
        look = symbol if symbol in PUNCTUATION else WORD
        above, row = costs[-1], [_ALONE * i]
        for j, wanted in enumerate(expected, 1):
            together = above[j - 1] + (0 if look == wanted else _UNLIKE)
            row.append(min(together, above[j] + _ALONE, row[-1] + _ALONE))
        costs.append(row)
    return costs
