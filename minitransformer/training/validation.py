"""How good a model is on held-out text."""

from __future__ import annotations

import dataclasses
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from minitransformer.data.corpus import Pair
from minitransformer.data.prepare import PreparedData
from minitransformer.evaluation.bleu import Score, bleu
from minitransformer.inference.beam import SearchError
from minitransformer.inference.scoring import CorpusScore, score_pairs
from minitransformer.inference.translator import Translator
from minitransformer.model.transformer import Transformer
from minitransformer.parsing.f1 import bracketing_f1
from minitransformer.parsing.linear import tree_of
from minitransformer.parsing.parser import PARSING, Parser
from minitransformer.system.errors import UserError
from minitransformer.system.files import CheckpointError
from minitransformer.training.callbacks import ValidationReport
from minitransformer.training.divergence import TrainingDivergedError

BEST = "best"  # folder of a run that keeps the model with the lowest validation loss


class ValidationMemoryError(UserError):
    """Held-out text needs more memory than there is."""


class Validation:
    """The held-out part of prepared data, ready to judge a model by."""

    def __init__(self, data: PreparedData, *, n_threads: int) -> None:
        store = data.store("validation")
        self.pairs = [store.pair(i) for i in range(len(store))]
        self.text, self.is_treebank = data.text("validation"), data.is_treebank
        self.tokenizer, self.n_threads = data.tokenizer, n_threads

    def loss(self, model: Transformer) -> CorpusScore:
        """Loss and perplexity, without label smoothing and dropout.

        Raises: TrainingDivergedError if they are not finite, which with finite parameters they need not be: no loss
        could be compared with them, and no checkpoint may hold them for the best.  ValidationMemoryError.
        """
        with self._advising():
            score = CorpusScore.of(score_pairs(model, self.pairs, n_threads=self.n_threads))
        if not math.isfinite(score.loss):
            raise _diverged(f"the loss is {score.loss}")
        return score

    def report(self, model: Transformer, step: int, best_loss: float | None) -> ValidationReport:
        """Loss, perplexity and the BLEU (or, of trees, F1) of greedy search."""
        start = time.perf_counter()
        score = self.loss(model)
        greedy = self.score(model, self.text, beam=1)
        best = best_loss is None or score.loss < best_loss
        seconds = time.perf_counter() - start
        return ValidationReport(step, score.loss, score.perplexity, greedy, best, seconds)

    def score(self, model: Transformer, text: Sequence[Pair], *, beam: int) -> Score:
        """BLEU of the translations of raw text, or F1 of the trees of words.

        Raises: TrainingDivergedError if log-probabilities are not finite; ValidationMemoryError.
        """
        try:
            with self._advising():
                return self._score(model, text, beam)
        except SearchError as error:
            raise _diverged(f"{error}") from error

    @contextmanager
    def _advising(self) -> Iterator[None]:
        """Turn a lack of memory into one line of its own: another batch to train on, as elsewhere, would not help."""
        try:
            yield
        except MemoryError as error:
            traceback.clear_frames(error.__traceback__)  # which hold what there was no room beside
            longest = 1 + max((len(side) for pair in self.pairs for side in pair), default=0)
            raise ValidationMemoryError(
                f"validation: out of memory, with pairs of up to {longest:,} tokens, on {self.n_threads} threads. Free"
                " some memory, or start on fewer cores (taskset -c 0), and give the same command again, which goes on"
                " from the last checkpoint; or take long lines out of the validation text, and choose another --run"
            ) from error

    def _score(self, model: Transformer, text: Sequence[Pair], beam: int) -> Score:
        translator = Translator(model, self.tokenizer)
        sources, references = [source for source, _ in text], [target for _, target in text]
        if not self.is_treebank:
            return bleu(translator.translate(sources, beam=beam, n_threads=self.n_threads), [references])
        sentences = [source.split(" ") for source in sources]
        gold = [tree_of(target.split(" "), words) for target, words in zip(references, sentences, strict=True)]
        search = dataclasses.replace(PARSING, beam=beam)
        return bracketing_f1(Parser(translator).parse(sentences, search, n_threads=self.n_threads), gold)


def _diverged(what: str) -> TrainingDivergedError:
    return TrainingDivergedError(
        f"validation: {what}: the parameters have become too large. Lower --training.learning-rate-factor, or set"
        " --training.clip-norm, and give the same command again, which goes on from the last checkpoint; or begin anew"
        " with another --run"
    )


def keep_best(run: Path, model: Transformer, say: Callable[[str], None]) -> bool:
    """Save the model as the best so far; if that fails, say so, and the best so far remains the one before."""
    try:
        model.save(run / BEST)
    except CheckpointError as error:
        say(f"warning: {error}; training goes on")
        return False
    try:
        model.save(run)
    except CheckpointError as error:
        say(f"warning: {error}; training goes on")
    return True
