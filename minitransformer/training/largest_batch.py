"""A trial of the largest batch: detect a lack of memory before the first update, and advise on a remedy."""

from __future__ import annotations

import dataclasses
import logging
import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from autograd import RandomStream
from autograd.array import IntArray
from minitransformer.config import MAX_MICRO_BATCHES, TrainingConfig
from minitransformer.config.run import RUN_FILE
from minitransformer.data.batching import cut_into_micro_batches, read_batch
from minitransformer.model.batch import Batch
from minitransformer.system.errors import UserError
from minitransformer.system.free_memory import free_memory
from minitransformer.training.footprint import Footprint, format_bytes, predict, runs_of_threads
from minitransformer.training.trainer import Trainer
from parallel.communicator import micro_batches_of_rank

USABLE = 0.75  # share of free memory for a prediction: the C library's heap has gaps, and every thread a stack
NO_WAY = "choose a smaller model (model.n_layers, model.d_model …), or another machine"
_log = logging.getLogger(__name__)
_PARTS_OF_A_BATCH = (3 / 4, 1 / 2, 3 / 8, 1 / 4, 1 / 8, 1 / 16)


class OutOfMemoryError(UserError, MemoryError):
    """An error: a batch needs more memory than is available."""


def try_largest_batch(trainer: Trainer) -> None:
    """Log how much memory will be needed, and compute the gradients of the largest micro-batches of the epoch once.

    Each thread computes the largest of its micro-batches, so that the peak of memory is the same as in an update.
    Parameters, Adam's moments and random numbers do not change: dropout is a function of update and index, and
    gradients are set, not added to.
    Raises: OutOfMemoryError; the message names options that would fit.
    """
    if not trainer.micro_batches:  # an idle rank
        return
    n_processes = trainer.world.local_size
    free = free_memory(n_processes)
    footprint, batch = _predicted(trainer, trainer.config)
    if trainer.model.device == "cpu":
        _log.info(f"memory: {needed_and_free(footprint, free, n_processes)}")
    with advising(trainer, free):
        streams = [RandomStream(trainer.config.seed, 0, micro_batch) for micro_batch in trainer.micro_batches]
        trainer.gradient.compute(_largest_micro_batches(trainer, batch), streams)


@contextmanager
def advising(trainer: Trainer, free: float = math.inf) -> Iterator[None]:
    """Turn a lack of memory into an error whose one-line message names options that fit into ``free`` bytes.

    (CuPy's error is a MemoryError, too.)
    """
    try:
        yield
    except MemoryError as error:
        traceback.clear_frames(error.__traceback__)  # the frames hold the arrays that filled the memory
        raise OutOfMemoryError(_advice(trainer, free)) from error


def needed_and_free(footprint: Footprint, free: float, n_processes: int) -> str:
    """Describe the memory that a process needs, and the free memory for each of ``n_processes`` on its machine."""
    if not math.isfinite(free):
        return f"about {footprint}"
    share = f" for each of {n_processes} processes" if n_processes > 1 else ""
    return f"about {footprint}; {format_bytes(free)} free{share}"


def _predicted(trainer: Trainer, config: TrainingConfig) -> tuple[Footprint, IntArray]:
    return predict(
        trainer.model,
        config,
        trainer.pairs.lengths,
        n_threads=trainer.gradient.n_threads,
        micro_batches=micro_batches_of_rank(trainer.world.rank, trainer.world.size, config.n_micro_batches, config.sum),
        moments=2 * trainer.adam.m.nbytes,
        epoch=trainer.state.epoch,
    )


def _largest_micro_batches(trainer: Trainer, batch: IntArray) -> list[Batch | None]:
    """Return the process's micro-batches of a batch; for each thread, all but the largest are None."""
    lengths, micro_batches = trainer.pairs.lengths, trainer.micro_batches
    cut = cut_into_micro_batches(batch, lengths, trainer.config.n_micro_batches)
    kept = {
        max((micro_batches[i] for i in run), key=lambda micro_batch: int((lengths[cut[micro_batch]] + 1).sum()))
        for run in runs_of_threads(len(micro_batches), trainer.gradient.n_threads)
    }
    return [
        read_batch(trainer.pairs, cut[micro_batch]) if micro_batch in kept and len(cut[micro_batch]) else None
        for micro_batch in micro_batches
    ]


def _advice(trainer: Trainer, free: float) -> str:
    config = trainer.config
    failed, _ = _predicted(trainer, config)
    available = min(free, failed.total)
    ways = ways_into(available, config, lambda changed: _predicted(trainer, changed)[0])
    where = f"update {trainer.state.step:,}" if trainer.state.step else "trying the largest batch"
    lack = (
        f"out of memory ({where}): {config.batch_tokens:,} tokens in {config.n_micro_batches} micro-batches"
        f" need {failed}"
    )
    if not ways:
        return f"{lack}. No batch would fit into {format_bytes(available)}: {NO_WAY}"
    return f"{lack}. What fits into {format_bytes(available)}: {'; or '.join(ways)}{_where_to(trainer.run_directory)}"


def _where_to(run: Path) -> str:
    """Return the advice to choose another directory if ``run`` has a run, because it refuses other batches."""
    return f", with another directory as run: {run} has begun with other batches" if (run / RUN_FILE).exists() else ""


def ways_into(available: float, config: TrainingConfig, predicted: Callable[[TrainingConfig], Footprint]) -> list[str]:
    """Return the options with which training is predicted to fit into ``available`` bytes; none if no batch would."""
    budget = USABLE * available
    ways = [_more_micro_batches(config, predicted, budget), _fewer_tokens(config, predicted, budget)]
    return [way for way in ways if way]


def _more_micro_batches(
    config: TrainingConfig, predicted: Callable[[TrainingConfig], Footprint], budget: float
) -> str | None:
    """Return the option that cuts the batch into enough micro-batches to fit, or None."""
    n_micro_batches = 2 * config.n_micro_batches
    while n_micro_batches <= MAX_MICRO_BATCHES:
        footprint = predicted(dataclasses.replace(config, n_micro_batches=n_micro_batches))
        if footprint.total <= budget:
            return f"training.n_micro_batches = {n_micro_batches} (the same batch, {format_bytes(footprint.total)})"
        n_micro_batches *= 2
    return None


def _fewer_tokens(
    config: TrainingConfig, predicted: Callable[[TrainingConfig], Footprint], budget: float
) -> str | None:
    for part in _PARTS_OF_A_BATCH:
        n_tokens = max(1, round(config.batch_tokens * part))
        footprint = predicted(dataclasses.replace(config, batch_tokens=n_tokens))
        if footprint.total <= budget:
            return f"training.batch_tokens = {n_tokens} (a smaller batch, {format_bytes(footprint.total)})"
    return None
