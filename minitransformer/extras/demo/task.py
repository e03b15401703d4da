"""The demonstration as a task: translation of generated English to German, without a download."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from minitransformer.config import DataConfig
from minitransformer.data.corpus import Corpus
from minitransformer.data.inspection import Inspection
from minitransformer.data.survey import Pair, Survey
from minitransformer.extras.demo import demo_corpus, words
from minitransformer.inference.task import Task, TranslationTask


class GeneratedCorpus:
    """The demonstration's corpus of generated English and German."""

    targets_are_symbols = False
    inspection = Inspection()  # generated text has no faults

    def __init__(self) -> None:
        self._corpus = demo_corpus()
        self.surveys: dict[Path, Survey] = {}

    def train(self) -> Iterator[Pair]:
        return iter(self._corpus.train)

    def validation(self) -> Iterator[Pair]:
        return iter(self._corpus.validation)

    def test(self) -> Iterator[Pair]:
        return iter(self._corpus.test)

    def held_out_location(self, i: int) -> None:
        """Return None, because held-out pairs are not in the training text."""

    def location(self, i: int) -> str:
        """Return "pair 1" for ``i`` = 0, "pair 2" for ``i`` = 1 and so on; generated pairs are in no file."""
        return f"pair {i + 1:,}"

    def file_of(self, i: int) -> int:
        """Return 0, because generated pairs are in no file."""
        return 0


class DemonstrationTask(TranslationTask):
    """A translation task with the generated corpus."""

    known_words = words.known_words()

    def corpus(self, config: DataConfig) -> Corpus:
        return GeneratedCorpus()


TASK: Task = DemonstrationTask("de")
