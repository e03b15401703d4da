"""Where parallel text comes from: files, or the demonstration's grammar."""

from __future__ import annotations

from collections.abc import Iterator

from minitransformer.config import DataConfig
from minitransformer.data.corpus import Corpus, FileCorpus, Pair
from minitransformer.data.demo import demo_corpus


class GeneratedCorpus:
    """The demonstration's own English and German."""

    def __init__(self) -> None:
        self._corpus = demo_corpus()

    def train(self) -> Iterator[Pair]:
        """The training pairs."""
        return iter(self._corpus.train)

    def validation(self) -> Iterator[Pair]:
        """The held-out pairs."""
        return iter(self._corpus.validation)

    def test(self) -> Iterator[Pair]:
        """Further held-out pairs."""
        return iter(self._corpus.test)


def corpus_of(config: DataConfig) -> Corpus:
    """The corpus that a configuration names: its files, or the demonstration."""
    return GeneratedCorpus() if config.is_demo else FileCorpus.of(config)
