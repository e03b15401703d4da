"""The resume check: a run that is killed and resumed must end like an uninterrupted run."""

from __future__ import annotations

import dataclasses
import json
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.config import ConfigError, RunConfig
from minitransformer.config.run import METRICS_FILE
from minitransformer.data.prepare import PreparedData
from minitransformer.model.files import WEIGHTS_FILE
from minitransformer.system.errors import UserError
from minitransformer.system.files import make_directory, read_arrays, read_json
from minitransformer.training.callbacks import Callback
from minitransformer.training.checkpoint import OPTIMIZER_FILE, checkpoint_path
from minitransformer.training.state import STATE_FILE, TrainingState
from minitransformer.training.step import StepResult
from minitransformer.training.train import train
from parallel.communicator import Communicator

_log = logging.getLogger(__name__)
_OF_THE_PROCESS = (
    "time", "peak_memory", "seconds", "unlogged_seconds", "device_seconds", "target_tokens_per_second",
)  # fmt: skip


class ResumeCheckError(UserError, RuntimeError):
    """An error: a resumed run differs from an uninterrupted one."""


class _DeathError(Exception):
    """An error that simulates a kill of the run."""


def verify_resume(config: RunConfig, world: Communicator, n_updates: int) -> None:
    """Check that a run that is killed and resumed ends with the same bits as an uninterrupted one.

    Train ``n_updates`` without an interruption.  Then train half of them, end in the middle of the next update, and
    resume.  Both runs are in a temporary directory beside ``config.run``, on its file system.  They have the model,
    data, device and processes of the configuration.  The run's own directory does not change.
    Raises: ResumeCheckError that names the differences.
    """
    if n_updates < 2:
        raise ConfigError(f"a resume check needs at least 2 updates; got {n_updates}")
    half = n_updates // 2
    with _shared_folder(config.run, world) as folder:
        straight, parts = (_short_run(config, folder / name, n_updates, half) for name in ("straight", "parts"))
        _log.info(f"{n_updates} updates in one go")
        _train(straight, world)
        _log.info(f"{half} updates, and an end in the middle of the next one")
        with _only_warnings():
            _train(parts, world, dies_in=half + 1)
        _log.info(f"the same command again: {n_updates - half} updates from the checkpoint after update {half}")
        with _only_warnings():
            _train(parts, world)
        if world.rank == 0:
            _log.info(f"the same, bit for bit: {_compare(straight.run, parts.run, n_updates)}")
        world.barrier()


@contextmanager
def _only_warnings() -> Iterator[None]:
    """Log no progress within this context: the uninterrupted run has logged it."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _shared_folder(run: Path, world: Communicator) -> Iterator[Path]:
    """Yield a temporary folder that all ranks see; rank 0 creates and removes it."""
    if world.rank:
        yield Path(world.bcast(""))
        return
    make_directory(run.parent)
    with tempfile.TemporaryDirectory(prefix=f".{run.name}.verify-resume-", dir=run.parent) as name:
        yield Path(world.bcast(name))


def _short_run(config: RunConfig, run: Path, n_updates: int, half: int) -> RunConfig:
    """Return the run with few updates.  One interval of the log contains updates before and after the checkpoint."""
    prepared = PreparedData.is_in(config.data_directory)
    directory = config.data_directory if prepared else run.parent / "data"
    training = dataclasses.replace(
        config.training,
        max_updates=n_updates,
        log_every=half + 1,
        validate_every=half,
        checkpoint_every=half,
        average_checkpoints=1,
    )
    return dataclasses.replace(
        config, run=run, training=training, data=dataclasses.replace(config.data, directory=directory)
    )


def _train(config: RunConfig, world: Communicator, dies_in: int | None = None) -> None:
    try:
        done = train(config, world=world, callbacks=[_Death(dies_in)], evaluates=False)
    except _DeathError:
        world.barrier()
        return
    if not done.is_complete:
        raise KeyboardInterrupt


class _Death(Callback):
    """A callback that ends the training in an update."""

    def __init__(self, dies_in: int | None) -> None:
        self._dies_in = dies_in

    def after_step(self, result: StepResult, state: TrainingState) -> None:
        if state.step == self._dies_in:
            raise _DeathError


def _compare(one: Path, other: Path, step: int) -> str:
    """Describe the data that is equal in both runs.  Raises: ResumeCheckError if something differs."""
    counts = []
    for name in (WEIGHTS_FILE, OPTIMIZER_FILE):
        arrays, others = (read_arrays(checkpoint_path(run, step) / name) for run in (one, other))
        differing = [key for key, array in arrays.items() if not _same_bits(array, others[key])]
        if differing:
            gap = np.abs(arrays[differing[0]] - others[differing[0]]).max()
            _fail(f"{len(differing)} of {len(arrays)} arrays of {name}, such as {differing[0]} (by up to {gap:.3g})")
        counts.append(sum(array.size for array in arrays.values()))
    states = [_comparable(read_json(checkpoint_path(run, step) / STATE_FILE)) for run in (one, other)]
    if states[0] != states[1]:
        _fail(f"the state: {states[0]} and {states[1]}")
    lines, others_lines = (_metrics(run) for run in (one, other))
    if lines != others_lines:
        different = next((a, b) for a, b in zip([*lines, None], [*others_lines, None], strict=False) if a != b)
        _fail(f"{METRICS_FILE}: {different[0]} and {different[1]}")
    losses = [f"{line['loss']:.6f} ({line['kind']}, update {line['step']})" for line in lines]
    return (
        f"{counts[0]:,} parameters, {counts[1]:,} moments of Adam, the position in the data, and {len(lines)} logged"
        f" losses: {', '.join(losses)}"
    )


def _fail(what: str) -> None:
    raise ResumeCheckError(
        f"the resumed run differs from the one in one go in {what}. On this machine a run that is"
        " interrupted ends otherwise than one that is not: please report it, with the settings"
    )


def _same_bits(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def _metrics(run: Path) -> list[dict[str, Any]]:
    lines = (run / METRICS_FILE).read_text(encoding="utf-8").splitlines()
    return [_comparable(json.loads(line)) for line in lines]


def _comparable(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in _OF_THE_PROCESS}
