"""Scores of a model on held-out text."""

from __future__ import annotations

import dataclasses
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple, TypeAlias

from minitransformer.data.corpus import Pair
from minitransformer.data.prepare import PreparedData
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.evaluation.bleu import Score, bleu
from minitransformer.evaluation.choice import is_better
from minitransformer.inference.beam import Advance, SearchConfig, SearchError
from minitransformer.inference.scoring import CorpusScore, score_pairs
from minitransformer.inference.translator import Translator
from minitransformer.model.batch import IdPair
from minitransformer.model.transformer import Transformer
from minitransformer.parsing.f1 import bracketing_f1
from minitransformer.parsing.linear import tree_of
from minitransformer.parsing.parser import PARSING, Parser
from minitransformer.parsing.penn import write_tree
from minitransformer.system.errors import UserError
from minitransformer.training.callbacks.callback import Sample, ValidationReport
from minitransformer.training.callbacks.divergence import TrainingDivergedError

Progress: TypeAlias = Callable[[int, int], None]  # called on any thread: sentences done, and all
EXTRA_TOKENS = 25  # by which a translation exceeds its source at most, during training
N_SAMPLES = 5  # sentences whose translations a report shows, so that one can see them improve
BEST = "best"  # folder of a run that keeps the model with the lowest validation loss


class ValidationMemoryError(UserError):
    """An error: held-out text needs more memory than is available."""


class Evaluation(NamedTuple):
    """The score of the translations of a text, and the translations."""

    score: Score
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Validation:
    """Held-out pairs, as token ids and as text, on which models are scored."""

    pairs: Sequence[IdPair]
    text: Sequence[Pair]
    """Sentences that are translated during training."""
    tokenizer: Tokenizer
    is_treebank: bool
    n_threads: int

    @classmethod
    def of(cls, data: PreparedData, *, n_translated: int, n_threads: int) -> Validation:
        """Read the held-out part of prepared data; its first ``n_translated`` sentences are translated in reports."""
        store = data.store("validation")
        pairs = [store.pair(i) for i in range(len(store))]
        return cls(pairs, data.text("validation")[:n_translated], data.tokenizer, data.is_treebank, n_threads)

    def loss(self, model: Transformer) -> CorpusScore:
        """Return loss and perplexity, without label smoothing and dropout.

        Raises: TrainingDivergedError if they are not finite, which happens with
        finite parameters, too; ValidationMemoryError.
        """
        with self._advising():
            score = CorpusScore.of(score_pairs(model, self.pairs, n_threads=self.n_threads))
        if not math.isfinite(score.loss):
            raise _diverged(f"the loss is {score.loss}")
        return score

    def report(
        self, model: Transformer, step: int, best_loss: float | None, progress: Progress = lambda done, total: None
    ) -> ValidationReport:
        """Return loss and perplexity, and BLEU (for trees: F1) of greedy search.

        The search ends at EXTRA_TOKENS more than the source has: an untrained model finds no end.
        """
        start = time.perf_counter()
        progress(0, len(self.text))
        score = self.loss(model)
        greedy = self.evaluate(model, self.text, beam=1, max_extra_tokens=EXTRA_TOKENS, progress=progress)
        best = is_better(score.loss, best_loss, greatest=False)
        seconds = time.perf_counter() - start
        samples = greedy.samples[:N_SAMPLES]
        return ValidationReport(step, score.loss, score.perplexity, greedy.score, best, seconds, samples)

    def evaluate(
        self, model: Transformer, text: Sequence[Pair], *, beam: int,
        max_extra_tokens: int = SearchConfig.max_extra_tokens, progress: Progress = lambda done, total: None,
    ) -> Evaluation:  # fmt: skip
        """Translate raw text and compute BLEU, or parse words and compute F1.

        ``max_extra_tokens`` limits translations, but not trees.
        Raises: TrainingDivergedError if log-probabilities are not finite; ValidationMemoryError.
        """
        try:
            with self._advising():
                return self._evaluate(model, text, SearchConfig(beam=beam, max_extra_tokens=max_extra_tokens), progress)
        except SearchError as error:
            raise _diverged(f"{error}") from error

    @contextmanager
    def _advising(self) -> Iterator[None]:
        """Turn a lack of memory into an error with its own remedy, because a smaller training batch would not help."""
        try:
            yield
        except MemoryError as error:
            traceback.clear_frames(error.__traceback__)  # the frames hold the arrays that filled the memory
            longest = 1 + max((len(side) for pair in self.pairs for side in pair), default=0)
            raise ValidationMemoryError(
                f"validation: out of memory, with pairs of up to {longest:,} tokens, on {self.n_threads} threads. Free"
                " some memory, or start on fewer cores (taskset -c 0), and start the run again, which goes on"
                " from the last checkpoint; or take long lines out of the validation text, and set run to another"
                " directory"
            ) from error

    def _evaluate(
        self, model: Transformer, text: Sequence[Pair], search: SearchConfig, progress: Progress
    ) -> Evaluation:
        translator, advance = Translator(model, self.tokenizer), _summed(progress, len(text))
        sources, references = [source for source, _ in text], [target for _, target in text]
        if not self.is_treebank:
            found = translator.n_best(sources, search, n_threads=self.n_threads, advance=advance)
            translations = [best[0].text for best in found]
            return Evaluation(bleu(translations, [references]), _samples(sources, references, translations))
        sentences = [source.split(" ") for source in sources]
        gold = [tree_of(target.split(" "), words) for target, words in zip(references, sentences, strict=True)]
        search = dataclasses.replace(PARSING, beam=search.beam)
        trees = Parser(translator).parse(sentences, search, n_threads=self.n_threads, advance=advance)
        written = ([write_tree(tree) for tree in side] for side in (gold, trees))
        return Evaluation(bracketing_f1(trees, gold), _samples(sources, *written))


def _samples(*columns: Sequence[str]) -> tuple[Sample, ...]:
    return tuple(Sample(*row) for row in zip(*columns, strict=True))


def _summed(progress: Progress, total: int) -> Advance:
    """Return a function that adds up finished sentences, on any thread, and passes the sum to ``progress``."""
    lock, n_done = Lock(), 0

    def advance(n: int) -> None:
        nonlocal n_done
        with lock:
            n_done += n
            progress(n_done, total)

    advance(0)
    return advance


def _diverged(what: str) -> TrainingDivergedError:
    return TrainingDivergedError(
        f"validation: {what}: the parameters have become too large. Lower training.learning_rate_factor, or set"
        " training.clip_norm, and start the run again, which goes on from the last checkpoint; or set run to another"
        " directory"
    )
