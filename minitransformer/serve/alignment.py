"""The source words to which each word of a translation attends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autograd.array import FloatArray
from minitransformer.inference.attention import attention_weights, without_key
from minitransformer.inference.translator import Translator

MOST_TOKENS = 256  # of a side: the work grows with the product of both, and more cannot be read
_WORD_START = "▁"  # sentencepiece's mark


@dataclass(frozen=True, eq=False)
class Alignment:
    """The words of both sides, and the weights (target words, source words); each row sums to 1."""

    source: list[str]
    target: list[str]
    weights: FloatArray


class TooLongError(ValueError):
    """An error: a side has more than MOST_TOKENS tokens."""


def alignment(translator: Translator, source: str, target: str) -> Alignment:
    """Compute encoder-decoder attention between words: the mean over all layers and heads.

    The end symbol is left out.  The weights of a word's pieces are added if it is attended to, and averaged if it
    attends.

    Raises: TooLongError.
    """
    tokenizer = translator.tokenizer
    source_ids, target_ids = tokenizer.encode_source([source])[0], tokenizer.encode_target([target])[0]
    if max(len(source_ids), len(target_ids)) > MOST_TOKENS:
        raise TooLongError(f"attention: a sentence has more than {MOST_TOKENS} tokens")
    sides = tokenizer.source_pieces(source), tokenizer.target.encode(target, out_type=str)
    keys, queries = (_starts_of_words(pieces) for pieces in sides)
    if not keys or not queries:
        return Alignment([], [], np.zeros((0, 0), np.float32))
    weights = attention_weights(translator.model, source_ids, target_ids).encoder_decoder.mean((0, 1))[:-1]
    if translator.model.config.source_end:
        weights = without_key(weights, -1)
    by_word = np.add.reduceat(np.add.reduceat(weights, keys, axis=1), queries, axis=0)
    return Alignment(
        _words(sides[0], keys), _words(sides[1], queries), by_word / by_word.sum(axis=1, keepdims=True).clip(1e-9)
    )


def _starts_of_words(pieces: Sequence[str]) -> list[int]:
    """Return the index of each word's first piece; a lone mark belongs to the word after it."""
    starts = list[int]()
    for i, piece in enumerate(pieces):
        continues = i > 0 and (not piece.startswith(_WORD_START) or pieces[i - 1] == _WORD_START)
        if not continues:
            starts.append(i)
    return starts


def _words(pieces: Sequence[str], starts: Sequence[int]) -> list[str]:
    ends = [*starts[1:], len(pieces)]
    return ["".join(pieces[a:b]).replace(_WORD_START, "") for a, b in zip(starts, ends, strict=True)]
