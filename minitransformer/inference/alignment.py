"""Word alignments of translations, from the attention of the decoder to the source.

Words are separated by blanks.  In scripts without blanks between words, each character is a word.  Each target word is
linked to the source word to which it attends most.  The attention of two words is the sum of the weights of their
pieces.

Source: Garg et al. 2019, "Jointly learning to align and translate with Transformer models": the weights of one layer,
averaged over its heads, at the step that generates the token; the fifth of six layers is the best.
Differs: in decoders of up to three layers, we use the last layer, which was the best in our models.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from autograd.array import FloatArray, IntArray
from minitransformer.data.normalisation import words_of_line
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.attention import source_attention_weights, starts_at_blanks
from minitransformer.inference.prefix import Prefix, Prefixer
from minitransformer.inference.search import Hypothesis
from minitransformer.model.batch import Ids
from minitransformer.model.transformer import Transformer
from minitransformer.text.translation import Links
from minitransformer.text.words import WORD

_LAST_IS_BEST = 3  # in decoders of at most 3 layers, use the last layer, in deeper ones the last but one


def align_words(
    models: Sequence[Transformer],
    prefixer: Prefixer,
    line: str,
    source: Sequence[int],
    prefix: Prefix,
    hypotheses: Sequence[Hypothesis],
) -> list[Links]:
    """Return the links between the words of a line, whose ids are ``source``, and of each of its translations."""
    tokenizer, links = prefixer.tokenizer, list[Links]()
    numbers = words_of_source(tokenizer, line)[: len(source)]
    source_words = words_of_pieces(numbers, tokenizer.source_pieces(line), words_of_line(line))
    for hypothesis in hypotheses:
        text = prefix.completed(tokenizer.decode_target([hypothesis.ids])[0])
        numbers = words_of_target(prefixer, hypothesis.ids, prefix)
        target_words = words_of_pieces(numbers, [prefixer.pieces[i] for i in hypothesis.ids], words_of_line(text))
        links.append(word_links(models, source, hypothesis.ids, source_words, target_words))
    return links


def words_of_pieces(numbers: IntArray, pieces: Sequence[str], texts: Sequence[str]) -> IntArray:
    """Return the words to which each piece belongs.

    A text without blanks may have several words, and a piece belongs to all words whose characters it has.  The
    position of a piece in the text is computed from the lengths of pieces, because normalisation may have changed the
    characters.

    Args:
        numbers: for each piece, the index of its text (T,).
        texts: the parts of a line between blanks.

    Shapes: returns (2, n): the index of a piece, and the index of a word to which the piece belongs.
    """
    found, n_before, pieces_of = list[tuple[int, int]](), 0, defaultdict[int, list[int]](list)
    for i, number in enumerate(numbers):
        pieces_of[int(number)].append(i)
    for number, text in enumerate(texts):
        ends, places = np.cumsum([len(word) for word in WORD.findall(text)]), pieces_of[number]
        if len(ends) == 1:
            found += [(i, n_before) for i in places]
            n_before += 1
            continue
        piece_ends = np.cumsum([_length(pieces[i]) for i in places])
        start, scale = 0.0, ends[-1] / (piece_ends[-1] or 1) if places else 0.0
        for i, end in zip(places, piece_ends * scale, strict=True):
            first, last = np.searchsorted(ends, start, side="right"), np.searchsorted(ends, end - 1e-6)
            found += [(i, n_before + word) for word in range(min(first, last), last + 1)]
            start = end + 1e-6
        n_before += len(ends)
    return np.array(found, np.int64).reshape(-1, 2).T


def _length(piece: str) -> float:
    """Return the number of characters of a piece; 1/3 for a byte: most scripts without blanks need 3."""
    return 1 / 3 if re.fullmatch("<0x..>", piece) else len(piece.replace("▁", ""))


def word_links(
    models: Sequence[Transformer], source: Ids, target: Ids, source_words: IntArray, target_words: IntArray
) -> Links:
    """Link each target word to one source word.

    Args:
        models: models of an ensemble, whose attention weights are added.
        source, target: ids without start and end symbols.
        source_words, target_words: index of an id, and index of its word (2, n); see ``words_of_pieces``.
    """
    if not (len(source) and len(target)):
        return ()
    model_weights = [_weights(model, source, target) for model in models]
    weights = sum(model_weights[1:], model_weights[0])
    return links_of(weights[np.ix_(target_words[0], source_words[0])], source_words[1], target_words[1])


def links_of(weights: FloatArray, source_words: IntArray, target_words: IntArray) -> Links:
    """Link each target word to the source word with the greatest weight; ``weights`` (T, S) are between pieces."""
    word_weights: FloatArray = np.zeros((target_words.max() + 1, source_words.max() + 1))
    np.add.at(word_weights, (target_words[:, None], source_words[None, :]), weights)
    return tuple((int(word_weights[word].argmax()), int(word)) for word in np.unique(target_words))


def _weights(model: Transformer, source: Ids, target: Ids) -> FloatArray:
    """Return the attention weights (T, S) between ids, without start and end symbols, averaged over heads.

    Row i is the step that generates target id i.
    """
    depth = model.config.decoder_depth
    layer = depth - 1 if depth <= _LAST_IS_BEST else depth - 2
    weights = source_attention_weights(model, source, target, layer).mean(axis=0)
    piece_weights: FloatArray = weights[: len(target), : len(source)]
    return piece_weights


def words_of_source(tokenizer: Tokenizer, line: str) -> IntArray:
    """Return for each source id of a line the index of its word; blanks separate words."""
    words = words_of_line(line)
    numbers = _words_of_ids(tokenizer.encode_source(words), tokenizer.encode_source([line])[0])
    if numbers is not None:
        return numbers
    pieces = tokenizer.source_pieces(line)
    n_pieces = np.diff([*starts_at_blanks(pieces), len(pieces)])
    return np.repeat(np.arange(len(n_pieces)), n_pieces).clip(0, len(words) - 1)


def words_of_target(prefixer: Prefixer, ids: Sequence[int], prefix: Prefix) -> IntArray:
    """Return for each id of a translation, which begins with a prefix, the index of its word; blanks separate words."""
    begun = _words_of_ids([prefixer.ids_of(word) for word in words_of_line(prefix.text)], prefixer.ids_of(prefix.text))
    n_given = len(prefix.ids)
    decoded = prefixer.tokenizer.decode_target([ids[: i + 1] for i in range(len(ids))])
    texts = [prefix.completed(text) for text in decoded]
    numbers: IntArray = np.array([len(words_of_line(text)) - (not text.endswith(" ")) for text in texts], np.int64)
    if begun is not None:
        numbers[:n_given] = begun[:n_given]
    return numbers.clip(0, max(0, len(words_of_line(texts[-1])) - 1) if texts else 0)


def _words_of_ids(word_ids: Sequence[Sequence[int]], ids: Sequence[int]) -> IntArray | None:
    """Return for each id the index of its word, given the ids of each word; None if these, joined, are not ``ids``.

    (Pieces almost never cross blanks, so a word alone almost always has the same pieces as in its line.)
    """
    if [i for word in word_ids for i in word] != list(ids):
        return None
    return np.repeat(np.arange(len(word_ids)), np.array([len(word) for word in word_ids], np.int64))
