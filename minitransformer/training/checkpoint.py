"""Checkpoints: everything that a training run needs to go on, in a directory that is whole or not there.

A checkpoint is itself a model directory (``Transformer.load`` reads it), with Adam's moments and the state of the loop
beside the weights.  Randomness has no state: dropout and the order of sentences are functions of (seed, update, epoch).
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autograd import to_device, to_host
from autograd.array import Array
from autograd.optim import Adam
from minitransformer.files import CheckpointError, read_arrays, read_json, sync, write_arrays, write_text
from minitransformer.model.files import load_model_files
from minitransformer.model.transformer import Transformer, WeightsError

OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "state.json"
_PREFIX = "step-"


@dataclass(frozen=True)
class TrainingState:
    """Where a run stands: updates done, and the place in the data of the next one."""

    step: int = 0
    epoch: int = 0
    next_batch: int = 0
    best_loss: float | None = None
    seconds: float = 0.0


def checkpoint_path(run: Path, step: int) -> Path:
    """Where the checkpoint after update ``step`` lies."""
    return run / "checkpoints" / f"{_PREFIX}{step:08d}"


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((run / "checkpoints").glob(f"{_PREFIX}*"))


def save_checkpoint(run: Path, model: Transformer, adam: Adam, state: TrainingState, *, keep: int, every: int) -> Path:
    """Write a checkpoint; then remove all but the last ``keep``, and earlier ones at no multiple of ``every`` updates.

    (Those were written at interruptions.  Without them the last checkpoints are those of an undisturbed run.)
    It is written under another name and renamed when it is whole.  Raises: CheckpointError; older checkpoints stay.
    """
    path = checkpoint_path(run, state.step)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        model.save(unfinished)
        write_arrays(unfinished / OPTIMIZER_FILE, _moments(model, adam))
        write_text(unfinished / STATE_FILE, json.dumps(dataclasses.asdict(state), indent=2) + "\n")
        _replace(path, unfinished)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error}); free some space. Earlier checkpoints are unharmed"
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    earlier = [old for old in checkpoints(run) if old < path]
    regular = [old for old in earlier if int(old.name.removeprefix(_PREFIX)) % every == 0]
    for old in set(earlier) - set(regular[max(0, len(regular) + 1 - keep) :]):
        _remove(old)
    _remove_remains(run)
    return path


def load_checkpoint(path: Path, model: Transformer, adam: Adam) -> TrainingState:
    """Set the model and the optimizer to a checkpoint.

    Raises: CheckpointError if it is missing, damaged, or of a model of another shape; nothing is changed then.
    """
    config, weights = load_model_files(path)
    if config != model.config:
        changed = [
            f"{field.name} {getattr(config, field.name)!r} there, {getattr(model.config, field.name)!r} here"
            for field in dataclasses.fields(config)
            if getattr(config, field.name) != getattr(model.config, field.name)
        ]
        raise CheckpointError(f"{path}: is of another model: {'; '.join(changed)}. Choose another --run")
    moments = read_arrays(path / OPTIMIZER_FILE)
    _require_same_shapes(path / OPTIMIZER_FILE, moments, _moments(model, adam))
    state = _read_state(path / STATE_FILE)
    try:
        model.set_weights(weights)
    except WeightsError as error:
        raise CheckpointError(f"{path}: {error}") from error
    for name, parameter in model.named_parameters():
        parameter.view_of(adam.m)[...] = to_device(moments[f"m.{name}"], model.device)
        parameter.view_of(adam.v)[...] = to_device(moments[f"v.{name}"], model.device)
    return state


def _read_state(path: Path) -> TrainingState:
    fields = read_json(path)
    known = {field.name for field in dataclasses.fields(TrainingState)}
    numbers = isinstance(fields, dict) and all(isinstance(value, int | float | None) for value in fields.values())
    if not numbers or set(fields) != known:
        raise CheckpointError(
            f"{path}: expected an object with the numbers {', '.join(sorted(known))}; the checkpoint is damaged or of"
            " another version: use another one"
        )
    return TrainingState(**fields)


def _require_same_shapes(path: Path, got: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    for name in sorted(got.keys() | expected.keys()):
        shapes = [tuple(arrays[name].shape) if name in arrays else "nothing" for arrays in (expected, got)]
        if shapes[0] != shapes[1]:
            raise CheckpointError(f"{path}: is of another model: {name}: expected {shapes[0]}, found {shapes[1]}")


def average_weights(paths: Sequence[Path]) -> dict[str, Array]:
    """The mean of the weights of several checkpoints, added in float64.

    Source: Vaswani et al. 2017, section 6.1 (the last 5 of base models, 20 of big ones).
    Raises: CheckpointError if one cannot be read or is of another shape than the first.
    """
    if not paths:
        raise CheckpointError("average: there are no checkpoints to average")
    sums: dict[str, np.ndarray] = {}
    dtypes: dict[str, np.dtype] = {}
    for path in paths:
        _, weights = load_model_files(path)
        if sums and {n: w.shape for n, w in weights.items()} != {n: s.shape for n, s in sums.items()}:
            raise CheckpointError(f"{path}: is of a model of another shape than {paths[0]}; they cannot be averaged")
        for name, value in weights.items():
            dtypes[name] = value.dtype
            sums[name] = sums.get(name, 0) + value.astype(np.float64)
    return {name: (total / len(paths)).astype(dtypes[name]) for name, total in sums.items()}


def _moments(model: Transformer, adam: Adam) -> dict[str, Array]:
    named = model.parameters.named.items()
    return {
        f"{moment}.{name}": to_host(parameter.view_of(flat))
        for moment, flat in (("m", adam.m), ("v", adam.v))
        for name, parameter in named
    }


def _replace(path: Path, unfinished: Path) -> None:
    """Give a finished checkpoint its name; one that bore it goes only when the new one is in place."""
    before = path.with_name(f".{path.name}.{os.getpid()}.removed")
    if path.exists():
        path.rename(before)
    try:
        unfinished.rename(path)
    except OSError:
        if before.exists():
            before.rename(path)
        raise
    sync(path.parent)
    shutil.rmtree(before, ignore_errors=True)


def _remove(path: Path) -> None:
    """Remove a checkpoint so that no half of it ever bears its name."""
    doomed = path.with_name(f".{path.name}.{os.getpid()}.removed")
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _remove_remains(run: Path) -> None:
    """Remove what killed processes left of checkpoints that they were writing or removing."""
    for remains in (run / "checkpoints").glob(f".{_PREFIX}*"):
        shutil.rmtree(remains, ignore_errors=True)
