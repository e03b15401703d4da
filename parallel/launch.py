"""Finding out how this process was started, and ending all ranks when one of them fails."""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from parallel.communicator import SECONDS_TO_FORWARD, Communicator, SerialCommunicator

# Set by the launchers of MPICH and its relatives, and of Open MPI.
_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


class LaunchError(RuntimeError):
    """The process was started as one of many, but cannot speak to the others."""


def n_launched() -> int:
    """How many processes mpirun started, by what it left in the environment; 1 without mpirun."""
    return max((int(os.environ[name]) for name in _SIZE_VARIABLES if name in os.environ), default=1)


def communicator() -> Communicator:
    """The communicator of this process: MPI's if mpirun started several, else the serial one.

    Raises: LaunchError if mpirun started several processes that cannot speak to each other.
    """
    expected = n_launched()
    if expected == 1:
        return SerialCommunicator()
    try:
        from parallel.mpi import MpiCommunicator  # noqa: PLC0415  (importing it starts MPI)

        world = MpiCommunicator()
    except (ImportError, RuntimeError) as error:  # mpi4py raises RuntimeError where it finds no MPI library
        raise LaunchError(
            f"mpirun started {expected} processes, but mpi4py cannot be used ({error});"
            ' install it with pip install "minitransformer[mpi]"'
        ) from error
    if world.size != expected:
        raise LaunchError(
            f"mpirun started {expected} processes, but mpi4py sees {world.size}: mpirun and mpi4py belong to different"
            ' MPI libraries. Use the mpirun of this environment, from pip install "minitransformer[mpi]"'
        )
    return world


@contextmanager
def all_or_none(world: Communicator, expected: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """Within this context an exception on one rank of several ends them all, so that none waits for it for ever.

    An expected one is told in a line, another one with its traceback.
    """
    try:
        yield
    except BaseException as error:
        if world.size > 1:
            host = socket.gethostname()
            print(f"rank {world.rank} of {world.size} ({host}) failed; ending all ranks", file=sys.stderr)
            if isinstance(error, expected):
                print(f"error: {error}", file=sys.stderr)
            else:
                traceback.print_exc()
            sys.stderr.flush()
            time.sleep(SECONDS_TO_FORWARD)
            world.abort()
        raise
