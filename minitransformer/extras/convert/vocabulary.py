"""The tokenizer and the embeddings of a foreign model under our ids.

Sentencepiece models are rewritten so that the ids of their pieces are the ids of a model's vocabulary.
Source: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto, the format and the meaning
of the types of pieces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sentencepiece

from minitransformer.data.rare_words import SPLIT_AT_BLANKS, splits_at_blanks
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert.parts import Array, ContentError, Vocabulary
from minitransformer.extras.packages import import_extra
from minitransformer.model.symbols import BLANK, END, LANGUAGE_CODE, START, UNKNOWN


def model_format() -> Any:
    """Return the module of sentencepiece that reads and writes models as messages of protobuf.

    Raises: MissingExtraError if a package of the extra "convert" is missing.
    """
    return import_extra("convert", "sentencepiece.sentencepiece_model_pb2")


def parsed(model: bytes) -> Any:
    """Return a sentencepiece model as a message of protobuf.

    Raises: ContentError if the bytes are no sentencepiece model; MissingExtraError.
    """
    message = model_format().ModelProto()
    try:
        message.ParseFromString(model)
        sentencepiece.SentencePieceProcessor(model_proto=model)
    except Exception as error:  # DecodeError of protobuf, RuntimeError of sentencepiece
        raise ContentError(f"not a sentencepiece model: {error}; restore the file") from error
    if not message.pieces:
        raise ContentError("not a sentencepiece model: the file is empty; restore it")
    if not all(isinstance(piece.piece, str) for piece in message.pieces):  # protobuf returns other text as bytes
        raise ContentError("not a sentencepiece model: a piece is not UTF-8; restore the file")
    return message


def words_of(model: bytes) -> list[str]:
    """Return the word of each id: the piece of the model, or a language code without its leading blank."""
    words = [piece.piece for piece in parsed(model).pieces]
    return [word[1:] if LANGUAGE_CODE.fullmatch(word[1:]) else word for word in words]


def tokens_of(model: bytes) -> list[str]:
    """Return the token of each id, as users give it to a program without a tokenizer.

    A token is a piece of the model, or a word without its leading blank if the model splits lines at blanks.
    """
    pieces = [piece.piece for piece in parsed(model).pieces]
    return [piece.removeprefix(BLANK) for piece in pieces] if splits_at_blanks(model) else pieces


def warning_of_words(models: Sequence[bytes]) -> str | None:
    """Return a warning if a model splits lines at blanks, which sentencepiece does differently from us; else None."""
    if not any(map(splits_at_blanks, models)):
        return None
    return (
        "the words of this model are separated by blanks, and sentencepiece makes one token of several unknown words in"
        " a row: it splits such lines otherwise than our program"
    )


def words_beyond(model: bytes, words: Sequence[str]) -> list[str]:
    """Return the model's pieces, except symbols, that are not in ``words``."""
    kinds, known = model_format().ModelProto.SentencePiece, set(words)
    symbols = (kinds.UNKNOWN, kinds.CONTROL)
    return [each.piece for each in parsed(model).pieces if each.type not in symbols and each.piece not in known]


def with_ids_of(model: bytes, words: Sequence[str]) -> bytes:
    """Return the sentencepiece model with new ids: the id of each piece is its index in ``words``.

    The new model splits text into the same pieces.  The first three words are the symbols for unknown words, start and
    end.  A single character that is no piece of the old model becomes one with the lowest score: the other program
    splits text by the old model, which leaves such a character as it is, and finds it in the vocabulary.  (Of several
    such characters in a row, the other program makes one unknown word.)

    Other words that are no pieces of the old model get an id, but no text is split into them.  In a unigram model,
    these words are unused pieces, which can be decoded.  A BPE model would merge characters to unused pieces; there,
    these words are control symbols, which decode to nothing.

    A word that is a language code, such as >>fra<<, becomes a piece for the beginning of a line.
    Raises: ContentError if a piece is not in ``words`` (see ``words_beyond``), or if ``words`` has a word twice.
    """
    old, message = parsed(model), model_format().ModelProto()
    if beyond := words_beyond(model, words):
        raise ContentError(f"tokenizer: {len(beyond)} pieces are not in the vocabulary, the first is {beyond[0]!r}")
    if len(set(words)) < len(words):
        twice = Counter(words).most_common(1)[0][0]
        raise ContentError(f"tokenizer: the vocabulary has the word {twice!r} twice; remove one")
    message.CopyFrom(old)
    del message.pieces[:]
    pieces = {piece.piece: piece for piece in old.pieces}
    kinds = message.SentencePiece
    is_unigram = old.trainer_spec.model_type == old.trainer_spec.UNIGRAM
    lowest = min(piece.score for piece in old.pieces)
    for word in words:
        if LANGUAGE_CODE.fullmatch(word):
            message.pieces.add(piece=BLANK + word, score=0.0, type=kinds.USER_DEFINED)
        elif word in pieces:
            message.pieces.append(pieces[word])
        elif len(word) == 1 and not old.trainer_spec.byte_fallback:
            message.pieces.add(piece=word, score=lowest)
        else:
            message.pieces.add(piece=word, score=0.0, type=kinds.UNUSED if is_unigram else kinds.CONTROL)
    _set_symbols(message)
    return bytes(message.SerializeToString())


def without_other_words(model: bytes) -> bytes:
    """Return the sentencepiece model without the words that ``with_ids_of`` has added.

    The first three pieces are still the symbols; the ids of other pieces change.
    """
    message, kinds = parsed(model), model_format().ModelProto.SentencePiece
    kept = [
        piece
        for i, piece in enumerate(message.pieces)
        if i <= END
        or (piece.type not in (kinds.CONTROL, kinds.UNUSED) and not LANGUAGE_CODE.fullmatch(piece.piece[1:]))
    ]
    del message.pieces[:]
    message.pieces.extend(kept)
    message.trainer_spec.vocab_size = len(kept)
    return bytes(message.SerializeToString())


def in_marians_order(model: bytes) -> bytes:
    """Return the sentencepiece model with the ids of Marian: 0 is </s>, 1 is <unk>, and there is no start symbol."""
    message = parsed(model)
    kept = [message.pieces[END], message.pieces[UNKNOWN], *message.pieces[END + 1 :]]
    kept[0].piece, kept[1].piece = "</s>", "<unk>"
    del message.pieces[:]
    message.pieces.extend(kept)
    spec = message.trainer_spec
    spec.eos_id, spec.unk_id, spec.bos_id, spec.vocab_size = 0, 1, -1, len(kept)
    spec.eos_piece, spec.unk_piece = kept[0].piece, kept[1].piece
    return bytes(message.SerializeToString())


def word_model(words: Sequence[str]) -> bytes:
    """Return a sentencepiece model that splits lines at blanks, for a vocabulary without a sentencepiece model.

    The first three words are the symbols for unknown words, start and end.
    Raises: ContentError if a word is empty or a piece with ``BLANK``: only the model that made such pieces can split
    lines into them.
    """
    message = model_format().ModelProto()
    marked = [word for word in words[END + 1 :] if BLANK in word or not word]
    if marked:
        raise ContentError(
            f"vocabulary: {len(marked)} words are pieces of sentencepiece, such as {marked[0]!r}: the models that split"
            " text into them are needed, too; put them beside the vocabulary as source.spm and target.spm"
        )
    message.trainer_spec.model_type = message.trainer_spec.WORD
    message.trainer_spec.model_prefix = SPLIT_AT_BLANKS.decode()  # our mark of such models
    message.normalizer_spec.name = "identity"
    for word in words:
        message.pieces.add(piece=BLANK + word, score=0.0)
    _set_symbols(message)
    return bytes(message.SerializeToString())


def _set_symbols(message: Any) -> None:
    """Make ids 0, 1 and 2 the symbols for unknown words, start and end."""
    kinds = message.SentencePiece
    for number, kind in ((UNKNOWN, kinds.UNKNOWN), (START, kinds.CONTROL), (END, kinds.CONTROL)):
        message.pieces[number].type = kind
        message.pieces[number].piece = message.pieces[number].piece.removeprefix(BLANK)
    spec = message.trainer_spec
    spec.unk_id, spec.bos_id, spec.eos_id, spec.pad_id, spec.vocab_size = UNKNOWN, START, END, -1, len(message.pieces)
    spec.unk_piece, spec.bos_piece, spec.eos_piece = (message.pieces[i].piece for i in (UNKNOWN, START, END))


SubwordModels = tuple[bytes | None, bytes | None]  # the sentencepiece models of source and target, or None


def with_tokenizer(
    source: Vocabulary, target: Vocabulary, models: SubwordModels
) -> tuple[Vocabulary, Vocabulary, Tokenizer]:
    """Return the vocabularies with all pieces of their sentencepiece models, and a tokenizer with their ids.

    Without a sentencepiece model, words are separated by blanks.  Two equal vocabularies stay equal, because source and
    target may share one embedding.
    Raises: ContentError if no tokenizer can have the words of a vocabulary.
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
        raise ContentError(f"vocabulary: no tokenizer can have its words ({error}); restore its file") from error


def embeddings(
    source: Vocabulary, target: Vocabulary, tables: tuple[Array, Array, Array], bias: Array | None = None
) -> dict[str, Array]:
    """Return the embeddings, the matrix of the softmax and its bias under our names.

    Equal matrices are stored once if our model can tie them (setting ``tied``).

    Args:
        tables: embeddings of source and target, and the matrix of the softmax, in the foreign order.
        bias: the bias of the softmax, of any shape with one number for each word, or None.

    Raises: ContentError if a table or the bias has another number of rows than the foreign vocabulary has words.
    """
    source_table, target_table, output = (
        side.matrix(table) for side, table in zip((source, target, target), tables, strict=True)
    )
    weights = {"source_embedding.weight": source_table}
    is_output = np.array_equal(target_table, output)
    if not (is_output and source.words == target.words and np.array_equal(source_table, target_table)):
        weights["target_embedding.weight"] = target_table
    if not is_output:
        weights["projection.weight"] = output
    softmax_bias = target.bias(None if bias is None else bias.ravel())
    return weights if softmax_bias is None else {**weights, "softmax_bias": softmax_bias}


def vocabulary_settings(source: Vocabulary, target: Vocabulary, weights: Mapping[str, Array]) -> dict[str, Any]:
    """Return the settings of ``ModelConfig`` that follow from the vocabularies and from their embeddings."""
    tied = "target" if "target_embedding.weight" in weights else "all"
    return {
        "vocabulary_size": len(target.words),
        "source_vocabulary_size": len(source.words) if len(source.words) != len(target.words) else None,
        "softmax_bias": "softmax_bias" in weights,
        "tied": "none" if "projection.weight" in weights else tied,
    }
