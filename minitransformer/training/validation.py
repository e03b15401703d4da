"""Scores of a model on held-out text."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

from minitransformer.config import TrainingConfig
from minitransformer.config.training import PatienceFor
from minitransformer.data.corpus import Pair
from minitransformer.data.prepare import PreparedData
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
from minitransformer.training.callbacks import ValidationReport
from minitransformer.training.divergence import TrainingDivergedError
from minitransformer.training.state import TrainingState

Progress: TypeAlias = Callable[[int, int], None]  # called on any thread: sentences done, and all
EXTRA_TOKENS = 25  # during training, a translation may exceed its source by so many more than any reference does
N_SAMPLES = 5  # sentences whose translations a report shows, so that one can see them improve
BEST = "best"  # folder of a run that keeps the model with the lowest validation loss

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
        store = data.store("validation").read()
        pairs = [store.pair(i) for i in range(len(store))]
        return cls(pairs, data.text("validation")[:n_translated], data.tokenizer, task, n_threads)

    def loss(self, model: Transformer) -> TargetScore:
        """Return loss and perplexity, without label smoothing and dropout.

        Raises: TrainingDivergedError if they are not finite, which happens with
        finite parameters, too; ValidationMemoryError.
        """
        with self._memory_advice():
            score = TargetScore.sum(score_pairs(model, self.pairs, n_threads=self.n_threads))
        if not math.isfinite(score.loss):
            raise _divergence_error(f"the loss is {score.loss}")
        return score

    def report(
        self, model: Transformer, step: int, best_loss: float | None, progress: Progress = lambda done, total: None
    ) -> ValidationReport:
        """Return loss and perplexity, and BLEU (for trees: F1) of greedy search.

        An untrained model finds no end, so translations may not be much longer than references; see EXTRA_TOKENS.
        """
        start = time.perf_counter()
        progress(0, len(self.text))
        score = self.loss(model)
        excess = max((len(target) - len(source) for source, target in self.pairs), default=0)
        extra = EXTRA_TOKENS + max(0, excess)
        greedy = self.evaluate(model, self.text, beam=1, max_extra_tokens=extra, progress=progress)
        best = is_better(score.loss, best_loss, greatest=False)
        seconds = time.perf_counter() - start
        samples = greedy.samples[:N_SAMPLES]
        return ValidationReport(step, score.loss, score.perplexity, greedy.score, best, seconds, samples)

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
                translator, advance = Translator(model, self.tokenizer), _sum_progress(progress, len(text))
                return self.task.evaluate(translator, text, search, n_threads=self.n_threads, advance=advance)
        except SearchError as error:
            raise _divergence_error(f"{error}") from error

    @contextmanager
    def _memory_advice(self) -> Iterator[None]:
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


def watched_figure(best_score: float | None, config: TrainingConfig) -> PatienceFor:
    """Return the figure that ``patience`` watches: the loss, too, as long as the best score is 0."""
    return "score" if config.patience_for == "score" and round(best_score or 0.0, SCORE_DIGITS) else "loss"


def progress(report: ValidationReport, state: TrainingState, config: TrainingConfig, *, kept: bool) -> dict[str, Any]:
    """Return the fields of the state that a validation changes; ``kept`` if its model was saved as the best.

    Warn at the second validation if its score is that of the first one, and ``patience`` is for the score.
    """
    score = report.score.value
    has_best_score = is_better(score, state.best_score, greatest=True)
    best_score = score if has_best_score else state.best_score
    watched = watched_figure(best_score, config)
    is_second = config.patience is not None and state.step == 2 * config.validate_every
    if is_second and config.patience_for == "score" and (watched == "loss" or score == state.best_score):
        consequence = (
            "As long as it is 0, patience is for the loss (training.patience_for)"
            if watched == "loss"
            else f"A score that does not move is no progress: after {config.patience} validations without a better one"
            " the run ends (training.patience). To watch the loss, begin another run with"
            ' training.patience_for = "loss"'
        )
        _log.warning(f"{report.score.name} is {score:.2f}, as in the first validation. {consequence}")
    is_progress = report.best if watched == "loss" else has_best_score
    return {
        "best_loss": report.loss if kept else state.best_loss,
        "best_score": best_score,
        "n_without_progress": 0 if is_progress else state.n_without_progress + 1,
        "validation_is_due": False,
    }


def keep_best(run: Path, model: Transformer) -> bool:
    """Save the model as the best so far; return False, and log a warning, if it cannot be written."""
    for directory in (run / BEST, run):
        try:
            model.save(directory)
        except CheckpointError as error:
            _log.warning(f"{error}; training goes on")
            if directory != run:
                return False
    return True
