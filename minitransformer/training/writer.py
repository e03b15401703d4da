"""Writing of checkpoints on a thread, during training."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

import numpy as np

from autograd.array import Array
from minitransformer.config.run import RUN_FILE
from minitransformer.system.files import CheckpointError
from minitransformer.training.checkpoint import Snapshot, save_checkpoint

_log = logging.getLogger(__name__)


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
    for the next checkpoint: 12 bytes a parameter, on the host.

    The thread is a daemon, so a process can end at once.  It then leaves an unfinished directory, which does not count
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

        If so, nothing may be written there.
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
            weights=_copied(snapshot.weights, self._weights),
            moments=_copied(snapshot.moments, self._moments),
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
        """Wait until nothing is being written."""
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
        self._failure = self._kept_beside(snapshot) if self.is_lost() else failure

    def _kept_beside(self, snapshot: Snapshot) -> Exception:
        """Write a checkpoint of a lost run beside its directory.

        Return a LostDirectoryError that names the new directory, or the error of that write.
        """
        step = snapshot.state.step
        try:
            kept_in = self.run.absolute().with_name(f"{self.run.absolute().name}.kept-{step}")
            save_checkpoint(kept_in, snapshot, keep=self._keep)
        except Exception as error:
            return error
        return LostDirectoryError(self.run, kept_in, step)


def _copied(arrays: Mapping[str, Array], buffers: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Copy arrays to ``buffers``, which the first call allocates.

    Allocating new memory for each copy would take more than twice the time.
    """
    for name, array in arrays.items():
        if name in buffers:
            np.copyto(buffers[name], array)
        else:
            buffers[name] = np.array(array)
    return buffers
