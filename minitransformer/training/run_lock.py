"""A lock on a run's directory: two trainings would overwrite each other's checkpoints and mix their logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from minitransformer.system.files import lock_directory
from parallel.communicator import Communicator


@contextmanager
def run_lock(directory: Path, world: Communicator) -> Iterator[None]:
    """Lock a directory against trainings of other processes than these ranks; create it if it does not exist.

    The system releases the lock when rank 0 ends in any way.  After an error, a directory that was created here is
    removed if it is empty.
    Raises: CheckpointError on all ranks if another process trains there, or the directory cannot be created.
    """
    with ExitStack() as held:
        with world.waiting_for_rank_0():
            if world.rank == 0:
                held.enter_context(lock_directory(directory, "training"))
        yield
