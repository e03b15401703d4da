"""A whole training run, as one function."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from autograd.kernel_registry import references_only
from minitransformer.config import RunConfig
from minitransformer.config.run import RESULTS_FILE
from minitransformer.model.transformer import Transformer
from minitransformer.system.files import read_json
from minitransformer.training.callbacks import Callback, Callbacks, MetricsFile, ProgressBar, ReportPage
from minitransformer.training.final_model import finish, is_finished, load_final_model
from minitransformer.training.largest_batch import advising
from minitransformer.training.open_run import OpenRun, open_run
from minitransformer.training.run_lock import run_lock
from minitransformer.training.writer import LostDirectoryError
from parallel.communicator import Communicator, SerialCommunicator
from parallel.rank_log import collected_warnings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """The result of a training run."""

    run: Path
    """The run's directory; ``Translator.load`` reads it when the run is complete."""
    updates: int
    """Updates made so far, those of earlier calls included."""
    is_complete: bool
    """False if the run was interrupted, and saved; the same call then continues it."""
    model: Transformer
    """The final model if the run is complete, else the model after the last update."""
    results: dict[str, Any]
    """The content of ``results.json``: BLEU, cost, provenance; empty if the run is not complete."""


def train(
    config: RunConfig,
    *,
    world: Communicator | None = None,
    callbacks: Iterable[Callback] | None = None,
    always_average: bool = False,
    evaluates: bool = True,
) -> RunResult:
    """Train a model from raw text to a directory that can translate; resume from the last checkpoint if there is one.

    Progress is logged with Python's ``logging``; loggers have the names of the modules.  Rank 0 also logs the warnings
    of other ranks.

    Args:
        config: the settings; ``RunConfig()`` is the demonstration, which takes minutes on two CPU cores.
        world: the ranks that train together, from ``parallel.launch.communicator()``; by default this process alone.
        callbacks: objects called during training on this rank; by default a progress bar on stderr, on rank 0.
        always_average: average the last checkpoints into the final model even if the best single model has a lower
            loss.
        evaluates: whether to make the final model and score it.

    Raises: ConfigError if the run's directory holds another run; CorpusError; CheckpointError; OutOfMemoryError;
    DeviceError; TrainingDivergedError; DisagreementError on rank 0 if ranks differ.
    """
    world = world or SerialCommunicator()
    if callbacks is None:
        callbacks = [ProgressBar(Console(file=sys.stderr, highlight=False))] if world.rank == 0 else []
    files = [MetricsFile(config.run), ReportPage(config.run)] if world.rank == 0 else []
    callback = Callbacks([*files, *callbacks])
    with (
        references_only(when=config.kernels == "reference"),
        run_lock(config.run, world),
        collected_warnings(world),
    ):
        run = open_run(config, world)
        if evaluates and is_finished(run):
            is_complete = True
            to_go_on = "training.patience" if run.trainer.has_lost_patience else "training.max_updates"
            _log.info(
                f"{config.run}: finished after {run.trainer.state.step:,} updates; nothing is left to do (to go on,"
                f" raise {to_go_on})"
            )
            if world.rank == 0:
                load_final_model(run)
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


def train_to_end(run: OpenRun, callback: Callback) -> bool:
    """Train to the end; return False if interrupted and saved.  Raises: as ``Trainer.train``; OutOfMemoryError."""
    try:
        with advising(run.trainer):
            return run.trainer.train(callback)
    except LostDirectoryError as error:
        run.data.tokenizer.save(error.kept_in)  # the run cannot go on from there without it
        raise
