"""The tokenizer: raw text to ids of subwords and back, with sentencepiece."""

from __future__ import annotations

import io
import itertools
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import sentencepiece

from minitransformer.config import TextNormalisation, TokenizerType
from minitransformer.data.lexicon import Lexicon, is_bracket, lexicon_of, read_lexicon, with_lexicon
from minitransformer.data.normalisation import rules, with_rule_name
from minitransformer.data.rare_words import (
    SHAPE_CLASSES,
    WordEncoder,
    count_words,
    is_of_words,
    splits_at_blanks,
    with_endings_of_rare_words,
    words_of,
)
from minitransformer.data.survey import CorpusError, Pair
from minitransformer.model.batch import IdPair
from minitransformer.model.symbols import BLANK, END, LANGUAGE_CODE, START, UNKNOWN, language_code
from minitransformer.system.checksums import check_files, has_checksums, remove_checksums, write_checksums
from minitransformer.system.errors import require_lists
from minitransformer.system.files import CheckpointError, atomic_write, read_regular
from minitransformer.system.threads import on_a_thread, require_wanted

JOINT_FILE = "tokenizer.model"
_SEPARATE_FILES = ("tokenizer.source.model", "tokenizer.target.model")
TOKENIZER_CHECKSUMS = "tokenizer.checksums.json"
MAX_TRAINING_SENTENCES = 5_000_000  # a random sample of a larger corpus is enough to train on
LARGE_VOCABULARY = 20_000  # pieces; from this size on the 256 bytes are pieces, so that no text is unknown
MAX_LINE_BYTES = 16_384  # longer lines are no sentences; sentencepiece leaves them out of its training
SYMBOLS_AT_ONCE = 500  # symbols of a tree per line of training text, which keeps lines far below MAX_LINE_BYTES
_LINE_BREAK = re.compile("[\n\r]")  # no text has them, but a model may produce their bytes
_SOURCE, _TARGET, _BOTH = slice(0, 1), slice(1, 2), slice(0, 2)  # sides of a pair


class Tokenizer:
    """The subword models of source and target: two models, or one for both."""

    def __init__(self, source_model: bytes, target_model: bytes | None = None) -> None:
        self._models = (source_model, target_model)
        self.source = sentencepiece.SentencePieceProcessor(model_proto=source_model)
        self.target = (
            self.source if target_model is None else sentencepiece.SentencePieceProcessor(model_proto=target_model)
        )
        self._source_words = _word_encoder(source_model, self.source)
        self._target_words = _word_encoder(target_model or source_model, self.target)
        self._codes = _language_codes(self.source)

    @classmethod
    def train(
        cls,
        pairs: Iterable[Pair],
        *,
        vocabulary_size: int,
        kind: TokenizerType = "bpe",
        normalisation: TextNormalisation = "keep",
        joint: bool = True,
        symbols: bool = False,
        languages: Collection[str] = (),
    ) -> Tokenizer:
        """Train on parallel text, which must not be an iterator, because it is read several times.

        Args:
            kind: the kind of subwords; or "word", for sources whose targets are symbols.
            normalisation: the rule for characters of subwords, see ``DataConfig``.
            symbols: true if targets are sequences of symbols; each symbol that occurs becomes one piece.
            languages: the target languages whose codes begin source lines (see ``language_code``); each code becomes
                one piece of the source.

        Raises: CorpusError if sentencepiece cannot make ``vocabulary_size`` pieces of the text.
        """
        if joint:
            return cls(_train(pairs, _BOTH, vocabulary_size, kind, normalisation, languages))
        words = _train_words(pairs, vocabulary_size) if kind == "word" else None
        return cls(
            words or _train(pairs, _SOURCE, vocabulary_size, kind, normalisation, languages),
            _train_symbols(_sample(pairs, _TARGET))
            if symbols
            else _train(pairs, _TARGET, vocabulary_size, kind, normalisation),
        )

    def with_lexicon(self, pairs: Iterable[IdPair]) -> Tokenizer:
        """Return this tokenizer of words with the lexicon of trees; ``pairs`` are the ids of words and trees."""
        leaves = {i for i, symbol in enumerate(self.target_symbols) if i > END and not is_bracket(symbol)}
        return Tokenizer(with_lexicon(self.models[0], lexicon_of(pairs, leaves)), *self.models[1:])

    @cached_property
    def lexicon(self) -> Lexicon:
        """The leaves that words had in a treebank; {} if this tokenizer has no lexicon."""
        return read_lexicon(self.models[0])

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files to which ``save`` writes the models."""
        return (JOINT_FILE,) if self.is_joint else _SEPARATE_FILES

    @property
    def models(self) -> tuple[bytes, ...]:
        """The sentencepiece models as bytes: one joint model, or the source's and the target's."""
        return tuple(model for model in self._models if model is not None)

    def equals(self, other: Tokenizer) -> bool:
        """Return whether both tokenizers have the same models; then they give the same ids."""
        return self._models == other._models

    @property
    def is_joint(self) -> bool:
        """True if both languages share one vocabulary."""
        return self._models[1] is None

    @property
    def kind(self) -> TokenizerType:
        """The kind of the source model: "word", "unigram", or "bpe" if sentencepiece refuses n-best lists."""
        if is_of_words(self.source):
            return "word"
        try:
            self.source.nbest_encode("", nbest_size=1)
        except RuntimeError:
            return "bpe"
        return "unigram"

    @property
    def spells_no_words(self) -> bool:
        """True if a source word that is not in the vocabulary is one unknown id, whatever its characters."""
        return self._source_words is not None

    @property
    def normalisation(self) -> TextNormalisation:
        """The rule for characters that the source model applies; the most similar rule if the model has another."""
        if "Ａ" not in self.source.normalize("Ａ"):
            return "nmt_nfkc"
        return "nfc" if self.source.normalize("e\u0301").endswith("é") else "keep"

    @property
    def n_source_words(self) -> int:
        """Size of the source vocabulary, reserved symbols included."""
        return int(self.source.get_piece_size())

    @property
    def n_target_words(self) -> int:
        """Size of the target vocabulary, reserved symbols included."""
        return int(self.target.get_piece_size())

    @property
    def target_symbols(self) -> list[str]:
        """The symbol of each target id, if targets are sequences of symbols."""
        return [self.target.id_to_piece(i).removeprefix(BLANK) for i in range(self.n_target_words)]

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of source lines, without start and end symbols.

        Only the first word of a line is read as the code of a language; the characters of others are single pieces.
        """
        return [self._spelt(ids) for ids in _ids(lines, self.source, self._source_words)]

    def source_pieces(self, line: str) -> list[str]:
        """Return the text of each id of a source line; words begin with sentencepiece's mark "▁".

        A piece that is one byte of a character is written as in sentencepiece: "<0xC3>".
        """
        pieces = _pieces(line, self.source, self._source_words)
        later = (list(piece) if piece in self._codes else [piece] for piece in pieces[1:])
        return [*pieces[:1], *itertools.chain.from_iterable(later)]

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """The languages whose codes may begin a source line, as in ">>fra<< The cat is …"; () if there are none."""
        return tuple(piece[len(BLANK) + 2 : -2] for piece in self._codes)

    def _spelt(self, ids: list[int]) -> list[int]:
        """Replace each code of a language, except at the beginning, by the ids of its characters."""
        if not self._codes or self._codes_by_id.keys().isdisjoint(ids[1:]):
            return ids
        later = (self._codes_by_id.get(i, [i]) for i in ids[1:])
        return [*ids[:1], *itertools.chain.from_iterable(later)]

    @cached_property
    def _codes_by_id(self) -> dict[int, list[int]]:
        """The id of each code of a language, and the ids of its characters."""
        return {i: [self.source.piece_to_id(character) for character in piece] for piece, i in self._codes.items()}

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of target lines, without start and end symbols."""
        return _ids(lines, self.target, self._target_words)

    def target_pieces(self, line: str) -> list[str]:
        """Return the text of each id of a target line, as ``source_pieces`` does."""
        return _pieces(line, self.target, self._target_words)

    def normalised(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Return the pairs after the normalisation that sentencepiece applies before it splits text into pieces."""
        sides = ([source for source, _ in pairs], [target for _, target in pairs])
        return list(zip(self.source.normalize(sides[0]), self.target.normalize(sides[1]), strict=True))

    def decode_target(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each sequence of target ids, as one line; bytes that are not UTF-8 become U+FFFD."""
        texts = (self.target.decode([int(i) for i in ids]) for ids in sequences)
        return [_LINE_BREAK.sub(" ", text) for text in texts]

    def save(self, directory: Path) -> None:
        """Write the models and their checksums to a directory.  Raises: CheckpointError if it cannot be written."""
        try:
            remove_checksums(directory, TOKENIZER_CHECKSUMS)
            for name, model in zip(self.files, self.models, strict=True):
                with atomic_write(directory / name) as temporary:
                    temporary.write_bytes(model)
            for name in {JOINT_FILE, *_SEPARATE_FILES} - set(self.files):  # from a tokenizer saved here earlier
                (directory / name).unlink(missing_ok=True)
            write_checksums(directory, self.files, TOKENIZER_CHECKSUMS)
        except OSError as error:
            raise CheckpointError(f"{directory}: cannot be written ({error}); choose another directory") from error

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """Read a tokenizer that ``save`` wrote.  Raises: CheckpointError if it is missing or corrupt."""
        names = (JOINT_FILE,) if (directory / JOINT_FILE).exists() else _SEPARATE_FILES
        try:
            if has_checksums(directory, TOKENIZER_CHECKSUMS):
                check_files(directory, names, TOKENIZER_CHECKSUMS)
            tokenizer = cls(*(read_regular(directory / name) for name in names))
            if not min(tokenizer.n_source_words, tokenizer.n_target_words):
                raise RuntimeError(f"{' or '.join(names)} is empty")
            return tokenizer
        except (OSError, RuntimeError, ValueError) as error:  # ValueError: pieces that are not UTF-8
            raise CheckpointError(
                f"{directory}: no usable tokenizer here ({error}); name the directory of"
                " prepared data, or of a trained model"
            ) from error


def _language_codes(model: sentencepiece.SentencePieceProcessor) -> dict[str, int]:
    """Return the pieces that are codes of languages, and their ids.  Raises: ValueError if a piece is not UTF-8."""
    pieces = (str(model.id_to_piece(i)) for i in range(model.get_piece_size()))
    return {
        piece: i
        for i, piece in enumerate(pieces)
        if piece.startswith(BLANK) and LANGUAGE_CODE.fullmatch(piece, len(BLANK))
    }


def _word_encoder(model: bytes, processor: sentencepiece.SentencePieceProcessor) -> WordEncoder | None:
    """Return the encoder of a model with one id for each word; None for a model of subwords."""
    return WordEncoder(processor) if is_of_words(processor) or splits_at_blanks(model) else None


def _ids(
    lines: Sequence[str], processor: sentencepiece.SentencePieceProcessor, words: WordEncoder | None
) -> list[list[int]]:
    require_lists("encode", lines)
    return words.encode(lines) if words else [list(ids) for ids in processor.encode(list(lines))]


def _pieces(line: str, processor: sentencepiece.SentencePieceProcessor, words: WordEncoder | None) -> list[str]:
    return [f"{BLANK}{word}" for word in words_of(line)] if words else list(processor.encode(line, out_type=str))


def _sample(pairs: Iterable[Pair], side: slice) -> Iterator[str]:
    """Yield the lines of one or both sides: all lines, or a random sample of MAX_TRAINING_SENTENCES if there are more.

    Source: Knuth, The Art of Computer Programming, volume 2, section 3.4.2, algorithm S.  sentencepiece can draw a
    sample, too, but since version 0.2.2 it draws a different sample in every process.
    """
    n_left, n_wanted, random = sum(len(pair[side]) for pair in pairs), MAX_TRAINING_SENTENCES, Random(0)
    for line in itertools.chain.from_iterable(pair[side] for pair in pairs):
        if n_left * random.random() < n_wanted:
            n_wanted -= 1
            yield line
        n_left -= 1


def _train(
    pairs: Iterable[Pair],
    side: slice,
    vocabulary_size: int,
    kind: TokenizerType,
    normalisation: TextNormalisation,
    languages: Collection[str] = (),
) -> bytes:
    is_large = vocabulary_size >= LARGE_VOCABULARY

    def train(**rule: str) -> bytes:
        return _train_pieces(
            _sample(pairs, side),
            vocabulary_size,
            model_type=kind,
            character_coverage=0.9999 if is_large else 1.0,
            byte_fallback=is_large,  # characters that are no pieces are spelt in bytes
            split_digits=True,  # numbers are spelt digit by digit, because there are too many to be pieces
            user_defined_symbols=[BLANK + language_code(language) for language in languages],
            **rule,
        )

    if normalisation == "nmt_nfkc":
        return train(normalization_rule_name=normalisation)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rules.tsv"
        path.write_text(rules(normalisation, _sample(pairs, side)), encoding="ascii")
        return with_rule_name(train(normalization_rule_tsv=str(path)), normalisation)


def _train_words(pairs: Iterable[Pair], vocabulary_size: int) -> bytes:
    lines = with_endings_of_rare_words(_sample(pairs, _SOURCE), count_words(_sample(pairs, _SOURCE)))
    return _train_pieces(
        lines,
        vocabulary_size,
        model_type="word",
        normalization_rule_name="identity",
        user_defined_symbols=list(SHAPE_CLASSES),
    )


def _train_pieces(lines: Iterable[str], vocabulary_size: int, **options: Any) -> bytes:
    try:
        return _train_model(lines, vocab_size=vocabulary_size, **options)
    except _TrainingError as error:
        raise CorpusError(
            f"tokenizer: sentencepiece cannot make {vocabulary_size} pieces of this text{_reason(error)}"
        ) from error


def _train_symbols(lines: Iterable[str]) -> bytes:
    """Train a model with one unchanged piece for each symbol; symbols are separated by blanks."""
    return _train_model(
        _split_long_lines(lines), model_type="word", use_all_vocab=True, normalization_rule_name="identity"
    )


def _split_long_lines(lines: Iterable[str]) -> Iterator[str]:
    """Split lines of symbols into lines that are short enough for sentencepiece."""
    for line in lines:
        symbols = line.split(" ")
        for start in range(0, len(symbols), SYMBOLS_AT_ONCE):
            yield " ".join(symbols[start : start + SYMBOLS_AT_ONCE])


class _TrainingError(Exception):
    """An error: sentencepiece refuses the text; the message is the reason."""


class _WatchedLines(Iterator[str]):
    """An iterator over lines that stores the exception that ends it, also KeyboardInterrupt.

    sentencepiece turns every such exception into a RuntimeError.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.error: BaseException | None = None

    def __next__(self) -> str:
        try:
            require_wanted()
            return next(self._lines)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise


def _train_model(lines: Iterable[str], **options: Any) -> bytes:
    """Train a sentencepiece model and return it as bytes.

    Raises: _TrainingError if sentencepiece refuses; any exception of ``lines``.
    """
    model, watched = io.BytesIO(), _WatchedLines(lines)
    try:
        on_a_thread(
            lambda: sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=watched,
                model_writer=model,
                max_sentence_length=MAX_LINE_BYTES,
                unk_id=UNKNOWN,
                bos_id=START,
                eos_id=END,
                pad_id=-1,
                minloglevel=2,
                **options,
            )
        )
    except (RuntimeError, OSError) as error:
        if watched.error is not None:
            raise watched.error from None
        raise _TrainingError(str(error)) from error
    return model.getvalue()


def _reason(error: Exception) -> str:
    """Return the useful part of sentencepiece's message, with a remedy."""
    if most := re.search(r"<= (\d+)", str(error)):
        return f": at most {most[1]} are possible; give it more text, or a smaller data.vocabulary_size"
    if least := re.search(r"smaller than required_chars. \d+ vs (\d+)", str(error)):
        return (
            f": its characters and the reserved symbols are {least[1]}; set data.vocabulary_size to more (from 20,000,"
            " rare characters are written as bytes)"
        )
    reason = f": {str(error).splitlines()[-1].strip()}" if str(error).strip() else ""
    return f"{reason}; give it more text, or another data.vocabulary_size"
