"""Parallel text in files: UTF-8, one sentence a line, or translation memories; plain or compressed."""

from __future__ import annotations

import bisect
import filecmp
import itertools
import logging
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from minitransformer.config import DataConfig
from minitransformer.config.data import Fault
from minitransformer.data.inspection import Inspection, TextToInspect, inspect
from minitransformer.data.pair_files import read_pair_file, require_one_direction, require_targets, survey_pair_file
from minitransformer.data.survey import CorpusError, Pair, Survey, fingerprint_of_file, read_lines, survey
from minitransformer.model.symbols import language_code
from minitransformer.system.checksums import passes
from minitransformer.system.file_kinds import has_both_sides
from minitransformer.system.files import is_same_file

_log = logging.getLogger(__name__)


class Corpus(Protocol):
    """Parallel text with a training part and a held-out part; both can be read repeatedly."""

    targets_are_symbols: bool
    """True if targets are sequences of symbols, such as trees; False if targets are text."""

    @property
    def surveys(self) -> Mapping[Path, Survey]:
        """The survey of each file of the corpus."""

    @property
    def inspection(self) -> Inspection:
        """The faults of the training text, and the pairs that are dropped for them; the corpus is without these."""

    def train(self) -> Iterator[Pair]:
        """Yield the training pairs."""

    def validation(self) -> Iterator[Pair]:
        """Yield the held-out pairs."""

    def test(self) -> Iterator[Pair]:
        """Yield the test pairs, possibly none: held-out pairs on which no decision depends."""

    def location(self, i: int) -> str:
        """Return the location of the i-th training pair (from 0), for messages."""

    def file_of(self, i: int) -> int:
        """Return the index of the training file of the i-th training pair; 0 if files are not told apart."""

    def held_out_location(self, i: int) -> str | None:
        """Return the location of the i-th held-out pair in the training text; None if the pair is in other text."""


def text_files(config: DataConfig) -> dict[str, Path]:
    """Return the path of every file of text, trees or a tokenizer, with the file's name in ``config`` as the key."""
    names = (
        *config.train_source, *config.train_target, *config.validation_source, *config.validation_target,
        *config.train_trees, *config.validation_trees,
    )  # fmt: skip
    tokenizer = {str(config.tokenizer): config.tokenizer} if isinstance(config.tokenizer, Path) else {}
    return {name: config.raw / name for name in names} | tokenizer


def changed_files(config: DataConfig, fingerprints: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    """Return the text files whose fingerprints have changed; a file that was removed does not count as changed."""

    def has(path: Path, fingerprint: Mapping[str, Any]) -> bool:
        return passes(lambda: fingerprint_of_file(path) == fingerprint, [path], fingerprint)

    there = {name: path for name, path in text_files(config).items() if path.exists() and name in fingerprints}
    return [path for name, path in there.items() if not has(path, fingerprints[name])]


def read_pairs(source: Path, target: Path) -> Iterator[Pair]:
    """Yield the pairs of two aligned files; "" for a line that has only spaces, such as U+3000.

    Raises: CorpusError if both are one file, one has more lines than the other, or one cannot be read.
    """
    require_two_files(source, target)
    for number, (s, t) in enumerate(itertools.zip_longest(read_lines(source), read_lines(target)), 1):
        if s is None or t is None:
            shorter, longer = (source, target) if s is None else (target, source)
            raise CorpusError(
                f"{shorter}: ends after line {number - 1}, but {longer} goes on at line {number};"
                " line n of one file must translate line n of the other"
            )
        yield "" if s.isspace() else s, "" if t.isspace() else t


@dataclass(frozen=True)
class FileCorpus:
    """A corpus of aligned files.  Without validation files every ``stride``-th training pair is held out.

    A file with both sides is in its pair of paths twice, as source and as target.  ``languages`` are the language codes
    of source and target in these files, if given.  ``tags`` and ``validation_tags`` are the target languages of files,
    if their sources begin with tags (see ``language_code``).  The training pairs still contain copies of held-out
    pairs; ``prepare`` drops the copies.  ``surveys`` holds the survey of each file, and ``inspection`` the pairs that
    are dropped before any are held out; ``of`` makes both.
    """

    train_files: Sequence[tuple[Path, Path]]
    validation_files: Sequence[tuple[Path, Path]]
    stride: int = 0
    surveys: Mapping[Path, Survey] = field(default_factory=dict)
    languages: Sequence[str] = ()
    tags: Sequence[str] = ()
    validation_tags: Sequence[str] = ()
    inspection: Inspection = field(default_factory=Inspection)
    targets_are_symbols = False

    @classmethod
    def of(cls, config: DataConfig) -> FileCorpus:
        """Open the corpus of a configuration.

        Every file is read once here, so that an invalid file is reported before hours of work.
        Raises: CorpusError if a file is missing, not UTF-8, or both source and target; if aligned files differ in
        length, or translation memories in languages; if the text is empty, or has too few pairs to hold any out.
        """
        train = _paths(config, config.train_source, config.train_target)
        validation = _paths(config, config.validation_source, config.validation_target)
        aligned = [(source, target) for source, target in (*train, *validation) if not has_both_sides(source)]
        for source, target in aligned:
            require_two_files(source, target)
        surveys = {
            path: survey_pair_file(path, config.languages) if has_both_sides(path) else survey(path)
            for path in dict.fromkeys(itertools.chain(*train, *validation))
        }
        _check_directions(config, surveys, [source for source, _ in (*train, *validation)])
        for source, target in aligned:
            check_aligned((source, surveys[source].n_lines), (target, surveys[target].n_lines))
            if filecmp.cmp(source, target, shallow=False):
                _log.warning(f"{target}: has the same content as {source}; a model of these pairs learns to copy")
        n_pairs = sum(surveys[source].n_lines for source, _ in train)
        if not train:
            raise CorpusError("there is no training text: set data.train_source and data.train_target")
        if n_pairs == 0:
            raise CorpusError(f"{train[0][0]}: the training text is empty; nothing can be learnt from it")
        if validation and not any(surveys[source].n_lines for source, _ in validation):
            raise CorpusError(f"{validation[0][0]}: the validation text is empty")
        corpus = cls(train, validation, 0, surveys, config.languages, config.tags, config.validation_tags)
        inspection = corpus._inspect("training text", train, config.tags, config.filter)
        if validation:
            corpus._inspect("validation text", validation, config.validation_tags)
            return replace(corpus, inspection=inspection)
        n_kept = n_pairs - int(inspection.drop.sum())
        stride = max(10, -(-n_kept // config.held_out))  # rounded up, so that at most held_out pairs are held out
        if n_kept <= stride // 2:
            dropped = f" ({n_pairs - n_kept} others are dropped by data.filter)" if n_kept < n_pairs else ""
            raise CorpusError(
                f"{train[0][0]}: {n_kept} pairs{dropped} are too few to hold any of them out; set"
                " data.validation_source and data.validation_target"
            )
        return replace(corpus, stride=stride, inspection=inspection)

    def train(self) -> Iterator[Pair]:
        for i, pair in enumerate(self._read_training_files()):
            if not self._is_held_out(i):
                yield pair

    def validation(self) -> Iterator[Pair]:
        if self.validation_files:
            yield from self._read_all(self.validation_files, self.validation_tags)
        else:
            yield from (pair for i, pair in enumerate(self._read_training_files()) if self._is_held_out(i))

    def test(self) -> Iterator[Pair]:
        """Return an empty iterator, because users translate and score a test set themselves, after training."""
        return iter(())

    def location(self, i: int) -> str:
        """Return the source file and line of the i-th training pair (from 0), or its number in a translation memory.

        The file's folder is left out, unless two files have the same name.
        """
        return self._location(self._index_in_text(i))

    def file_of(self, i: int) -> int:
        """Return the index of the file of the i-th training pair in ``train_files``.  Raises: IndexError."""
        return self._place(self._index_in_text(i))[0]

    def held_out_location(self, i: int) -> str | None:
        """Return the location of the i-th held-out pair (from 0); None if the pair is in a validation file."""
        return self._location(self._kept[i * self.stride + self.stride // 2]) if self.stride else None

    def _index_in_text(self, i: int) -> int:
        """Return the index of the i-th training pair among all pairs of the training files."""
        if self.stride:
            whole, rest = divmod(i, self.stride - 1)  # the pair in the middle of every full stride is held out
            i = whole * self.stride + rest + (rest >= self.stride // 2)
        return self._kept[i]

    @cached_property
    def _kept(self) -> Sequence[int]:
        """The index in the training files of each pair that is not dropped for a fault."""
        drop = self.inspection.drop
        return array("q", np.flatnonzero(~drop).tobytes()) if drop.any() else range(self._ends[-1])

    def _location(self, i: int) -> str:
        number, i = self._place(i)
        source, names = self.train_files[number][0], [source.name for source, _ in self.train_files]
        name = source.name if names.count(source.name) == 1 else source
        return f"{name}: pair {i + 1}" if has_both_sides(source) else f"{name}:{i + 1}"

    def _place(self, i: int) -> tuple[int, int]:
        """Return the index of the file of the i-th pair of the training files, and the pair's index in this file."""
        number = bisect.bisect_right(self._ends, i)
        if number == len(self._ends):
            raise IndexError("FileCorpus: there are not so many training pairs")
        return number, i - (self._ends[number - 1] if number else 0)

    @cached_property
    def _ends(self) -> list[int]:
        """The number of pairs in each training file and all files before it."""
        return list(itertools.accumulate(self.surveys[source].n_lines for source, _ in self.train_files))

    def _read_training_files(self) -> Iterator[Pair]:
        pairs, drop = self._read_all(self.train_files, self.tags), self.inspection.drop
        return itertools.compress(pairs, (~drop).tobytes()) if drop.any() else pairs

    def _read_all(self, files: Sequence[tuple[Path, Path]], tags: Sequence[str]) -> Iterator[Pair]:
        for (source, target), tag in itertools.zip_longest(files, tags):
            pairs = read_pair_file(source, self.languages) if has_both_sides(source) else read_pairs(source, target)
            yield from pairs if tag is None else _tagged(pairs, tag)

    def _inspect(
        self, name: str, files: Sequence[tuple[Path, Path]], tags: Sequence[str], drop: Sequence[Fault] = ()
    ) -> Inspection:
        """Inspect files, those of each target language alone, because only they have its script."""
        inspections, masks = list[Inspection](), dict[int, np.ndarray]()
        for tag in dict.fromkeys(tags) or (None,):
            numbers = [i for i in range(len(files)) if tag in (None, *tags[i : i + 1])]
            alone = FileCorpus([files[i] for i in numbers], (), 0, self.surveys, self.languages)
            text = TextToInspect(f"{name} in {tag}" if tag else name, alone._ends[-1], alone.train, alone.location)
            inspections.append(inspect(text, drop))
            masks |= zip(numbers, np.split(inspections[-1].drop, alone._ends[:-1]), strict=True)
        return Inspection.joined(inspections, np.concatenate([masks[i] for i in range(len(files))]))

    def _is_held_out(self, i: int) -> bool:
        return self.stride > 0 and i % self.stride == self.stride // 2


def _tagged(pairs: Iterable[Pair], tag: str) -> Iterator[Pair]:
    """Yield pairs whose sources begin with the tag of a language; an empty source stays empty."""
    for source, target in pairs:
        yield f"{language_code(tag)} {source}" if source else "", target


def _check_directions(config: DataConfig, surveys: Mapping[Path, Survey], sources: Sequence[Path]) -> None:
    """Raise CorpusError if files that name their languages differ in them, or from their tags."""
    languages = {path: found.languages for path, found in surveys.items() if found.languages}
    if config.tags:
        require_targets(languages, zip(sources, (*config.tags, *config.validation_tags), strict=True))
    elif languages:
        require_one_direction(languages)


def require_two_files(source: Path, target: Path) -> None:
    """Raise CorpusError if source and target are one file."""
    if is_same_file(source, target):
        raise CorpusError(
            f"{target}: is the source and the target; name the file with the translations, or, to learn copying, a copy"
            " of the file"
        )


def check_aligned(one: tuple[Path, int], other: tuple[Path, int]) -> None:
    """Raise CorpusError, which names the shorter file, if two files have different numbers of lines."""
    (shorter, n_shorter), (longer, n_longer) = sorted((one, other), key=lambda file: file[1])
    if n_shorter < n_longer:
        raise CorpusError(
            f"{shorter}: ends after line {n_shorter:,}, but {longer} has {n_longer:,}; line n of one file must"
            " translate line n of the other: look for lines that were lost or split"
        )


def _paths(config: DataConfig, sources: Sequence[str], targets: Sequence[str]) -> list[tuple[Path, Path]]:
    left = iter(targets)
    return [(config.raw / name, config.raw / (name if has_both_sides(name) else next(left))) for name in sources]
