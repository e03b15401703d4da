"""Tasks, such as translation: a task opens the corpus of a training, and scores a model's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from minitransformer.config import DataConfig
from minitransformer.config.checks import imported
from minitransformer.config.data import target_language
from minitransformer.config.run import RUN_FILE
from minitransformer.data.corpus import Corpus, FileCorpus
from minitransformer.data.languages import is_demonstration
from minitransformer.data.survey import Pair
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.bleu import Score, bleu
from minitransformer.inference.search import Advance, SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.system.extensions import EXTENSIONS
from minitransformer.system.records import as_object, read_object


@dataclass(frozen=True)
class Sample:
    """A held-out sentence, its reference and its translation by the model; a tree is written in brackets."""

    source: str
    reference: str
    translation: str


class Evaluation(NamedTuple):
    """The score of the translations of a text, and the translations."""

    score: Score
    samples: tuple[Sample, ...]


class Task(Protocol):
    """A task, such as translation or parsing.

    ``takes_alpha`` is true if searches use the model's length penalty.  ``known_words`` lists the words of a model with
    few words for its users, or is "".
    """

    takes_alpha: bool

    @property
    def known_words(self) -> str:
        """The words that a model knows, a line for each kind; "" if they are too many to list."""

    def corpus(self, config: DataConfig) -> Corpus:
        """Open the text or the trees of a configuration.  Raises: CorpusError."""

    def settings_of(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Return data settings that a model's tokenizer determines in this task, but not in others."""

    def evaluate(
        self, translator: Translator, text: Sequence[Pair], search: SearchConfig, *, n_threads: int, advance: Advance
    ) -> Evaluation:
        """Compute the model's output for each source, and score the outputs against the targets."""


class TranslationTask:
    """The task of translating lines of text, scored by BLEU.

    Args:
        language: the code of the target language, if it is known.
    """

    takes_alpha, known_words = True, ""

    def __init__(self, language: str | None) -> None:
        self.language = language

    def corpus(self, config: DataConfig) -> Corpus:
        return FileCorpus.of(config)

    def settings_of(self, tokenizer: Tokenizer) -> dict[str, Any]:
        return {}

    def evaluate(
        self, translator: Translator, text: Sequence[Pair], search: SearchConfig, *, n_threads: int, advance: Advance
    ) -> Evaluation:
        sources, references = [source for source, _ in text], [target for _, target in text]
        found = translator.n_best(sources, search, n_threads=n_threads, advance=advance)
        translations = [best[0].text for best in found]
        return Evaluation(
            bleu(translations, [references], language=self.language), samples(sources, references, translations)
        )


def samples(*columns: Sequence[str]) -> tuple[Sample, ...]:
    """Return samples of sources, references and translations."""
    return tuple(Sample(*row) for row in zip(*columns, strict=True))


def task_of(config: DataConfig) -> Task:
    """Return the task of a configuration; a task of the extras is imported by its name."""
    name = EXTENSIONS.get(f"task:{config.task}")
    task: Task = TranslationTask(target_language(vars(config))) if name is None else imported("data.task", name)
    return task


def task_of_run(run: Path) -> Task:
    """Return the task of a run or a model; a model without a run translates."""
    data = as_object(read_object(run / RUN_FILE).get("data"))
    if is_demonstration(data):
        task: Task = imported("data.task", EXTENSIONS["task:demonstration"])
        return task
    return TranslationTask(target_language(data))
