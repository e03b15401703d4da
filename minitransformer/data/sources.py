"""The sources of parallel text: files, or the demonstration's grammar."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from minitransformer.config import DataConfig
from minitransformer.data.corpus import Corpus, FileCorpus, Pair
from minitransformer.data.survey import Survey
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
