"""Search for sequences of symbols that are trees over the words of the sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autograd.ops.likeliest import IntArray
from minitransformer.symbols import END
from minitransformer.trees.linear import PUNCTUATION, WORD, looks

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]

DEEPEST = 100  # brackets open at once; CRAFT, GUM and the sample of the Penn Treebank have up to 30
MOST_AT_ONCE = 12  # that open in a row: up to 8 there; a model that has learnt little opens them for ever
_LOOKS = [WORD, *sorted(PUNCTUATION)]
_ANY = len(_LOOKS)  # the look of a word that any leaf may stand for
_UNSURE = {":", "''", "#"}  # looks of signs that treebanks tag as SYM, HYPH, POS or NN as well: "–", "'", "#"
_NO_LABEL = -1


class BracketVocabulary:
    """What the tokens of a target vocabulary do to a tree: open, close, stand for a word.

    Shapes: ``opens``, ``closes``, ``is_leaf`` (W,); ``label`` (W,) the same number for "(NP" and ")NP", −1 for other
    tokens; ``unlike`` (looks + 1, W) the leaves that cannot stand for a word of that look, in the last row none.
    """

    def __init__(self, symbols: Sequence[str]) -> None:
        self.opens: BoolArray = np.array([symbol.startswith("(") for symbol in symbols])
        self.closes: BoolArray = np.array([symbol.startswith(")") for symbol in symbols])
        self.is_leaf: BoolArray = ~(self.opens | self.closes)
        self.is_leaf[: END + 1] = False  # reserved ids
        names = {name: number for number, name in enumerate(dict.fromkeys(symbol[1:] for symbol in symbols))}
        self.label = np.where(self.opens | self.closes, [names[symbol[1:]] for symbol in symbols], _NO_LABEL)
        look = np.array([symbol if symbol in PUNCTUATION else WORD for symbol in symbols])
        self.unlike: BoolArray = self.is_leaf & (look != np.array([*_LOOKS, ""])[:, None])
        self.unlike[~(self.is_leaf & ~self.unlike).any(axis=1)] = False  # no leaf is like that: any may stand for it

    @staticmethod
    def makes_trees(symbols: Sequence[str]) -> bool:
        """Whether there are labelled brackets; no subword joins a bracket with letters."""
        return any(
            symbol.startswith("(") and symbol[1:2].isalpha() and f"){symbol[1:]}" in symbols for symbol in symbols
        )


class BracketConstraint:
    """Of each hypothesis the open brackets and the words that are left.

    A leaf or an opening needs a word that is left; a word with letters or digits has no punctuation mark for its leaf,
    a comma, a full stop, a bracket has one of its kind, and any leaf may stand for what treebanks do not agree about,
    and for "US$", which the Penn Treebank tags "$"; a closing must close the innermost bracket, which holds a leaf;
    the end comes when no word is left and no bracket is open.  Hypotheses of probability 0 are followed without sense.

    Shapes: rows are hypotheses: ``stack`` (rows, DEEPEST), ``looks`` (rows, longest sentence), the others (rows,).
    """

    def __init__(self, vocabulary: BracketVocabulary, sentences: Sequence[Sequence[str]]) -> None:
        self.vocabulary, rows = vocabulary, len(sentences)
        self.n_words: IntArray = np.array([len(words) for words in sentences], np.int64)
        self.looks: IntArray = np.zeros((rows, 1 + max(self.n_words, default=0)), np.int64)
        for row, words in enumerate(sentences):
            self.looks[row, : len(words)] = [_row_of_look(word) for word in words]
        self.n_leaves: IntArray = np.zeros(rows, np.int64)
        self.depth: IntArray = np.zeros(rows, np.int64)
        self.stack: IntArray = np.full((rows, DEEPEST), _NO_LABEL)
        self.n_empty: IntArray = np.zeros(rows, np.int64)  # innermost brackets that hold no leaf yet

    def forbidden(self) -> BoolArray:
        """Which tokens may not follow: (rows, W)."""
        v, rows = self.vocabulary, np.arange(len(self.depth))
        is_over = self.n_leaves >= self.n_words
        is_full = (self.depth == DEEPEST) | (self.n_empty == MOST_AT_ONCE)
        innermost = np.where(self.depth > 0, self.stack[rows, self.depth - 1], _NO_LABEL)
        forbidden: BoolArray = v.unlike[self.looks[rows, np.minimum(self.n_leaves, self.n_words)]].copy()
        forbidden |= is_over[:, None] & v.is_leaf | (is_over | is_full)[:, None] & v.opens
        forbidden |= v.closes & ((v.label != innermost[:, None]) | (self.n_empty > 0)[:, None])
        forbidden[:, END] = ~is_over | (self.depth > 0)
        return forbidden

    def follow(self, rows: IntArray, tokens: IntArray) -> None:
        """Go on with these rows, each followed by its token."""
        self.keep(rows)
        v = self.vocabulary
        opens, closes = v.opens[tokens] & (self.depth < DEEPEST), v.closes[tokens] & (self.depth > 0)
        self.stack[np.flatnonzero(opens), self.depth[opens]] = v.label[tokens[opens]]
        self.depth += opens.astype(np.int64) - closes
        self.n_leaves += v.is_leaf[tokens]
        self.n_empty = np.where(opens, self.n_empty + 1, 0)

    def keep(self, rows: IntArray) -> None:
        """Go on with these rows only."""
        self.n_words, self.looks, self.n_leaves = self.n_words[rows], self.looks[rows], self.n_leaves[rows]
        self.depth, self.stack, self.n_empty = self.depth[rows], self.stack[rows], self.n_empty[rows]


def _row_of_look(word: str) -> int:
    """Which row of ``BracketVocabulary.unlike`` says what cannot stand for this word."""
    look = looks(word)
    is_sign = word.endswith("$") or not any(character.isalnum() for character in word)
    is_unsure = look in _UNSURE or (look == WORD and is_sign)
    return _ANY if is_unsure else _LOOKS.index(look)
