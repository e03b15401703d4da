"""Checks of a training: the same bits after an interruption, and the cause of numbers that are not finite."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from autograd import RandomStream, backward
from autograd.array import IntArray
from autograd.inspection import NotFinite, first_not_finite
from autograd.optim import gradient_norm
from minitransformer.config import ConfigError, RunConfig
from minitransformer.config.run import METRICS_FILE
from minitransformer.data.batching import cut_into_micro_batches
from minitransformer.data.prepare import PreparedData
from minitransformer.data.store import SIDES
from minitransformer.model.batch import Batch
from minitransformer.model.files import WEIGHTS_FILE
from minitransformer.model.symbols import START
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError
from minitransformer.system.files import CheckpointError, make_directory, read_arrays, read_json
from minitransformer.system.records import read_record
from minitransformer.training.callbacks import Callback
from minitransformer.training.checkpoint import OPTIMIZER_FILE, checkpoint_path
from minitransformer.training.divergence import BATCH_FILE, UPDATE_FILE, UpdateFacts
from minitransformer.training.run import train
from minitransformer.training.state import STATE_FILE, TrainingState
from minitransformer.training.update import StepResult
from parallel.communicator import Communicator

IdPairs: TypeAlias = Sequence[tuple[IntArray, IntArray]]  # without start and end symbols
_log = logging.getLogger(__name__)

_KEYS_OF_PROCESS = (
    "time", "peak_memory", "seconds", "unlogged_seconds", "device_seconds", "target_tokens_per_second",
)  # fmt: skip


class ResumeCheckError(UserError, RuntimeError):
    """An error: a resumed run differs from an uninterrupted one."""


class _DeathError(BaseException):
    """An error that simulates a kill of the run: as after a kill, nothing more is saved."""


def verify_resume(config: RunConfig, world: Communicator, n_updates: int) -> None:
    """Check that a run that is killed and resumed ends with the same bits as an uninterrupted one.

    Train ``n_updates`` without an interruption.  Then train half of the updates, end in the middle of the next update,
    and resume.  Both runs are in a temporary directory beside ``config.run``, on the same file system.  They have the
    model, data, device and processes of the configuration.  The run's own directory does not change.
    Raises: ResumeCheckError that names the differences; ConfigError if ``n_updates`` is less than 2.
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
    """Return a configuration with ``n_updates`` updates and a checkpoint after ``half`` of them.

    One interval of the log contains updates before and after the checkpoint.
    """
    prepared = PreparedData.is_in(config.data_directory)
    directory = config.data_directory if prepared else run.parent / "data"
    training = dataclasses.replace(
        config.training,
        max_updates=n_updates,
        log_every=half + 1,
        validate_every=half,
        checkpoint_every=half,
        average_checkpoints=1,
        best_by="loss",  # other figures need callbacks, and the bits do not depend on them
        patience=None,
        patience_for="loss",
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
    """A callback that simulates a kill of the run in update ``dies_in``; None for no kill."""

    def __init__(self, dies_in: int | None) -> None:
        self._dies_in = dies_in

    def after_step(self, result: StepResult, state: TrainingState, model: Transformer) -> None:
        if state.step == self._dies_in:
            raise _DeathError


def _compare(one: Path, other: Path, step: int) -> str:
    """Describe the data that is equal in both runs.  Raises: ResumeCheckError if something differs."""
    counts = []
    for name in (WEIGHTS_FILE, OPTIMIZER_FILE):
        arrays, others = (read_arrays(checkpoint_path(run, step) / name) for run in (one, other))
        differing = [
            key
            for key, array in arrays.items()
            if (array.dtype, array.tobytes()) != (others[key].dtype, others[key].tobytes())
        ]
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


def _metrics(run: Path) -> list[dict[str, Any]]:
    lines = (run / METRICS_FILE).read_text(encoding="utf-8").splitlines()
    return [_comparable(json.loads(line)) for line in lines]


def _comparable(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in _KEYS_OF_PROCESS}


@dataclass(frozen=True)
class Replay:
    """An update computed again in one precision: the mean loss, and the first number that was not finite, if any."""

    dtype: str
    mean_loss: float
    gradient_norm: float
    found: NotFinite | None
    parameter: str | None
    """Names of the parameters among the arguments of the operation in ``found``; None if there are none."""

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.dtype}: all numbers are finite; loss {self.mean_loss:.6g}, norm {self.gradient_norm:.6g}"
        of = f" ({self.parameter})" if self.parameter else ""
        return f"{self.dtype}: first not finite: {self.found}{of}"


def replay_repro_bundle(directory: Path, dtype: str = "float64") -> Replay:
    """Compute a repro bundle's update again on the CPU, and check every number on the way.

    Raises: CheckpointError if the directory is not a repro bundle, or is corrupt.
    """
    facts = read_record(
        directory / UPDATE_FILE,
        UpdateFacts,
        bounds={"step": (1, 2**63), "seed": (0, 2**64), "n_micro_batches": (1, 2**16 + 1)},
        ignore_unknown=True,
        remedy="the repro bundle is corrupt",
    )
    model = Transformer.load(directory, dtype=dtype)
    pairs = _read_pairs(directory / BATCH_FILE, model)
    total, losses = np.zeros_like(model.parameters.values), []
    n_tokens = sum(len(target) + 1 for _, target in pairs)

    def compute() -> None:
        for batch, stream in _micro_batches_of(pairs, facts):
            loss = model.loss(batch, stream)
            losses.append(float(loss))
            backward(loss)
            np.add(total, model.parameters.gradients, out=total)

    found = first_not_finite(compute)
    norm = gradient_norm(total) / n_tokens
    return Replay(dtype, sum(losses) / n_tokens, norm, found, _parameter_in(found, model) if found else None)


def _micro_batches_of(pairs: IdPairs, facts: UpdateFacts) -> Iterator[tuple[Batch, RandomStream]]:
    lengths = np.array([[len(ids) for ids in pair] for pair in pairs], np.int64).reshape(-1, 2)
    for number, indices in enumerate(cut_into_micro_batches(np.arange(len(pairs)), lengths, facts.n_micro_batches)):
        if len(indices):
            sources, targets = zip(*(pairs[i] for i in indices), strict=True)
            yield Batch.from_token_ids(sources, targets), RandomStream(facts.seed, facts.step, number)


def _parameter_in(found: NotFinite, model: Transformer) -> str | None:
    """Return the names of the parameters among the operation's arguments; None if there are none."""
    names = [
        name
        for name, parameter in model.named_parameters()
        if any(isinstance(x, np.ndarray) and np.shares_memory(x, parameter.value) for x in found.arguments)
    ]
    return ", ".join(names) or None


def _read_pairs(path: Path, model: Transformer) -> IdPairs:
    """Return the pairs in the batch of a repro bundle.

    Raises: CheckpointError if the lengths do not fit the tokens, or the tokens the model.
    """
    arrays = read_arrays(path)
    sizes = dict(zip(SIDES, (model.config.n_source_words, model.config.vocabulary_size), strict=True))
    lengths = arrays.get("lengths", np.empty(0, np.int64))
    if (
        set(arrays) != {"lengths", *SIDES}
        or any(array.dtype != np.int64 or (array < 0).any() for array in arrays.values())
        or lengths.ndim != 2
        or not len(lengths)
        or [arrays[side].shape for side in SIDES] != [(n,) for n in lengths.sum(0)]
        or any((arrays[side] >= size).any() for side, size in sizes.items())
        or START in arrays["target"]
    ):
        raise CheckpointError(
            f"{path}: expected two lengths for each pair, and as many ids of words of the model; the repro bundle is"
            " corrupt"
        )
    sides = (np.split(arrays[side], np.cumsum(lengths[:, i])[:-1]) for i, side in enumerate(SIDES))
    return list(zip(*sides, strict=True))


def diagnosis(directory: Path) -> Iterator[str]:
    """Yield a line for each precision, and the conclusion.  Raises: CheckpointError, see ``replay_repro_bundle``."""
    single = replay_repro_bundle(directory, "float32")
    yield str(single)
    double = replay_repro_bundle(directory, "float64")
    yield str(double)
    yield f"conclusion: {conclusion(single, double)}"


def conclusion(single: Replay, double: Replay) -> str:
    """Return the likely cause, given the replays of an update in float32 and in float64."""
    if not _is_finite(double):
        return "float64 does not help: look at the operation that is named first, and at its inputs"
    if not _is_finite(single):
        return "float32 overflows where float64 does not: lower the learning rate, or clip (training.clip_norm)"
    return (
        "all is finite here, so it is not the update: check the machine that trained (memory, processor, library), or"
        " train in float32 (training.precision)"
    )


def _is_finite(replay: Replay) -> bool:
    return replay.found is None and math.isfinite(replay.mean_loss) and math.isfinite(replay.gradient_norm)
