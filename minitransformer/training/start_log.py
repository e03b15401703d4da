"""The log of a training's start: sizes, placements, and warnings of settings that make updates slow."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from minitransformer.config import TrainingConfig
from minitransformer.training.loop import Trainer
from parallel.communicator import Communicator, working_ranks
from parallel.placement import Placement, describe

_log = logging.getLogger(__name__)


def log_start(trainer: Trainer, placements: list[Placement], n_threads: int, why_no_bfloat16: str | None) -> None:
    """Log the size of model and data, the placements of ranks, and what makes updates slow."""
    world = trainer.world
    _log.info(
        f"{trainer.model.n_parameters:,} parameters, {len(trainer.store):,} training pairs;"
        f" processes {world.size}, threads each {n_threads}"
    )
    if trainer.config.freeze:
        sizes = [(parameter.size, parameter.is_frozen) for _, parameter in trainer.model.named_parameters()]
        n_trained = sum(size for size, is_frozen in sizes if not is_frozen)
        _log.info(f"{n_trained:,} of {trainer.model.n_parameters:,} parameters are trained (training.freeze)")
    if world.size > 1:
        for line in (*describe(placements), trainer.reducer.description):
            _log.info(line)
    for line in (*_idle_warnings(trainer.config, world, n_threads), *_speed_warnings(trainer, why_no_bfloat16)):
        _log.warning(line)


def _idle_warnings(training: TrainingConfig, world: Communicator, n_threads: int) -> Iterator[str]:
    """Yield a line if there are more threads, or more processes, than micro-batches for them."""
    surplus = n_threads - training.n_micro_batches
    if world.size == 1 and surplus > 0:
        yield f"{surplus} of {n_threads} threads are idle: raise training.n_micro_batches to use them"
    idle = world.size - working_ranks(world.size, training.n_micro_batches, training.sum)
    if idle:
        power = "" if training.sum == "fast" else ", and a power of two of processes share them"
        yield (
            f"{idle} of {world.size} processes are idle: a batch has {training.n_micro_batches} micro-batches{power}"
            " (training.n_micro_batches)"
        )


def _speed_warnings(trainer: Trainer, why_no_bfloat16: str | None) -> Iterator[str]:
    """Yield a line for each setting or obstacle that slows updates down."""
    if trainer.model.device == "cpu":
        if trainer.config.precision == "bfloat16" and why_no_bfloat16:
            yield f"training.precision is bfloat16, but {why_no_bfloat16}"
        return
    if trainer.config.precision == "float32" and why_no_bfloat16:
        yield f"slower in float32: {why_no_bfloat16}"
    elif trainer.config.precision == "float32":
        yield "slower in float32 (training.precision): bfloat16 uses the GPU's tensor cores and fewer bytes"
    elif trainer.why_not_captured:
        yield f"slower without a CUDA graph, kernel by kernel: {trainer.why_not_captured}"
    n = len(trainer.micro_batches)
    if n > 1:
        yield (
            f"slower in {n} micro-batches, one after the other (training.n_micro_batches):"
            f" {max(1, trainer.config.n_micro_batches // n)} would be faster in a new run, if its memory suffices"
        )
