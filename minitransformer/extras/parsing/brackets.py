"""A search constraint: every generated sequence of symbols is a tree over the words of the sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from autograd.array import BoolArray, IntArray
from minitransformer.extras.parsing.linear import PUNCTUATION, WORD, looks
from minitransformer.model.symbols import END, UNKNOWN

DEEPEST = 100  # open brackets; CRAFT, GUM and the sample of the Penn Treebank have up to 30
MOST_AT_ONCE = 12  # opening brackets in a row; these treebanks have up to 8, an untrained model would never stop
_LOOKS = [WORD, *sorted(PUNCTUATION)]
_ANY = len(_LOOKS)  # row of ``unlike`` for a word that may have any leaf; the lexicon's rows follow
_UNSURE = {":", "''", "#"}  # looks of signs that treebanks also tag as SYM, HYPH, POS or NN: "–", "'", "#"
_NO_LABEL = -1


class BracketVocabulary:
    """The kinds of a target vocabulary's tokens: opening bracket, closing bracket, or leaf (one word).

    A word's look is its punctuation tag, or WORD.  ``label`` is the same number for "(NP" and ")NP", and −1 for leaves.
    ``unlike`` marks forbidden leaves.  It has a row for each look, then a row that forbids no leaf, then a row for each
    word of the lexicon.  A word's row forbids the leaves that the word never had in training.

    Shapes: ``opens``, ``closes``, ``is_leaf``, ``label`` (W,); ``unlike`` (looks + 1 + words of the lexicon, W).
    """

    def __init__(self, symbols: Sequence[str], lexicon: Mapping[int, Sequence[int]] = MappingProxyType({})) -> None:
        self.opens: BoolArray = np.array([symbol.startswith("(") for symbol in symbols])
        self.closes: BoolArray = np.array([symbol.startswith(")") for symbol in symbols])
        self.is_leaf: BoolArray = ~(self.opens | self.closes)
        self.is_leaf[: END + 1] = False  # reserved ids
        names = {name: number for number, name in enumerate(dict.fromkeys(symbol[1:] for symbol in symbols))}
        self.label = np.where(self.opens | self.closes, [names[symbol[1:]] for symbol in symbols], _NO_LABEL)
        look = np.array([symbol if symbol in PUNCTUATION else WORD for symbol in symbols])
        self.unlike: BoolArray = self.is_leaf & (look != np.array([*_LOOKS, ""])[:, None])
        self.unlike[~(self.is_leaf & ~self.unlike).any(axis=1)] = False  # the vocabulary has no such leaf: allow any
        self._row_in_lexicon = {word: row for row, word in enumerate(lexicon, len(self.unlike))}
        never_had = np.tile(self.is_leaf, (len(lexicon), 1))
        for row, leaves in zip(never_had, lexicon.values(), strict=True):
            row[leaves] = False
        self.unlike = np.concatenate([self.unlike, never_had])

    def row_of(self, word: str, word_id: int) -> int:
        """Return the row of ``unlike`` for a word: the row of its id, or the row of its look if no row has the id."""
        return self._row_in_lexicon.get(word_id, _row_of_look(word))


class BracketConstraint:
    """The open brackets and the remaining words of each hypothesis, and the tokens that they allow.

    - An opening bracket or a leaf needs a remaining word.  DEEPEST and MOST_AT_ONCE limit opening brackets.
    - A word of the lexicon needs a leaf that it had in training.  For other words, the word's look decides.
    - A word with letters or digits cannot have a punctuation mark as its leaf.  A comma, a full stop or a bracket needs
      a leaf of its kind.  Treebanks give some signs different tags, so any leaf is allowed for these signs.  Any leaf
      is also allowed for a word that ends in "$", because the Penn Treebank tags "US$" as "$".
    - A closing bracket must match the innermost open bracket, which must contain a leaf.
    - The end symbol needs all words used and all brackets closed.

    The search may continue hypotheses of probability 0 with forbidden tokens; their state then has no meaning.

    Args:
        ids: the token ids of each sentence.  The lexicon is used only if each word of a sentence has one id.

    Shapes: each row is a hypothesis: ``stack`` (rows, DEEPEST), ``looks`` (rows, 1 + length of the longest sentence),
        all other arrays (rows,).
    """

    def __init__(
        self, vocabulary: BracketVocabulary, sentences: Sequence[Sequence[str]], ids: Sequence[Sequence[int]] = ()
    ) -> None:
        self.vocabulary, rows = vocabulary, len(sentences)
        self.n_words: IntArray = np.array([len(words) for words in sentences], np.int64)
        self.looks: IntArray = np.zeros((rows, 1 + max(self.n_words, default=0)), np.int64)
        for row, words in enumerate(sentences):
            its_ids = ids[row] if ids and len(ids[row]) == len(words) else [UNKNOWN] * len(words)
            self.looks[row, : len(words)] = list(map(vocabulary.row_of, words, its_ids))
        self.n_leaves: IntArray = np.zeros(rows, np.int64)
        self.depth: IntArray = np.zeros(rows, np.int64)
        self.stack: IntArray = np.full((rows, DEEPEST), _NO_LABEL)
        self.n_empty: IntArray = np.zeros(rows, np.int64)  # number of innermost open brackets without a leaf

    def forbidden(self) -> BoolArray:
        """Return a mask (rows, W) of the tokens that may not come next."""
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
        self.select(rows)
        v = self.vocabulary
        opens, closes = v.opens[tokens] & (self.depth < DEEPEST), v.closes[tokens] & (self.depth > 0)
        self.stack[np.flatnonzero(opens), self.depth[opens]] = v.label[tokens[opens]]
        self.depth += opens.astype(np.int64) - closes
        self.n_leaves += v.is_leaf[tokens]
        self.n_empty = np.where(opens, self.n_empty + 1, 0)

    def select(self, rows: IntArray) -> None:
        self.n_words, self.looks, self.n_leaves = self.n_words[rows], self.looks[rows], self.n_leaves[rows]
        self.depth, self.stack, self.n_empty = self.depth[rows], self.stack[rows], self.n_empty[rows]


def _row_of_look(word: str) -> int:
    """Return the row of ``BracketVocabulary.unlike`` with the leaves that are forbidden for this word."""
    look = looks(word)
    is_sign = word.endswith("$") or not any(character.isalnum() for character in word)
    is_unsure = look in _UNSURE or (look == WORD and is_sign)
    return _ANY if is_unsure else _LOOKS.index(look)
