"""The vocabularies of CTranslate2 models, and the order of their words in ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from minitransformer.convert.foreign_files import read_lines
from minitransformer.convert.parts import ConversionError, Vocabulary
from minitransformer.system.files import read_json

SHARED, SOURCE, TARGET = "shared_vocabulary", "source_vocabulary", "target_vocabulary"


@dataclass(frozen=True)
class Symbols:
    """A model's own names of the unknown word and the end, the first input of its decoder, and its start symbol.

    The last two differ if the decoder starts with the end.
    """

    unknown: str = "<unk>"
    end: str = "</s>"
    first: str = "<s>"
    start: str = "<s>"


def read_vocabularies(directory: Path, symbols: Symbols) -> tuple[Vocabulary, Vocabulary]:
    """Read the vocabularies of source and target, which are equal if the model has one for both.

    Raises: ConversionError if a file is missing or of another kind; CorruptFileError if it is corrupt.
    """
    if shared := _existing(directory, SHARED):
        vocabulary = in_our_order(_read_words(shared, symbols), symbols)
        return vocabulary, vocabulary
    paths = _existing(directory, SOURCE), _existing(directory, TARGET)
    if None in paths:
        raise ConversionError(
            f"{directory}: expected {SHARED}.json (or .txt), or {SOURCE} and {TARGET}; is it a CTranslate2 model?"
        )
    source, target = (in_our_order(_read_words(path, symbols), symbols) for path in paths if path)
    return source, target


def has_vocabulary(directory: Path) -> bool:
    """Return whether a directory has a file of a vocabulary."""
    return any(_existing(directory, name) for name in (SHARED, SOURCE, TARGET))


def _existing(directory: Path, name: str) -> Path | None:
    paths = directory / f"{name}.json", directory / f"{name}.txt"
    return next((path for path in paths if path.is_file()), None)


def _read_words(path: Path, symbols: Symbols) -> list[str]:
    """Return the words; CTranslate2 appends the unknown word if the file lacks it."""
    words = read_json(path) if path.suffix == ".json" else read_lines(path)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ConversionError(f"{path}: expected a list of words; the file is corrupt, or of another kind")
    if len(set(words)) < len(words):
        twice = next(word for i, word in enumerate(words) if word in words[:i])
        raise ConversionError(f"{path}: the word {twice!r} occurs twice; every id needs a word of its own")
    return words if symbols.unknown in words else [*words, symbols.unknown]


def in_our_order(words: Sequence[str], symbols: Symbols) -> Vocabulary:
    """Put the unknown word, the start and the end first; start and end may be missing.

    If the model's decoder starts with its end symbol, it does not use its start symbol.
    """
    start = symbols.first if symbols.first != symbols.end else symbols.start
    ids = {word: row for row, word in enumerate(words)}
    return Vocabulary.in_our_order(ids, (symbols.unknown, start, symbols.end))


def vocabulary_files(source: Sequence[str], target: Sequence[str]) -> Mapping[str, str]:
    """Return the names and contents of the files of two vocabularies; equal ones are one file."""
    named = {SHARED: source} if source == target else {SOURCE: source, TARGET: target}
    return {f"{name}.json": json.dumps(list(words), indent=2) + "\n" for name, words in named.items()}
