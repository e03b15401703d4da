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
SubwordModels = tuple[bytes | None, bytes | None]  # sentencepiece's, of source and target, if there are any


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
        return cls.in_our_order(ids, (unknown, start, end))

    @classmethod
    def in_our_order(cls, ids: Mapping[str, int], symbols: tuple[str, str, str]) -> Vocabulary:
        """Return a vocabulary from the foreign id of each word; the symbols come first, and may be missing."""
        words = (*symbols, *(word for word in sorted(ids, key=ids.__getitem__) if word not in symbols))
        return cls(words, tuple(map(ids.get, words)))

    @property
    def n_foreign(self) -> int:
        """The number of words that the foreign model has."""
        return len(self.rows) - self.rows.count(None)

    def with_words(self, words: Iterable[str]) -> Vocabulary:
        """Return this vocabulary with more words, which the foreign model lacks."""
        more = tuple(words)
        return Vocabulary(self.words + more, self.rows + (None,) * len(more))

    def matrix(self, foreign: Array) -> Array:
        """Return the rows of an embedding in our order.  Shapes: (foreign words, D) → (words, D).

        Raises: ConversionError if it has another number of rows than the vocabulary has words.
        """
        if foreign.shape[:1] != (self.n_foreign,):
            n_rows = len(foreign) if foreign.ndim else "no"
            raise ConversionError(
                f"vocabulary: it has {self.n_foreign} words, but the model {n_rows}; restore its file"
            )
        rows: Array = foreign[np.array([self.rows[0] if row is None else row for row in self.rows])]
        return rows

    def bias(self, foreign: Array | None) -> Array | None:
        """Return the bias of each word's logit, or None if it is 0 for all.  Shapes: (foreign words,) → (words,)."""
        values = np.zeros(len(self.rows), np.float32) if foreign is None else self.matrix(foreign)
        values[[row is None for row in self.rows]] = IMPOSSIBLE
        return values if values.any() else None


def with_tokenizer(
    source: Vocabulary, target: Vocabulary, models: SubwordModels
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


def embeddings(
    source: Vocabulary, target: Vocabulary, tables: tuple[Array, Array, Array], bias: Array | None = None
) -> dict[str, Array]:
    """Return the embeddings, the matrix of the softmax and its bias under our names.

    Matrices with the same numbers are stored once, if our model can have them as one (``tied``).

    Args:
        tables: embeddings of source and target, and the matrix of the softmax, in the foreign order.
        bias: the bias of the softmax, if there is one; axes of length 1 are left out.

    Raises: ConversionError if a table has another number of rows than its vocabulary has words.
    """
    of_source, of_target, output = (
        side.matrix(table) for side, table in zip((source, target, target), tables, strict=True)
    )
    weights = {"source_embedding.weight": of_source}
    is_output = np.array_equal(of_target, output)
    if not (is_output and source.words == target.words and np.array_equal(of_source, of_target)):
        weights["target_embedding.weight"] = of_target
    if not is_output:
        weights["projection.weight"] = output
    softmax_bias = target.bias(None if bias is None else bias.ravel())
    return weights if softmax_bias is None else {**weights, "softmax_bias": softmax_bias}


def vocabulary_settings(source: Vocabulary, target: Vocabulary, weights: Mapping[str, Array]) -> dict[str, Any]:
    """Return the settings of ``ModelConfig`` that follow from the vocabularies and from ``embeddings``."""
    tied = "target" if "target_embedding.weight" in weights else "all"
    return {
        "vocabulary_size": len(target.words),
        "source_vocabulary_size": len(source.words) if len(source.words) != len(target.words) else None,
        "softmax_bias": "softmax_bias" in weights,
        "tied": "none" if "projection.weight" in weights else tied,
    }
