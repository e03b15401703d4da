"""Parallel text in files: UTF-8, one sentence a line, plain, gzip or xz."""

from __future__ import annotations

import gzip
import io
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias, cast

from minitransformer.config import DataConfig
from minitransformer.errors import UserError

Pair: TypeAlias = tuple[str, str]
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


class CorpusError(UserError, ValueError):
    """Text that cannot be used, with file, line and remedy."""


class Corpus(Protocol):
    """Parallel text with a training part and a held-out part; both can be read again and again."""

    def train(self) -> Iterator[Pair]:
        """The training pairs."""

    def validation(self) -> Iterator[Pair]:
        """The held-out pairs."""

    def test(self) -> Iterator[Pair]:
        """Further held-out pairs that nothing is chosen by; may be none."""


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file without their ends; only a line feed ends a line.

    Raises: CorpusError naming the file, and the line if it is not UTF-8.
    """
    number = 0
    try:
        with _OPENERS.get(path.suffix, io.open)(path, "rb") as stream:
            for number, line in enumerate(cast(BinaryIO, stream), 1):  # noqa: B007  (used when decoding fails)
                yield line.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start + 1} of the line);"
            f" convert the file, for example with: iconv -f latin1 -t utf-8"
        ) from error
    except FileNotFoundError as error:
        raise CorpusError(f"{path}: not found; --data.raw names the folder that holds the text files") from error
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        raise CorpusError(f"{path}: cannot be read after line {number}: {error}; the file may be incomplete") from error


def read_pairs(source: Path, target: Path) -> Iterator[Pair]:
    """The pairs of two aligned files.  Raises: CorpusError if one has more lines than the other."""
    for number, (s, t) in enumerate(itertools.zip_longest(read_lines(source), read_lines(target)), 1):
        if s is None or t is None:
            shorter, longer = (source, target) if s is None else (target, source)
            raise CorpusError(
                f"{shorter}: ends after line {number - 1}, but {longer} goes on at line {number};"
                " line n of one file must translate line n of the other"
            )
        yield s, t


@dataclass(frozen=True)
class FileCorpus:
    """Aligned files.  Without validation files every ``stride``-th training pair is held out.

    Sides of a held-out pair may occur again in training: what counts as the same sentence is the corpus owner's to say.
    """

    train_files: Sequence[tuple[Path, Path]]
    validation_files: Sequence[tuple[Path, Path]]
    stride: int = 0

    @classmethod
    def of(cls, config: DataConfig) -> FileCorpus:
        """The corpus that a configuration names.

        Every file is read once here, so that a broken one is known before hours of work.
        Raises: CorpusError for files that are missing, empty, not UTF-8 or of unequal lengths.
        """
        train = _paths(config, config.train_source, config.train_target)
        validation = _paths(config, config.validation_source, config.validation_target)
        n_pairs = sum(1 for pair in _read_all(train))
        if n_pairs == 0:
            raise CorpusError(f"{train[0][0]}: the training text is empty; nothing can be learnt from it")
        if validation:
            if not any(True for _ in _read_all(validation)):
                raise CorpusError(f"{validation[0][0]}: the validation text is empty")
            return cls(train, validation)
        return cls(train, (), stride=max(10, n_pairs // max(1, config.held_out)))

    def train(self) -> Iterator[Pair]:
        """The training pairs."""
        for i, pair in enumerate(_read_all(self.train_files)):
            if not self._is_held_out(i):
                yield pair

    def validation(self) -> Iterator[Pair]:
        """The held-out pairs."""
        if self.validation_files:
            yield from _read_all(self.validation_files)
        else:
            yield from (pair for i, pair in enumerate(_read_all(self.train_files)) if self._is_held_out(i))

    def test(self) -> Iterator[Pair]:
        """Nothing: a test set is translated and scored by hand, once."""
        return iter(())

    def _is_held_out(self, i: int) -> bool:
        return self.stride > 0 and i % self.stride == self.stride // 2


def _paths(config: DataConfig, sources: Sequence[str], targets: Sequence[str]) -> list[tuple[Path, Path]]:
    return [(config.raw / source, config.raw / target) for source, target in zip(sources, targets, strict=True)]


def _read_all(files: Sequence[tuple[Path, Path]]) -> Iterator[Pair]:
    return itertools.chain.from_iterable(read_pairs(source, target) for source, target in files)
