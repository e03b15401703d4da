"""A whole training run, as one function."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from autograd import to_host
from autograd.array import Array
from autograd.kernel_registry import references_only
from minitransformer.config import RunConfig, TrainingConfig
from minitransformer.config.checks import require
from minitransformer.config.run import RESULTS_FILE, RUN_FILE, TRANSLATIONS_FILE
from minitransformer.data.survey import Pair
from minitransformer.inference.bleu import Score
from minitransformer.inference.length_penalty import ALPHAS, Tried, choose_alpha
from minitransformer.inference.scoring import TargetScore
from minitransformer.inference.task import Evaluation, Sample
from minitransformer.model.files import load_model_files
from minitransformer.model.transformer import Transformer, implementation_of
from minitransformer.system.files import CheckpointError, CorruptFileError, lock_directory, read_json, write_text
from minitransformer.system.progress import in_words
from minitransformer.system.provenance import code_version, short_hash
from minitransformer.system.records import read_object, read_record
from minitransformer.training.callbacks import SCORES, Callback, Callbacks, MetricsFile
from minitransformer.training.checkpoint import (
    LostDirectoryError,
    average_weights,
    checkpoints_of_updates,
    has_complete_model,
    stale_checkpoints,
)
from minitransformer.training.divergence import TrainingDivergedError
from minitransformer.training.flops import Cost, sustained_flops_per_second
from minitransformer.training.memory import memory_advice
from minitransformer.training.open_run import OpenRun, open_run
from minitransformer.training.pretrained import PRETRAINED, pretrained_of
from minitransformer.training.progress_bar import ProgressBar
from minitransformer.training.state import Figure
from minitransformer.training.validation import BEST, Validation, exceeds, figure
from parallel.agreement import checksum
from parallel.communicator import Communicator, SerialCommunicator, call_on_rank_0
from parallel.rank_log import collected_warnings

ALPHA_SENTENCES = 1_000  # the first held-out sentences, on which the length penalty's α is chosen
ROUNDS = "evaluation"  # the folder of a run with the translations that an interrupted evaluation has finished
COUNTS = ("train_pairs", "validation_pairs", "dropped", "source_words", "target_words")  # of the prepared data

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """The result of a training run."""

    run: Path
    """The run's directory; ``Translator.load`` reads it when the run is complete."""
    updates: int
    """Updates made so far, updates of earlier calls included."""
    is_complete: bool
    """False if the run was interrupted and saved; then the same call continues the run."""
    model: Transformer
    """The final model if the run is complete, else the model after the last update."""
    results: dict[str, Any]
    """The content of ``results.json``: BLEU, cost, provenance; {} if the run is not complete, and on other ranks."""


def train(
    config: RunConfig,
    *,
    model: type[Transformer] | None = None,
    world: Communicator | None = None,
    callbacks: Iterable[Callback] | None = None,
    always_average: bool = False,
    evaluates: bool = True,
) -> RunResult:
    """Train a model on raw text, and save it for ``Translator.load``; resume from the last checkpoint if there is one.

    Return a ``RunResult``: the directory ``run``, the number of ``updates``, ``is_complete`` (false if interrupted; the
    same call then continues), the ``model``, and the ``results``: BLEU, cost, provenance.
    Progress is logged with Python's ``logging``; loggers have the names of the modules.  Rank 0 also logs the warnings
    of other ranks.

    Args:
        config: the settings; ``RunConfig()`` is the demonstration, which takes minutes on two CPU cores.
        model: the class of the model, derived from ``Transformer``; by default the class that ``config.model`` names.
        world: the ranks that train together, from ``minitransformer.parallel.launch.communicator()``; by default this
            process alone.
        callbacks: objects called during training on this rank; by default a progress bar on stderr, on rank 0.
        always_average: average the last checkpoints into the final model even if the best single model is better; with
            ``training.ema``, take the moving average after the last update.
        evaluates: true to make the final model at the end, and score it.

    Raises: ConfigError if settings do not fit together, or the run's directory holds another run; CorpusError if text
    cannot be used; CheckpointError if a file of the run cannot be read or written; OutOfMemoryError; DeviceError;
    TrainingDivergedError if the loss or a gradient is not finite again and again; DisagreementError on rank 0 if ranks
    have different settings, data or code.
    """
    config = _with_class(config, model)
    world = world or SerialCommunicator()
    if callbacks is None:
        callbacks = [ProgressBar()] if world.rank == 0 else []
    files = [MetricsFile(config.run)] if world.rank == 0 else []
    callback = Callbacks([*files, *callbacks])
    with _opened(config, world, measured=world.any(callback.measures)) as run:
        if evaluates and is_finished(run):
            is_complete = True
            to_go_on = "training.patience" if run.trainer.has_lost_patience else "training.max_updates"
            _log.info(
                f"{config.run}: finished after {run.trainer.state.step:,} updates; nothing is left to do (to go on,"
                f" raise {to_go_on})"
            )
            if world.rank == 0:
                run.trainer.model.config, weights = load_model_files(config.run)
                run.trainer.model.set_weights(weights)
        else:
            callback.begin(run.trainer.state, config.training.max_updates)
            try:
                is_complete = train_to_end(run, callback)
                if is_complete and evaluates:
                    finish(run, callback, always_average=always_average)
            finally:
                callback.end()
    results = read_json(config.run / RESULTS_FILE) if is_complete and evaluates and world.rank == 0 else {}
    return RunResult(config.run, run.trainer.state.step, is_complete, run.trainer.model, results)


@contextmanager
def _opened(config: RunConfig, world: Communicator, *, measured: bool) -> Iterator[OpenRun]:
    """Open a run with its kernels, while its directory is locked; ``measured`` says that callbacks measure figures."""
    with references_only(when=config.kernels == "reference"), run_lock(config.run, world), collected_warnings(world):
        try:
            _require_figures(config.training, measured=measured)
            yield open_run(config, world)
        except KeyboardInterrupt:
            _log.info("interrupted; the same run, started again, goes on from what is saved")
            raise


def try_to_open(config: RunConfig, world: Communicator, *, measured: bool) -> None:
    """Open a run as its training does: prepare the data, build the model and compute the largest batch once.

    A new run may then begin with other settings of model and training.  ``measured`` says that callbacks measure
    figures.
    Raises: as ``train``.
    """
    is_new = not (config.run / RUN_FILE).exists()
    with _opened(config, world, measured=measured):
        if is_new and world.rank == 0:
            (config.run / RUN_FILE).unlink()


def _with_class(config: RunConfig, model: type[Transformer] | None) -> RunConfig:
    """Return the settings with the class of the model, if it is given.  Raises: TypeError for other settings."""
    if not isinstance(config, RunConfig):
        raise TypeError(
            'train: expected a RunConfig, such as RunConfig.of_preset("tiny"); got'
            f" {type(config).__name__} {config!r:.80}"
        )
    if model is None:
        return config
    return dataclasses.replace(config, model=dataclasses.replace(config.model, implementation=implementation_of(model)))


def _require_figures(config: TrainingConfig, *, measured: bool) -> None:
    """Raise ConfigError if a setting names an unknown figure; any name is allowed if callbacks measure figures."""
    for setting in ("best_by", "patience_for"):
        name = getattr(config, setting)
        known = name.removeprefix("-") in ("loss", "perplexity", *SCORES)
        require(known or measured, f"training.{setting}", "loss, perplexity, bleu, f1 or measured by a callback", name)


def train_to_end(run: OpenRun, callback: Callback) -> bool:
    """Train to the end; return False if interrupted and saved.  Raises: as ``Trainer.train``; OutOfMemoryError."""
    try:
        with memory_advice(run.trainer):
            return run.trainer.train(callback)
    except LostDirectoryError as error:
        run.data.tokenizer.save(error.kept_in)  # without the tokenizer, the run cannot go on from there
        raise


@contextmanager
def run_lock(directory: Path, world: Communicator) -> Iterator[None]:
    """Lock a directory, so that only these ranks train in it; create the directory if it is missing.

    The system releases the lock when rank 0 ends in any way.  After an error, a directory that was created here is
    removed if it is empty.
    Raises: CheckpointError on all ranks if another process trains there, or the directory cannot be created.
    """
    with ExitStack() as held:
        call_on_rank_0(lambda: held.enter_context(lock_directory(directory, "training")), world)
        yield


def is_finished(run: OpenRun) -> bool:
    """Return whether an earlier call has completed this run; all ranks must call this."""
    results = read_object(run.config.run / RESULTS_FILE) if run.trainer.is_complete else {}
    return run.world.bcast(results.get("updates") == run.trainer.state.step)


def finish(run: OpenRun, callback: Callback, *, always_average: bool = False) -> None:
    """Make the final model, save it in the run's directory, and write its scores and costs to ``results.json``.

    Write the final model's translations of held-out text to ``translations.jsonl``.
    ``always_average``: use the average of the last checkpoints even if the best single model is better.
    All ranks must call this.
    """
    cost, averaged = _cost(run), run.trainer.validated_model() if run.config.training.ema else None
    with run.world.waiting_for_rank_0():
        if run.trainer.validation is not None:
            _evaluate(run, run.trainer.validation, callback, cost, averaged, always_average)


def _cost(run: OpenRun) -> Cost:
    state = run.trainer.state
    repeats = min(10, 1 + int(state.seconds))  # a short training does not wait for a long measurement
    rate = sustained_flops_per_second(run.config.device, run.trainer.gradient.n_threads, repeats=repeats)
    return Cost(state.flops, state.device_seconds, run.world.allreduce(rate) / run.world.size)


def _evaluate(
    run: OpenRun,
    validation: Validation,
    callback: Callback,
    cost: Cost,
    averaged: Transformer | None,
    always_average: bool,
) -> None:
    start = time.perf_counter()
    callback.validating(0, len(run.data.text("validation")))
    weights, loss = _choose_weights(run, validation, callback, averaged, always_average)
    _require_better_than_guessing(run, loss.loss)
    pretrained = pretrained_of(run.config.run)
    results = (
        _provenance(run) | ({PRETRAINED: pretrained} if pretrained else {}) | {"weights": weights} | cost.figures()
    )
    lines: list[str] = []
    _log.info(f"training cost: {cost}")
    evaluate = _Rounds(run, validation, callback)
    if run.config.model.alpha is None and validation.task.takes_alpha:
        _choose_alpha(run, evaluate)
    for split in ("validation", "test"):
        text = run.data.text(split)
        if text:
            score, samples = evaluate(split, text, run.trainer.model.config.own_alpha)
            lines += (json.dumps({"split": split} | dataclasses.asdict(s), ensure_ascii=False) + "\n" for s in samples)
            results[split] = {score.name.lower(): score.value, "detail": score.detail, "signature": score.signature}
            if split == "validation":
                results[split]["perplexity"] = loss.perplexity
            _log.info(f"{split}: {score}, beam 4, {len(text):,} sentences")
    results["alpha"] = run.trainer.model.config.alpha
    _log.info(f"code {results['code']}, configuration {results['configuration']}")
    results["evaluation_seconds"] = time.perf_counter() - start
    _require_directory(run.config.run)
    write_text(run.config.run / TRANSLATIONS_FILE, "".join(lines))
    write_text(run.config.run / RESULTS_FILE, json.dumps(results, indent=2) + "\n")
    shutil.rmtree(run.config.run / ROUNDS, ignore_errors=True)


def _choose_weights(
    run: OpenRun, validation: Validation, callback: Callback, averaged: Transformer | None, always_average: bool
) -> tuple[str, TargetScore]:
    """Set the model to an average, or to the best model of all validations if it is better, and save it.

    The average is that of the last checkpoints, or the moving average ``averaged`` of the last update, if it is given.
    Returns: a description of the weights for ``results.json``, and their loss on the validation set.
    """
    model, state, directory = run.trainer.model, run.trainer.state, run.config.run
    _require_directory(directory)
    weights, made = _average_of_checkpoints(run) if averaged is None else _moving_average(run, averaged)
    model.set_weights(weights)
    score = validation.loss(model)
    name, average = "loss", score.loss
    if run.config.training.best_by != "loss":
        name, average = figure(validation.report(model, state.step, callback), "best_by", run.config.training)
    _require_directory(directory)
    best = None if always_average else _better_weights(run, validation, callback, (name, average))
    model.set_weights(weights if best is None else best)
    if best is not None and state.best:
        score = validation.loss(model)
        kind = "single model" if averaged is None else "moving average of the weights"
        made = f"best {kind}, validation {name} {state.best[1]:.4f}"
        _log.info(f"kept the {made} (average: {average:.4f})")
    else:
        _log.info(f"made the {made}, validation {name} {average:.4f}")
    model.save(directory)
    return made, score


def _better_weights(
    run: OpenRun, validation: Validation, callback: Callback, average: Figure
) -> dict[str, Array] | None:
    """Return the weights of the best model of all validations if it is better than the average, else None.

    The model has the average's weights, with the figure ``average``.  The best model must have a better figure; if that
    is the loss or the perplexity, its translations must not be worse, either: in a long training on little text the
    loss can rise while translations still get better.
    """
    model, best, directory = run.trainer.model, run.trainer.state.best, run.config.run / BEST
    if not (best and best[0] == average[0] and exceeds(best, average) and has_complete_model(directory)):
        return None
    weights = load_model_files(directory)[1]
    if best[0] not in ("loss", "perplexity"):
        return weights
    average_score = validation.greedy(model, callback).score
    model.set_weights(weights)
    score = validation.greedy(model, callback).score
    if score.value >= average_score.value:
        return weights
    _log.info(
        f"the best model has the better {best[0]} ({best[1]:.4f}; average: {average[1]:.4f}) but the worse greedy"
        f" {score.name} ({score.value:.2f}; average: {average_score.value:.2f})"
    )
    return None


def _average_of_checkpoints(run: OpenRun) -> tuple[dict[str, Array], str]:
    """Return the average of the last checkpoints, and its description; warn if a checkpoint is left out."""
    last = checkpoints_of_updates(run.config.run)[-run.config.training.average_checkpoints :]
    last = [path for path in last if has_complete_model(path)]
    if stale := stale_checkpoints(last, run.trainer.state.step, run.config.training):
        _log.warning(stale)
    return average_weights(last), f"average of the last {len(last)} checkpoints"


def _moving_average(run: OpenRun, averaged: Transformer) -> tuple[dict[str, Array], str]:
    decay, step = run.config.training.ema, run.trainer.state.step
    return averaged.weights(), f"moving average of the weights (decay {decay:g}) after update {step:,}"


def _require_better_than_guessing(run: OpenRun, loss: float) -> None:
    """Raise TrainingDivergedError if a loss is over twice that of guessing each token, which untrained models reach."""
    n_words = run.data.tokenizer.n_target_words
    if loss > 2 * math.log(n_words):
        raise TrainingDivergedError(
            f"validation: the loss of the final model is {loss:.4g}, but to guess each of {n_words:,} tokens has a loss"
            f" of {math.log(n_words):.4g}: the training has diverged. Set run to another directory, and lower"
            " training.learning_rate_factor or set training.clip_norm"
        )


@dataclass(frozen=True)
class _Round:
    """The translations of a text with one α, in a file; ``made_with`` identifies the code and the model's weights."""

    made_with: str
    name: str
    value: float
    signature: str
    detail: str
    samples: tuple[tuple[str, str, str], ...]


class _Rounds:
    """The final evaluation of a model, in rounds; a round that an interrupted process has finished is not repeated."""

    def __init__(self, run: OpenRun, validation: Validation, callback: Callback) -> None:
        self._folder, self._model = run.config.run / ROUNDS, run.trainer.model
        self._evaluate = partial(validation.evaluate, self._model, beam=4, progress=callback.validating)
        self._made_with = short_hash(f"{code_version()} {checksum(to_host(self._model.parameters.values))}")

    def __call__(self, split: str, text: Sequence[Pair], alpha: float) -> Evaluation:
        """Translate and score a text with an exponent α of the length penalty."""
        path = self._folder / f"{split}-{len(text)}-{alpha:g}.json"
        with suppress(CorruptFileError):  # also if there is no file
            found = read_record(path, _Round)
            if found.made_with == self._made_with:
                score = Score(found.name, found.value, found.signature, found.detail)
                return Evaluation(score, tuple(Sample(*each) for each in found.samples))
        score, samples = self._evaluate(text, alpha=alpha)
        lines = tuple((each.source, each.reference, each.translation) for each in samples)
        done = _Round(self._made_with, score.name, score.value, score.signature, score.detail, lines)
        _require_directory(self._folder.parent)
        write_text(path, json.dumps(dataclasses.asdict(done), ensure_ascii=False))
        return Evaluation(score, samples)


def _choose_alpha(run: OpenRun, evaluate: _Rounds) -> None:
    """Choose the exponent of the length penalty on the first held-out sentences, and save it in the model.

    If a round takes over a second, log the time that all others will take.
    """
    model, text, tried = run.trainer.model, run.data.text("validation"), list[Tried]()
    some = text[:ALPHA_SENTENCES]
    _log.info(f"choosing α of the length penalty: {len(some):,} validation sentences, {len(ALPHAS)} values of α")
    for alpha in ALPHAS:
        start = time.perf_counter()
        tried.append(Tried(alpha, evaluate("validation", some, alpha)))
        if (seconds := time.perf_counter() - start) > 1 and alpha == ALPHAS[0]:
            n_left = len(ALPHAS) - 1 + (len(text) / len(some) if len(text) > len(some) else 0)
            _log.info(f"about {in_words(seconds * n_left)} left for α, and for the score of {len(text):,} sentences")
    chosen, _ = choose_alpha(tried, run.config.model.own_alpha)
    scores = ", ".join(f"{one.alpha:g}: {one.score:.2f}{one.remark}" for one in tried)
    _log.info(f"length penalty: chose α {chosen.alpha:g}; {chosen.found.score.name} of validation text by α: {scores}")
    model.config = dataclasses.replace(model.config, alpha=chosen.alpha)
    model.save(run.config.run)


def _require_directory(directory: Path) -> None:
    """Raise CheckpointError if the run's directory is gone: a new one would lack the checkpoints."""
    if not (directory / RUN_FILE).exists():
        raise CheckpointError(
            f"{directory}: was moved or removed after its last update ({RUN_FILE} is no longer there). If you have"
            " moved it, set run to its new place and start the run again, which finishes it"
        )


def _provenance(run: OpenRun) -> dict[str, Any]:
    return {
        "code": code_version(),
        "configuration": short_hash(run.config.to_json()),
        "updates": run.trainer.state.step,
        "training_seconds": run.trainer.state.seconds,
        "parameters": run.trainer.model.n_parameters,
        "data": {name: run.data.manifest[name] for name in COUNTS},
    }
