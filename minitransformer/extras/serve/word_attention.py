"""Attention weights between the words of a translation and the words of its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autograd.array import FloatArray
from minitransformer.extras.report.merging import weights_of_words, without_key
from minitransformer.inference.attention import attention_weights, word_starts
from minitransformer.inference.translator import Translator
from minitransformer.model.symbols import BLANK, language_code
from minitransformer.text.casing import form_of, in_form, in_sentence_case

MOST_TOKENS = 256  # of a side: the work grows with the product of both sides, and a larger table is not readable


@dataclass(frozen=True, eq=False)
class WordAttention:
    """The words of both sides, and the attention weights (target words, source words); each row sums to 1."""

    source: list[str]
    target: list[str]
    weights: FloatArray


class TooLongError(ValueError):
    """An error: a side has more than MOST_TOKENS tokens, or more tokens than the model can read."""


def attention_cost(translator: Translator, source: str, target: str, tag: str | None = None) -> int:
    """Return the number of tokens of both sides together.  Raises: TooLongError."""
    sides = _encode(translator, source, target, tag)
    longest = min(MOST_TOKENS, translator.longest_source)
    if max(map(len, sides)) > longest:
        raise TooLongError(f"attention: a sentence has more than {longest} tokens")
    return sum(map(len, sides))


def word_attention(translator: Translator, source: str, target: str, tag: str | None = None) -> WordAttention:
    """Compute encoder-decoder attention between words: the mean over all layers and heads, without end symbols.

    ``tag`` is the target language of a model that was trained with tags; no word attends to the tag.
    """
    tokenizer = translator.tokenizer
    source_ids, target_ids = _encode(translator, source, target, tag)
    read = _read_texts(translator, source, target, tag)
    sides = tokenizer.source_pieces(read[0])[tag is not None :], tokenizer.target_pieces(read[1])
    keys, queries = (word_starts(pieces) for pieces in sides)
    if not keys or not queries:
        return WordAttention([], [], np.zeros((0, 0), np.float32))
    weights = attention_weights(translator.model, source_ids, target_ids).encoder_decoder.mean((0, 1))[:-1]
    if translator.model.config.source_end:
        weights = without_key(weights, -1)
    if tag is not None:
        weights = without_key(weights, 0)
    source_words, target_words = (
        [in_form(word, form_of(text), language) for word in _words(pieces, starts)]
        for text, language, pieces, starts in zip(
            (source, target), _languages(translator, tag), sides, (keys, queries), strict=True
        )
    )
    return WordAttention(source_words, target_words, weights_of_words(weights, queries, keys))


def _languages(translator: Translator, tag: str | None) -> tuple[str | None, str | None]:
    """Return the languages of source and target."""
    return translator.profile.source, tag or translator.profile.target


def _read_texts(translator: Translator, source: str, target: str, tag: str | None) -> tuple[str, str]:
    """Return texts as the model reads them: in sentence case, and the source behind its tag."""
    forms = zip((source, target), _languages(translator, tag), strict=True)
    source, target = (
        text if form_of(text) == "sentence" else in_sentence_case([text], language, translator.tokenizer)[0]
        for text, language in forms
    )
    return source if tag is None else f"{language_code(tag)} {source}", target


def _encode(translator: Translator, source: str, target: str, tag: str | None) -> tuple[list[int], list[int]]:
    source, target = _read_texts(translator, source, target, tag)
    return translator.tokenizer.encode_source([source])[0], translator.tokenizer.encode_target([target])[0]


def _words(pieces: Sequence[str], starts: Sequence[int]) -> list[str]:
    ends = [*starts[1:], len(pieces)]
    return ["".join(pieces[a:b]).replace(BLANK, "") for a, b in zip(starts, ends, strict=True)]
