"""Scores of a model on held-out text."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

from minitransformer.config import TrainingConfig
from minitransformer.config.checks import require
from minitransformer.data.prepare import PreparedData
from minitransformer.data.survey import Pair
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.inference.bleu import SCORE_DIGITS, is_better
from minitransformer.inference.scoring import TargetScore, score_pairs
from minitransformer.inference.search import Advance, SearchConfig, SearchError
from minitransformer.inference.task import Evaluation, Task
from minitransformer.inference.translator import Translator
from minitransformer.model.batch import IdPair
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError
from minitransformer.system.files import CheckpointError
from minitransformer.training.callbacks import Callback, ValidationReport
from minitransformer.training.divergence import TrainingDivergedError
from minitransformer.training.state import Figure, TrainingState

Progress: TypeAlias = Callable[[int, int], None]  # arguments: sentences done, and all; called on any thread
EXTRA_TOKENS = 25  # added to the greatest excess of a reference over its source: the limit of translations in reports
N_SAMPLES = 5  # sentences whose translations a report shows, so that one can see them improve
BEST = "best"  # folder of a run that keeps the best model of all validations

_log = logging.getLogger(__name__)


class ValidationMemoryError(UserError):
    """An error: held-out text needs more memory than is available."""


@dataclass(frozen=True)
class Validation:
    """Held-out pairs, as token ids and as text, on which models are scored."""

    pairs: Sequence[IdPair]
    text: Sequence[Pair]
    """Sentences that are translated during training."""
    tokenizer: Tokenizer
    task: Task
    n_threads: int

    @classmethod
    def of(cls, data: PreparedData, task: Task, *, n_translated: int, n_threads: int) -> Validation:
        """Read the held-out part of prepared data; its first ``n_translated`` sentences are translated in reports."""
        store = data.stores["validation"].read()
        pairs = [store.pair(i) for i in range(len(store))]
        return cls(pairs, data.text("validation")[:n_translated], data.tokenizer, task, n_threads)

    def loss(self, model: Transformer) -> TargetScore:
        """Return loss and perplexity, without label smoothing and dropout.

        Raises: TrainingDivergedError if the loss is not finite, even with finite parameters; ValidationMemoryError.
        """
        with self._memory_advice():
            score = TargetScore.sum(score_pairs(model, self.pairs, n_threads=self.n_threads))
        if not math.isfinite(score.loss):
            raise _divergence_error(f"the loss is {score.loss}")
        return score

    def report(self, model: Transformer, step: int, callback: Callback) -> ValidationReport:
        """Return loss and perplexity, BLEU (for trees: F1) of greedy search, and what the callback measures."""
        start = time.perf_counter()
        callback.validating(0, len(self.text))
        score, greedy = self.loss(model), self.greedy(model, callback)
        measures: Mapping[str, float] | None = None
        if callback.measures:
            columns = zip(*((each.source, each.reference, each.translation) for each in greedy.samples), strict=True)
            translator = Translator(model, self.tokenizer, weights="float32")
            measures = callback.validated(model, translator, *map(list, columns))
        seconds, samples = time.perf_counter() - start, greedy.samples[:N_SAMPLES]
        return ValidationReport(
            step, score.loss, score.perplexity, greedy.score, seconds=seconds, samples=samples, measures=measures or {}
        )

    def greedy(self, model: Transformer, callback: Callback) -> Evaluation:
        """Translate ``text`` by greedy search and score it; ``callback`` receives the progress.

        An untrained model generates no end symbol, so EXTRA_TOKENS limits the length of translations.
        """
        excess = max((len(target) - len(source) for source, target in self.pairs), default=0)
        extra = EXTRA_TOKENS + max(0, excess)
        return self.evaluate(model, self.text, beam=1, max_extra_tokens=extra, progress=callback.validating)

    def evaluate(
        self,
        model: Transformer,
        text: Sequence[Pair],
        *,
        beam: int,
        alpha: float | None = None,
        max_extra_tokens: int = SearchConfig.max_extra_tokens,
        progress: Progress = lambda done, total: None,
    ) -> Evaluation:
        """Translate raw text and compute BLEU, or parse words and compute F1.

        ``max_extra_tokens`` limits translations, but not trees.
        Raises: TrainingDivergedError if log-probabilities are not finite; ValidationMemoryError.
        """
        try:
            with self._memory_advice():
                search = SearchConfig(beam=beam, alpha=alpha, max_extra_tokens=max_extra_tokens)
                translator = Translator(model, self.tokenizer, weights="float32")  # as minitransformer-score
                advance = _sum_progress(progress, len(text))
                return self.task.evaluate(translator, text, search, n_threads=self.n_threads, advance=advance)
        except SearchError as error:
            raise _divergence_error(f"{error}") from error

    @contextmanager
    def _memory_advice(self) -> Iterator[None]:
        """Turn a MemoryError into a ValidationMemoryError: a smaller training batch would not help here."""
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


def _sum_progress(progress: Progress, total: int) -> Advance:
    """Return a function that adds up finished sentences, on any thread, and passes the sum to ``progress``."""
    lock, n_done = Lock(), 0

    def advance(n: int) -> None:
        nonlocal n_done
        with lock:
            n_done += n
            progress(n_done, total)

    advance(0)
    return advance


def _divergence_error(what: str) -> TrainingDivergedError:
    return TrainingDivergedError(
        f"validation: {what}: the parameters have become too large. Lower training.learning_rate_factor, or set"
        " training.clip_norm, and start the run again, which goes on from the last checkpoint; or set run to another"
        " directory"
    )


def figure(report: ValidationReport, setting: str, config: TrainingConfig) -> Figure:
    """Return the name and value of the figure that ``training.<setting>`` names.  Raises: ConfigError without it."""
    name, figures = getattr(config, setting), report.figures
    require(name.removeprefix("-") in figures, f"training.{setting}", f"one of {', '.join(figures)}", name)
    return name, figures[name.removeprefix("-")]


def exceeds(figure: Figure, kept: Figure | None) -> bool:
    """Return whether a figure is better than ``kept``, or ``kept`` is None or has another name; NaN is never better.

    A lower figure is better for the loss, for perplexity, and if the name begins with "-".
    """
    name, value = figure
    before = kept[1] if kept and kept[0] == name else None
    return is_better(value, before, greatest=not (name in ("loss", "perplexity") or name.startswith("-")))


def progress(report: ValidationReport, state: TrainingState, config: TrainingConfig, *, kept: bool) -> dict[str, Any]:
    """Return the fields of the state that a validation changes; ``kept``: the model was saved as the best.

    While the figure ``patience_for`` is still 0, ``patience`` watches the loss.
    Warn at the second validation if the figure ``patience_for`` has not changed.
    """
    watched, before = figure(report, "patience_for", config), state.best_watched
    name, value = watched
    if not round(value, SCORE_DIGITS) and not (before and before[0] == name):
        watched = "loss", report.loss
    is_second = config.patience is not None and state.step == 2 * config.validate_every
    if is_second and name != "loss" and (watched[0] != name or watched == before):
        consequence = (
            "As long as it is 0, patience is for the loss (training.patience_for)"
            if watched[0] == "loss"
            else f"A figure that does not move is no progress: after {config.patience} validations without a better one"
            ' the run ends (training.patience). To watch the loss, set training.patience_for to "loss"'
        )
        _log.warning(f"{name} is {value:.2f}, as in the first validation. {consequence}")
    is_progress = exceeds(watched, before)
    return {
        "best": figure(report, "best_by", config) if kept else state.best,
        "best_watched": watched if is_progress else before,
        "n_without_progress": 0 if is_progress else state.n_without_progress + 1,
        "validation_is_due": False,
    }


def keep_best(run: Path, model: Transformer) -> bool:
    """Save the model in ``best`` and in the run; warn of failures; return False if the write to ``best`` failed."""
    for directory in (run / BEST, run):
        try:
            model.save(directory)
        except CheckpointError as error:
            _log.warning(f"{error}; training goes on")
            if directory != run:
                return False
    return True
