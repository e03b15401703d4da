"""Conversion of trees to sequences of symbols, and of a model's sequences, valid or not, to trees.

Source: Vinyals et al. 2015, "Grammar as a Foreign Language", section 2.2 and figure 1: brackets in depth-first order,
closing brackets with their label, and XX for words of any tag: (S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from minitransformer.config import LeafSymbols
from minitransformer.data.lexicon import is_bracket
from minitransformer.extras.parsing.tree import Closing, Leaf, Opening, Step, Tree, without_empty

WORD = "XX"  # the symbol of a word of any tag
MOST_MISSING = 500  # greatest number of missing leaves in an alignment; bounds the memory for a very long line

PUNCTUATION = {"-LRB-", "-RRB-", "$", "#", ",", ".", ":", "``", "''"}  # tags of punctuation
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
    """Return the symbols of a tree: "(NP" opens a constituent, ")NP" closes it, and every leaf is one symbol.

    Args:
        leaves: "normalised" keeps the tags of punctuation and replaces all other tags with XX, as in the source; "tags"
            keeps all tags, as tensor2tensor does.
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


def leaves_of(symbols: Sequence[str]) -> LeafSymbols:
    """Return the kind of a vocabulary's leaves; ``symbols`` has no reserved symbols."""
    leaves = {symbol for symbol in symbols if not is_bracket(symbol)}
    return "normalised" if leaves <= {WORD, *PUNCTUATION} else "tags"


def tree_of(symbols: Sequence[str], words: Sequence[str]) -> Tree:
    """Return the tree of these symbols over exactly these words; repair symbols that are not a valid tree.

    This function is the inverse of ``linearised``, except that normalised tags are lost.  A closing bracket closes the
    innermost open constituent with the same label, and all constituents inside it; if there is none, the bracket is
    dropped.  At the end all open constituents are closed.  If the numbers of leaves and words differ, leaves are
    aligned with words, punctuation with punctuation.  Surplus leaves are dropped, a word without a leaf is put after
    the word to its left, and empty brackets are dropped.
    """
    rows = iter(_rows_of_leaves([symbol for symbol in symbols if not is_bracket(symbol)], words))
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
    walk += next(rows, [])  # all words, if the sequence has no leaves
    return Tree(tuple(without_empty(walk)))


def _closings(open_labels: list[str], label: str) -> Iterable[Closing]:
    """Pop labels down to the innermost one equal to ``label``, and yield their closings.

    Yield nothing if ``label`` is not open.
    """
    if label not in open_labels:
        return
    while (innermost := open_labels.pop()) != label:
        yield Closing(innermost)
    yield Closing(label)


def _rows_of_leaves(symbols: Sequence[str], words: Sequence[str]) -> list[list[Leaf]]:
    """Return a list of leaves for each symbol: the aligned word, and the unaligned words after the aligned word.

    Unaligned words before the first aligned word belong to the first symbol.
    """
    rows: list[list[Leaf]] = [[] for _ in symbols] or [[]]
    index = 0
    for word, own in zip(words, _align(symbols, words), strict=True):
        index = index if own is None else own
        rows[index].append(Leaf(looks(word) if own is None else symbols[own], word))
    return rows


def looks(word: str) -> str:
    """Return the likely symbol of a word: its tag if it is punctuation, else XX."""
    return next((tag or word for pattern, tag in _LOOKS if pattern.fullmatch(word)), WORD)


def _align(symbols: Sequence[str], words: Sequence[str]) -> list[int | None]:
    """Align symbols with words at the least cost; return the index of each word's symbol, None for an unaligned word.

    The indices ascend.  If several alignments have the least cost, prefer to align the first words: models most often
    output too few or too many symbols near the end.  To bound memory, only the first len(symbols) + MOST_MISSING words
    are aligned.

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


_ALONE, _UNLIKE = 3, 4  # cost of an unaligned word or symbol; cost of aligning a word and a symbol of unequal looks


def _costs(symbols: Sequence[str], words: Sequence[str]) -> list[list[int]]:
    """Return the least costs [i][j] of aligning the first i symbols with the first j words."""
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
