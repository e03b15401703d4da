"""Subwords: raw text to ids and back, with sentencepiece."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import sentencepiece

from minitransformer.checksums import check_files, has_checksums, remove_checksums, write_checksums
from minitransformer.config import TokenizerType
from minitransformer.data.corpus import Pair
from minitransformer.data.rare_words import (
    SHAPE_CLASSES,
    WordEncoder,
    count_words,
    is_of_words,
    with_endings_of_rare_words,
    words_of,
)
from minitransformer.data.survey import CorpusError
from minitransformer.files import CheckpointError, written_whole
from minitransformer.symbols import END, START, UNKNOWN

JOINT_FILE = "tokenizer.model"
_SEPARATE_FILES = ("tokenizer.source.model", "tokenizer.target.model")
TOKENIZER_CHECKSUMS = "tokenizer.checksums.json"
MAX_TRAINING_SENTENCES = 5_000_000  # of larger corpora a random sample is enough to train on
LARGE_VOCABULARY = 20_000  # pieces; from there on the 256 bytes are among them, and no text is unknown
MAX_LINE_BYTES = 16_384  # longer lines are no sentences; sentencepiece leaves them out of its training
SYMBOLS_AT_ONCE = 500  # of a tree are trained on together: far from MAX_LINE_BYTES
_LINE_BREAK = re.compile("[\n\r]")  # no text has them, but they are among the bytes that a model may choose
_SOURCE, _TARGET, _BOTH = slice(0, 1), slice(1, 2), slice(0, 2)  # of a pair


class Tokenizer:
    """The subword models of source and target: two, or one for both."""

    def __init__(self, source_model: bytes, target_model: bytes | None = None) -> None:
        self._models = (source_model, target_model)
        self.source = sentencepiece.SentencePieceProcessor(model_proto=source_model)
        self.target = (
            self.source if target_model is None else sentencepiece.SentencePieceProcessor(model_proto=target_model)
        )
        self._words = WordEncoder(self.source) if is_of_words(self.source) else None

    @classmethod
    def train(
        cls,
        pairs: Iterable[Pair],
        *,
        vocabulary_size: int,
        kind: TokenizerType = "bpe",
        joint: bool = True,
        symbols: bool = False,
    ) -> Tokenizer:
        """Train on parallel text, which is read several times: it must not be an iterator.

        Args:
            kind: of subwords; or "word", which needs a target of symbols.
            symbols: the target is no language but a row of symbols: each that occurs becomes one piece.

        Raises: CorpusError if there is too little text for so large a vocabulary.
        """
        if joint:
            return cls(_train(_sample(pairs, _BOTH), vocabulary_size, kind))
        words = _train_words(pairs, vocabulary_size) if kind == "word" else None
        source, target = _sample(pairs, _SOURCE), _sample(pairs, _TARGET)
        return cls(
            words or _train(source, vocabulary_size, kind),
            _train_symbols(target) if symbols else _train(target, vocabulary_size, kind),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """Return the names of the files that ``save`` writes the models into."""
        return (JOINT_FILE,) if self.is_joint else _SEPARATE_FILES

    @property
    def models(self) -> tuple[bytes, ...]:
        """The sentencepiece models as bytes: one if it is joint, or that of the source and that of the target."""
        return tuple(model for model in self._models if model is not None)

    def equals(self, other: Tokenizer) -> bool:
        """Whether both give the same ids, being the same models."""
        return self._models == other._models

    @property
    def is_joint(self) -> bool:
        """Whether both languages share one vocabulary."""
        return self._models[1] is None

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
        """What each target id stands for, where targets are rows of symbols."""
        return [self.target.id_to_piece(i).removeprefix("▁") for i in range(self.n_target_words)]

    def encode_source(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of source lines, without start and end symbols."""
        if self._words is not None:
            return self._words.encode(lines)
        return [list(ids) for ids in self.source.encode(list(lines))]

    def source_pieces(self, line: str) -> list[str]:
        """What each id of a source line stands for, as it is in the line; words begin with sentencepiece's mark "▁".

        The bytes of a character that is no piece are as sentencepiece writes them: "<0xC3>".
        """
        if self._words is not None:
            return [f"▁{word}" for word in words_of(line)]
        return list(self.source.encode(line, out_type=str))

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of target lines, without start and end symbols."""
        return [list(ids) for ids in self.target.encode(list(lines))]

    def decode_target(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Plain text of target ids, each a line; bytes that are no UTF-8 become U+FFFD."""
        texts = (self.target.decode([int(i) for i in ids]) for ids in sequences)
        return [_LINE_BREAK.sub(" ", text) for text in texts]

    def save(self, directory: Path) -> None:
        """Write the model, or the two models, into a directory, and their checksums."""
        try:
            remove_checksums(directory, TOKENIZER_CHECKSUMS)
            for name, model in zip(self.files, self.models, strict=True):
                with written_whole(directory / name) as temporary:
                    temporary.write_bytes(model)
            for name in {JOINT_FILE, *_SEPARATE_FILES} - set(self.files):  # of another tokenizer, saved here before
                (directory / name).unlink(missing_ok=True)
            write_checksums(directory, self.files, TOKENIZER_CHECKSUMS)
        except OSError as error:
            raise CheckpointError(f"{directory}: cannot be written ({error}); choose another directory") from error

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """Read what ``save`` wrote.  Raises: CheckpointError if it is missing or damaged."""
        names = (JOINT_FILE,) if (directory / JOINT_FILE).exists() else _SEPARATE_FILES
        try:
            if has_checksums(directory, TOKENIZER_CHECKSUMS):
                check_files(directory, names, TOKENIZER_CHECKSUMS)
            tokenizer = cls(*((directory / name).read_bytes() for name in names))
            if not min(tokenizer.n_source_words, tokenizer.n_target_words):
                raise RuntimeError(f"{' or '.join(names)} is empty")
            return tokenizer
        except (OSError, RuntimeError, ValueError) as error:  # ValueError: pieces that are not UTF-8
            raise CheckpointError(
                f"{directory}: no usable tokenizer here ({error}); name a directory written by"
                " minitransformer-prepare or minitransformer-train"
            ) from error


def _sample(pairs: Iterable[Pair], side: slice) -> Iterator[str]:
    """The lines of one or both sides; MAX_TRAINING_SENTENCES of them, chosen at random, if there are more.

    Source: Knuth, The Art of Computer Programming, volume 2, section 3.4.2, algorithm S.  sentencepiece could draw a
    sample, but since version 0.2.2 another one in every process.
    """
    n_left, n_wanted, random = sum(len(pair[side]) for pair in pairs), MAX_TRAINING_SENTENCES, Random(0)
    for line in itertools.chain.from_iterable(pair[side] for pair in pairs):
        if n_left * random.random() < n_wanted:
            n_wanted -= 1
            yield line
        n_left -= 1


def _train(lines: Iterable[str], vocabulary_size: int, kind: TokenizerType) -> bytes:
    is_large = vocabulary_size >= LARGE_VOCABULARY
    return _train_pieces(
        lines,
        vocabulary_size,
        model_type=kind,
        character_coverage=0.9999 if is_large else 1.0,
        byte_fallback=is_large,  # the characters left out are spelt in bytes
        split_digits=True,  # numbers are spelt digit by digit: there are too many to be words
    )


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
            f"tokenizer: sentencepiece cannot make {vocabulary_size} pieces of this text{_reason(error)};"
            " give it more text or another --data.vocabulary-size"
        ) from error


def _train_symbols(lines: Iterable[str]) -> bytes:
    """A model with a piece for whatever stands between blanks, as it stands, however long its line is."""
    return _train_model(
        _in_short_rows(lines), model_type="word", use_all_vocab=True, normalization_rule_name="identity"
    )


def _in_short_rows(lines: Iterable[str]) -> Iterator[str]:
    """The same symbols in rows that are no longer than sentencepiece takes them."""
    for line in lines:
        symbols = line.split(" ")
        for start in range(0, len(symbols), SYMBOLS_AT_ONCE):
            yield " ".join(symbols[start : start + SYMBOLS_AT_ONCE])


class _TrainingError(Exception):
    """What sentencepiece has against the text."""


class _Lines(Iterator[str]):
    """Lines with the exception that ended them, of which sentencepiece makes a RuntimeError: Ctrl-C, too."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.error: BaseException | None = None

    def __next__(self) -> str:
        try:
            return next(self._lines)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise


def _train_model(lines: Iterable[str], **options: Any) -> bytes:
    """Raises: _TrainingError if sentencepiece refuses; whatever reading the lines raises."""
    model, watched = io.BytesIO(), _Lines(lines)
    try:
        sentencepiece.SentencePieceTrainer.train(
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
    except (RuntimeError, OSError) as error:
        if watched.error is not None:
            raise watched.error from None
        raise _TrainingError(str(error)) from error
    return model.getvalue()


def _reason(error: Exception) -> str:
    """What of sentencepiece's message helps, if anything does."""
    if most := re.search(r"<= (\d+)", str(error)):
        return f": at most {most[1]} are possible"
    if least := re.search(r"smaller than required_chars. \d+ vs (\d+)", str(error)):
        return f": its characters and the reserved symbols are {least[1]}"
    return f": {str(error).splitlines()[-1].strip()}" if str(error).strip() else ""
