"""Checkpoints: everything that a training run needs to resume, in a directory that is complete or absent.

A checkpoint is itself a model directory, which ``Transformer.load`` can read.  It also has the optimizer's moments, the
state of the loop, and checksums of all files.  Randomness has no state: dropout and the order of sentences are
functions of (seed, update, epoch).
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import numpy as np

from autograd import namespace, to_device, to_host
from autograd.array import Array
from autograd.optim import AVERAGE, Optimizer
from minitransformer.config import ModelConfig, TrainingConfig
from minitransformer.config.run import METRICS_FILE, RUN_FILE
from minitransformer.model.files import CHECKPOINTS, MODEL_FILES, load_model_files, write_model_files
from minitransformer.model.transformer import Transformer, WeightsError
from minitransformer.system.checksums import check_files, write_checksums
from minitransformer.system.files import (
    CheckpointError,
    CorruptFileError,
    UnfitError,
    make_directory,
    read_arrays,
    sync,
    temporary_path,
    write_arrays,
    write_text,
)
from minitransformer.training.divergence import TrainingDivergedError
from minitransformer.training.state import STATE_FILE, TrainingState, read_state
from parallel.agreement import check_agreement, checksum
from parallel.communicator import Communicator
from parallel.reducer import GradientReducer

_log = logging.getLogger(__name__)

OPTIMIZER_FILE = "optimizer.safetensors"

CHECKPOINT_FILES = (*MODEL_FILES, OPTIMIZER_FILE, STATE_FILE)

_NAME = re.compile(r"step-(\d{8,})(\.replaced)?")


@dataclass(frozen=True)
class Snapshot:
    """The content of a checkpoint: views of a model and its optimizer, or copies of them.

    ``weights`` are arrays by name.  ``moments`` are the optimizer's arrays of state, cut into parameters.  Each has the
    array's name before the parameter's, such as "m.decoder.norm.gain"; "ema." stands before a moving average.
    """

    config: ModelConfig
    weights: Mapping[str, Array]
    moments: Mapping[str, Array]
    state: TrainingState

    @classmethod
    def of(cls, model: Transformer, optimizer: Optimizer, state: TrainingState) -> Snapshot:
        """Return a snapshot of the present state; on a CPU its arrays change with the model."""
        return cls(model.config, model.weights(), _moments(model, optimizer), state)


def checkpoint_path(run: Path, step: int) -> Path:
    """Return the path of the checkpoint after update ``step``."""
    return run / CHECKPOINTS / f"step-{step:08d}"


def checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return [path for _, _, path in _numbered_checkpoints(run)]


def checkpoints_of_updates(run: Path) -> list[Path]:
    """Return one checkpoint for each update, oldest first.

    A killed process may leave two checkpoints of one update.  Then return the newer one if its model is complete, else
    the older one.
    """
    found: dict[int, Path] = {}
    for step, _, path in _numbered_checkpoints(run):
        if step not in found or has_complete_model(path):
            found[step] = path
    return list(found.values())


def has_complete_model(directory: Path) -> bool:
    """Return whether the model in a directory is complete and not corrupt; if not, warn that it is left out."""
    try:
        load_model_files(directory)
    except CorruptFileError as error:
        _log.warning(f"{error}; the final model is made without {directory.name}")
        return False
    return True


def _numbered_checkpoints(run: Path) -> list[tuple[int, bool, Path]]:
    names = ((path, _NAME.fullmatch(path.name)) for path in (run / CHECKPOINTS).glob("step-*"))
    return sorted((int(name[1]), name[2] is None, path) for path, name in names if name)


def save_checkpoint(run: Path, snapshot: Snapshot, *, keep: int) -> Path:
    """Write a checkpoint; then remove older ones, except the last ``keep`` − 1 that were due at an interval.

    Checkpoints written between intervals, at an interruption, are removed.  So the remaining checkpoints are the same
    as in a run without interruptions.
    A checkpoint is written under a temporary name.  It is renamed when the checkpoint and the metrics of its updates
    are on the disk.
    Raises: CheckpointError; older checkpoints stay.
    """
    path = checkpoint_path(run, snapshot.state.step)
    unfinished = temporary_path(path)
    try:
        make_directory(unfinished)
        write_model_files(unfinished, snapshot.config, snapshot.weights)
        write_arrays(unfinished / OPTIMIZER_FILE, snapshot.moments)
        write_text(unfinished / STATE_FILE, json.dumps(dataclasses.asdict(snapshot.state), indent=2) + "\n")
        write_checksums(unfinished, CHECKPOINT_FILES)
        if (run / METRICS_FILE).exists():
            sync(run / METRICS_FILE)
            sync(run)
        _replace(path, unfinished)
        _remove_superseded(run, path, keep)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error}); free some space. Earlier checkpoints are unharmed"
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return path


def load_newest_checkpoint(run: Path, model: Transformer, optimizer: Optimizer, *, keep: int) -> TrainingState | None:
    """Set model and optimizer to the newest complete checkpoint; warn of newer ones that are corrupt or do not fit.

    Remove what killed processes left: incomplete or partly removed checkpoints, and checkpoints that
    ``save_checkpoint`` would have removed with this ``keep``.  Several processes may call this at once.
    Returns: None if there are no checkpoints.
    Raises: CheckpointError if no checkpoint is complete and fits, or one is of a newer format.
    """
    _remove_remains(run)
    newest: CheckpointError | None = None
    for path in reversed(checkpoints(run)):
        try:
            state = load_checkpoint(path, model, optimizer)
        except (CorruptFileError, UnfitError) as error:
            problem = "is corrupt" if isinstance(error, CorruptFileError) else "does not fit"
            _log.warning(f"checkpoint {path.name} {problem}: {error}")
            newest = newest or error
        else:
            if newest:
                _log.info(f"using the newest complete checkpoint, {path.name}; the updates after it are done again")
            _remove_superseded(run, path, keep)
            return state
    if newest:
        raise CheckpointError(
            f"{run}: none of its checkpoints is complete and fits (the newest: {newest});"
            " restore one from a backup, or set run to another directory"
        ) from newest
    return None


def load_checkpoint(path: Path, model: Transformer, optimizer: Optimizer) -> TrainingState:
    """Set the model and the optimizer to a checkpoint; verify every byte of the checkpoint.

    Raises: CorruptFileError, or UnfitError for a checkpoint of another model or optimizer; then nothing has changed.
    """
    found = read_checkpoint(path)
    if found.config != model.config:
        here, there = dataclasses.asdict(model.config), dataclasses.asdict(found.config)
        changed = [f"{name} {there[name]!r} there, {here[name]!r} here" for name in here if there[name] != here[name]]
        raise UnfitError(f"{path}: is of another model: {'; '.join(changed)}")
    require_moments_of(optimizer, path / OPTIMIZER_FILE, found.moments)
    _require_same_shapes(path / OPTIMIZER_FILE, found.moments, _moments(model, optimizer))
    try:
        model.set_weights(found.weights)
    except WeightsError as error:
        raise UnfitError(f"{path}: {error}") from error
    set_moments(model, optimizer, found.moments)
    return found.state


def read_checkpoint(path: Path) -> Snapshot:
    """Return the content of a checkpoint after a check of every byte.  Raises: CorruptFileError."""
    check_files(path, (OPTIMIZER_FILE, STATE_FILE))  # load_model_files checks the files of the model
    config, weights = load_model_files(path)
    return Snapshot(config, weights, read_arrays(path / OPTIMIZER_FILE), read_state(path / STATE_FILE))


def set_moments(model: Transformer, optimizer: Optimizer, moments: Mapping[str, Array]) -> None:
    """Set the optimizer's ``moments`` of parameters, which are named as in ``Snapshot``."""
    for name, moment in moments.items():
        array, _, parameter = name.partition(".")
        model.parameters.named[parameter].view_of(optimizer.state[array])[...] = to_device(moment, model.device)


def require_moments_of(optimizer: Optimizer, path: Path, moments: Iterable[str]) -> None:
    """Raise UnfitError unless ``moments``, names as in ``Snapshot``, are of the arrays of state of the optimizer.

    The moving average does not count: it is an array of any optimizer.
    """
    got, expected = sorted({name.partition(".")[0] for name in moments} - {AVERAGE}), sorted(optimizer.arrays)
    if got != expected:
        raise UnfitError(
            f"{path}: is of another optimizer: expected the arrays {', '.join(expected) or 'none'}, as of"
            f" {type(optimizer).__qualname__}, found {', '.join(got) or 'none'}; set training.optimizer as it was there"
        )


def _require_same_shapes(path: Path, got: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    for name in sorted(got.keys() | expected.keys()):
        shapes = [tuple(arrays[name].shape) if name in arrays else "nothing" for arrays in (expected, got)]
        if shapes[0] != shapes[1]:
            raise UnfitError(f"{path}: is of another model: {name}: expected {shapes[0]}, found {shapes[1]}")


def average_weights(paths: Sequence[Path]) -> dict[str, Array]:
    """Return the mean of the weights of several checkpoints, summed in float64.

    Source: Vaswani et al. 2017, section 6.1 (the last 5 of base models, 20 of big ones).
    Raises: CheckpointError if ``paths`` is empty, or a checkpoint cannot be read, is not finite, or has other shapes.
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
            if not np.isfinite(value).all():
                raise CheckpointError(f"{path}: {name} has numbers that are not finite; leave this checkpoint out")
            dtypes[name] = value.dtype
            sums[name] = sums.get(name, 0) + value.astype(np.float64)
    return {name: (total / len(paths)).astype(dtypes[name]) for name, total in sums.items()}


def stale_checkpoints(averaged: Sequence[Path], last_step: int, config: TrainingConfig) -> str | None:
    """Return a warning if older checkpoints are averaged because later ones are missing; otherwise None."""
    n_intervals = (last_step - 1) // config.checkpoint_every
    intervals = range(max(1, n_intervals + 2 - config.average_checkpoints), n_intervals + 1)
    wanted = [*(config.checkpoint_every * i for i in intervals), last_step]
    there = {int(name[1]): path for path in averaged if (name := _NAME.fullmatch(path.name))}
    missing = [f"update {step:,}" for step in wanted if step not in there]
    older = [path.name for step, path in there.items() if step < wanted[0]]
    if not missing or not older:
        return None
    return (
        f"the average takes in {', '.join(older)}, older than the last {len(wanted)} intervals: there is no complete"
        f" checkpoint after {', '.join(missing)}"
    )


def _moments(model: Transformer, optimizer: Optimizer) -> dict[str, Array]:
    named = model.parameters.named.items()
    return {
        f"{array}.{name}": to_host(parameter.view_of(flat))
        for array, flat in optimizer.state.items()
        for name, parameter in named
    }


def _replace(path: Path, unfinished: Path) -> None:
    """Rename a finished checkpoint to ``path``; first append ".replaced" to the name of an old checkpoint at ``path``.

    (A directory that is not empty cannot be replaced in one step.)  ``checkpoints`` finds both names, so a complete
    checkpoint exists at every moment.
    """
    before = path.with_name(f"{path.name}.replaced")
    if path.exists():
        if before.exists():
            _remove([before], path.parent)
        path.rename(before)
    unfinished.rename(path)
    sync(path.parent)


def _remove_superseded(run: Path, path: Path, keep: int) -> None:
    """Remove checkpoints before ``path``, except the last ``keep`` − 1 regular ones, and what killed processes left."""
    earlier = checkpoints(run)
    earlier = earlier[: earlier.index(path)]
    regular = [old for old in earlier if old.suffix != ".replaced" and _is_regular(old)]
    _remove(set(earlier) - set(regular[max(0, len(regular) + 1 - keep) :]), path.parent)
    _remove_remains(run)


def _remove_remains(run: Path) -> None:
    for remains in (run / CHECKPOINTS).glob(".step-*"):
        shutil.rmtree(remains, ignore_errors=True)


def _is_regular(path: Path) -> bool:
    """Return whether a checkpoint was due at an interval; False if another process has removed it.

    A checkpoint whose state cannot be read counts as regular.
    """
    try:
        return not read_state(path / STATE_FILE).between_intervals
    except CorruptFileError:  # the state cannot be read: keep the checkpoint if it exists
        return path.exists()


def _remove(doomed: Iterable[Path], directory: Path) -> None:
    """Rename checkpoints before deleting, so that a partial directory never looks like a checkpoint.

    ``_remove_remains`` deletes the renamed directories.
    """
    for path in doomed:
        with suppress(FileNotFoundError):  # another process has renamed it already
            path.rename(temporary_path(path, "removed"))
    sync(directory)


class LostDirectoryError(CheckpointError):
    """An error: the run's directory was moved or removed during training; ``kept_in`` holds the last state."""

    def __init__(self, run: Path, kept_in: Path, step: int) -> None:
        super().__init__(
            f"{run}: was moved or removed while it trained ({RUN_FILE} is no longer there). The state after update"
            f" {step:,} is in {kept_in}: give the same command with that as the run's directory, which goes on from"
            " there; or, if you have moved the run, move that checkpoint to its others and go on where they are now"
        )
        self.kept_in = kept_in


class CheckpointWriter:
    """A writer of checkpoints on a thread of its own.

    Training waits only for the copy, and for an earlier write that has not ended.  The memory of the copy is used again
    for the next checkpoint: on the host, 12 bytes a parameter, or 16 with a moving average.

    The thread is a daemon, so a process can end at once.  Then an unfinished directory remains, which does not count
    as a checkpoint.
    """

    def __init__(self, run: Path, *, keep: int) -> None:
        self.run, self._keep = run, keep
        self._weights: dict[str, np.ndarray] = {}
        self._moments: dict[str, np.ndarray] = {}
        self._thread: Thread | None = None
        self._failure: Exception | None = None
        self._is_watched = False

    def watch(self) -> None:
        """Expect ``run.json`` to stay in the run's directory, if it is there now."""
        self._is_watched = (self.run / RUN_FILE).exists()

    def is_lost(self) -> bool:
        """Return whether the directory has been moved or removed since ``watch``.

        Nothing may be written to a lost directory.
        """
        try:
            (self.run / RUN_FILE).stat()
        except (FileNotFoundError, NotADirectoryError):
            return self._is_watched
        except OSError:  # such as a network that is down for a moment
            return False
        return False

    def save(self, snapshot: Snapshot) -> None:
        """Copy the snapshot and begin to write it; return as soon as its arrays may change again."""
        self.wait()
        self._failure = None
        copied = dataclasses.replace(
            snapshot,
            weights=_copy_arrays(snapshot.weights, self._weights),
            moments=_copy_arrays(snapshot.moments, self._moments),
        )
        self._thread = Thread(target=self._write, args=(copied,), name="checkpoint", daemon=True)
        self._thread.start()

    def failure(self) -> CheckpointError | None:
        """Return the error of the last write and forget it; return None if there was none.

        Raises: the error itself if it is not a CheckpointError.
        """
        error = self._failure
        if error is None:  # do not assign here: the thread may set it right now
            return None
        self._failure = None
        if isinstance(error, CheckpointError):
            return error
        raise error

    def warn_of_failure(self) -> None:
        """Log one warning if the last checkpoint could not be written; the next one may succeed.

        Raises: LostDirectoryError if the directory is lost, because no later checkpoint can be written.
        """
        error = self.failure()
        if isinstance(error, LostDirectoryError):
            raise error
        if error:
            _log.warning(f"{error}; training goes on, and saves again at the next interval")

    def finish(self) -> None:
        """Wait until the last checkpoint is on the disk.  Raises: CheckpointError if it cannot be written."""
        self.wait()
        error = self.failure()
        if error:
            raise error

    def wait(self) -> None:
        """Wait until no checkpoint is being written."""
        if self._thread:
            self._thread.join()
            self._thread = None

    def _write(self, snapshot: Snapshot) -> None:
        failure: Exception | None = None
        try:
            if not self.is_lost():
                save_checkpoint(self.run, snapshot, keep=self._keep)
        except Exception as error:  # ``failure`` raises it on the main thread
            failure = error
        self._failure = self._write_beside(snapshot) if self.is_lost() else failure

    def _write_beside(self, snapshot: Snapshot) -> Exception:
        """Write a checkpoint of a run whose directory is lost to a new directory beside it.

        Return a LostDirectoryError that names the new directory, or the error that prevented the write.
        """
        step = snapshot.state.step
        try:
            kept_in = self.run.absolute().with_name(f"{self.run.absolute().name}.kept-{step}")
            save_checkpoint(kept_in, snapshot, keep=self._keep)
        except Exception as error:
            return error
        return LostDirectoryError(self.run, kept_in, step)


def _copy_arrays(arrays: Mapping[str, Array], buffers: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Copy arrays to ``buffers``, which the first call allocates.

    Allocating new memory for each copy would take more than twice the time.
    """
    for name, array in arrays.items():
        if name in buffers:
            np.copyto(buffers[name], array)
        else:
            buffers[name] = np.array(array)
    return buffers


class RunCheckpoints:
    """The checkpoints of a run, on all ranks: rank 0 writes them, and every rank loads its shard of the moments."""

    def __init__(
        self,
        run: Path,
        model: Transformer,
        optimizer: Optimizer,
        reducer: GradientReducer,
        world: Communicator,
        *,
        keep: int,
    ) -> None:
        self.run, self._model, self._optimizer = run, model, optimizer
        self._reducer, self.world, self._keep = reducer, world, keep
        self.writer = CheckpointWriter(run, keep=keep)

    def load_newest(self) -> TrainingState | None:
        """Set model and optimizer to the newest complete checkpoint, if there is one; see ``load_newest_checkpoint``.

        Raises: CheckpointError as that function does, and if ranks see different checkpoints.
        """
        whole = self._optimizer_of_all()
        state = load_newest_checkpoint(self.run, self._model, whole, keep=self._keep)
        step = state.step if state else 0
        if self.world.any(self.world.bcast(step) != step):
            raise CheckpointError(f"{self.run}: not all processes see the same checkpoints: share the directory")
        if state:
            self._take(whole, state.earlier_updates)
        return state

    def begin_from(self, weights: Mapping[str, Array], moments: Mapping[str, Array] | None, n_updates: int) -> None:
        """Set the model to another training's weights, and the optimizer to its moments if given.

        A moving average of the weights begins anew.
        """
        self._model.set_weights(weights)
        if moments is not None:
            whole = self._optimizer_of_all()
            set_moments(self._model, whole, moments)
            self._take(whole, n_updates)
        if self._optimizer.ema is not None:
            self._optimizer.begin_average(self._optimizer.ema_decay)

    def save(self, state: TrainingState) -> None:
        """Copy model, moments and state, and begin to write them on rank 0; all ranks must call this.

        Raises: LostDirectoryError; DisagreementError if parameters differ between ranks; TrainingDivergedError if
        they are not finite.
        """
        self._reducer.complete()
        require_finite(self._model, state.step)
        require_same_parameters(
            self.world,
            self._model,
            f"after update {state.step:,}",
            "They agreed before: their processors, libraries or memory differ. The last checkpoint is unharmed",
        )
        moments = {name: self._reducer.gather(array) for name, array in self._optimizer.state.items()}
        with self.world.waiting_for_rank_0():
            if self.world.rank == 0:
                self.writer.wait()
                self.writer.warn_of_failure()
                self.writer.save(Snapshot.of(self._model, self._optimizer.of_all(moments), state))

    def finish(self) -> None:
        """Wait until the last checkpoint is on the disk.  Raises: CheckpointError if it cannot be written."""
        with self.world.waiting_for_rank_0():
            self.writer.finish()

    def _take(self, whole: Optimizer, earlier_updates: int) -> None:
        """Copy this rank's shard of the moments from an optimizer of all parameters."""
        for mine, moments in zip(self._optimizer.state.values(), whole.state.values(), strict=True):
            mine[...] = self._optimizer.shard(moments)
        self._optimizer.earlier_updates = earlier_updates

    def _optimizer_of_all(self) -> Optimizer:
        """Return an optimizer of all parameters whose moments are 0; with one process, the run's own optimizer."""
        if self.world.size == 1:
            return self._optimizer
        values = self._model.parameters.values
        return self._optimizer.of_all({name: namespace(values).zeros_like(values) for name in self._optimizer.state})


def require_finite(model: Transformer, step: int) -> None:
    """Raise TrainingDivergedError if a parameter is not finite, so that it is not saved.

    No update makes a parameter non-finite, so the cause is elsewhere.
    """
    values = model.parameters.values
    if not namespace(values).isfinite(values).all():
        raise TrainingDivergedError(
            f"update {step:,}: there are parameters that are not finite; the last checkpoint is unharmed; start the"
            " run again, which goes on from it"
        )


def require_same_parameters(world: Communicator, model: Transformer, when: str, remedy: str, **facts: str) -> None:
    """Compare the parameters, and other facts, of all ranks.  Raises: DisagreementError."""
    if world.size > 1:  # a checksum takes time, and one process has nothing to compare it with
        check_agreement(world, {**facts, "parameters": checksum(to_host(model.parameters.values))}, when, remedy)
