"""The sources of parallel text: files, or the demonstration's grammar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from minitransformer.config import DataConfig
from minitransformer.data.corpus import Corpus, FileCorpus, Pair
from minitransformer.data.survey import Survey, fingerprint_of_file
from minitransformer.demo import demo_corpus


class GeneratedCorpus:
    """The demonstration's corpus of generated English and German."""

    def __init__(self) -> None:
        self._corpus = demo_corpus()
        self.surveys: dict[Path, Survey] = {}

    def train(self) -> Iterator[Pair]:
        """Return an iterator over the training pairs."""
        return iter(self._corpus.train)

    def validation(self) -> Iterator[Pair]:
        """Return an iterator over the held-out pairs."""
        return iter(self._corpus.validation)

    def test(self) -> Iterator[Pair]:
        """Return an iterator over further held-out pairs."""
        return iter(self._corpus.test)

    def held_out_location(self, i: int) -> None:
        """Return None, because held-out pairs are not in the training text."""

    def location(self, i: int) -> str:
        """Return the number of a training pair, counted from 1, because it is in no file; ``i`` is counted from 0."""
        return f"pair {i + 1:,}"


def text_corpus(config: DataConfig) -> Corpus:
    """Return the corpus of a configuration: its text files, or the demo corpus.  Raises: CorpusError."""
    return GeneratedCorpus() if config.is_demo else FileCorpus.of(config)


def text_files(config: DataConfig) -> dict[str, Path]:
    """Return the paths of all files of raw text or trees, by their names in the configuration."""
    names = (
        *config.train_source, *config.train_target, *config.validation_source, *config.validation_target,
        *config.train_trees, *config.validation_trees,
    )  # fmt: skip
    return {name: config.raw / name for name in names}


def changed_files(config: DataConfig, fingerprints: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    """Return the text files whose fingerprints have changed; a file that was removed does not count as changed."""
    return [
        path
        for name, path in text_files(config).items()
        if path.exists() and name in fingerprints and fingerprint_of_file(path) != fingerprints[name]
    ]
