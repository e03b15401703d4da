"""The tokenizer that gives the words of a foreign model their ids, and the embeddings under these ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minitransformer.convert.parts import Array, ConversionError, Vocabulary
from minitransformer.convert.pieces import with_ids_of, word_model, words_beyond
from minitransformer.data.tokenizer import Tokenizer

SubwordModels = tuple[bytes | None, bytes | None]  # sentencepiece's, of source and target, if there are any


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
