"""The words of a foreign model in our order, and the tokenizer that gives their ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitransformer.convert.parts import ConversionError
from minitransformer.convert.pieces import with_ids_of, word_model, words_beyond
from minitransformer.data.tokenizer import Tokenizer

IMPOSSIBLE = -1e4  # logit of a word that the foreign model lacks: its probability rounds to 0; float16 can store it

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary in our order: unknown word, start, end, then all other words in the foreign order.

    ``rows`` has the foreign id of each word, or None if the foreign model lacks the word.  Such a word gets the row of
    the unknown word, because the foreign model would read it as unknown.
    """

    words: tuple[str, ...]
    rows: tuple[int | None, ...]

    @classmethod
    def of(cls, ids: Mapping[str, int], *, unknown: str, start: str, end: str) -> Vocabulary:
        """Return a vocabulary from the foreign id of each word; the start symbol may be missing.

        Raises: ConversionError if the ids are not 0, 1, 2 …, or if the unknown word or the end is missing.
        """
        if sorted(ids.values()) != list(range(len(ids))):
            raise ConversionError(f"vocabulary: expected the ids 0 to {len(ids) - 1}, one for each of {len(ids)} words")
        for symbol in (unknown, end):
            if symbol not in ids:
                raise ConversionError(f"vocabulary: it has no {symbol}")
        symbols = (unknown, start, end)
        words = (*symbols, *(word for word in sorted(ids, key=ids.__getitem__) if word not in symbols))
        return cls(words, tuple(map(ids.get, words)))

    def with_words(self, words: Iterable[str]) -> Vocabulary:
        """Return this vocabulary with more words, which the foreign model lacks."""
        more = tuple(words)
        return Vocabulary(self.words + more, self.rows + (None,) * len(more))

    def matrix(self, foreign: Array) -> Array:
        """Return the rows of an embedding in our order.  Shapes: (foreign words, D) → (words, D).

        Raises: ConversionError if it has another number of rows than the vocabulary has words.
        """
        n_words = len(self.rows) - self.rows.count(None)
        if len(foreign) != n_words:
            raise ConversionError(f"vocabulary: it has {n_words} words, but the model {len(foreign)}; restore its file")
        rows: Array = foreign[np.array([self.rows[0] if row is None else row for row in self.rows])]
        return rows

    def bias(self, foreign: Array | None) -> Array | None:
        """Return the bias of each word's logit, or None if it is 0 for all.  Shapes: (foreign words,) → (words,)."""
        values = np.zeros(len(self.rows), np.float32) if foreign is None else self.matrix(foreign)
        values[[row is None for row in self.rows]] = IMPOSSIBLE
        return values if values.any() else None


def with_tokenizer(
    source: Vocabulary, target: Vocabulary, models: tuple[bytes | None, bytes | None]
) -> tuple[Vocabulary, Vocabulary, Tokenizer]:
    """Return the tokenizer of two vocabularies and two sentencepiece models, and the vocabularies with all its pieces.

    Without a sentencepiece model, words are separated by blanks.  Two equal vocabularies stay equal, because their
    model may have one embedding.
    """
    sides = zip(models, (source, target), strict=True)
    beyond = [[] if model is None else words_beyond(model, side.words) for model, side in sides]
    if source == target:
        source = target = source.with_words(dict.fromkeys(beyond[0] + beyond[1]))
    else:
        source, target = source.with_words(beyond[0]), target.with_words(beyond[1])
    sides = zip(models, (source, target), strict=True)
    ours = [word_model(side.words) if model is None else with_ids_of(model, side.words) for model, side in sides]
    try:
        return source, target, Tokenizer(ours[0]) if ours[0] == ours[1] else Tokenizer(*ours)
    except RuntimeError as error:  # of sentencepiece
        raise ConversionError(f"vocabulary: no tokenizer can have its words ({error}); restore its file") from error
