"""One training at a time in a directory: two would write over each other's checkpoints and mix their logs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minitransformer.system.files import lock_directory
from parallel.communicator import Communicator


@contextmanager
def alone_in(directory: Path, world: Communicator) -> Iterator[None]:
    """Keep trainings of other processes than these ranks out of a directory, which is made if it is not there.

    The system lets go of it when rank 0 ends, however that happens.
    Raises: CheckpointError on all ranks if another process trains there, or the directory cannot be made.
    """
    held: int | None = None
    try:
        with world.waiting_for_rank_0():
            if world.rank == 0:
                held = lock_directory(directory, "training")
        yield
    finally:
        if held is not None:
            os.close(held)
