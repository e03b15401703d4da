"""The start and the end of ranks: read the launcher's environment, and end all ranks when one of them fails."""

from __future__ import annotations

import faulthandler
import os
import re
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from parallel.communicator import SECONDS_TO_FORWARD, Communicator, SerialCommunicator
from parallel.watchdog import PATIENCE

INSTALL_MPI = "pip install mpi4py mpich"
STDERR = 2  # the file descriptor

# Variables that launchers set: MPICH and its relatives, Open MPI, and Slurm's srun (always, with any MPI library).
# The first variable that is set counts: when mpirun runs within srun, the variables of mpirun are the right ones.
_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
_RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")
_LOCAL_RANK_VARIABLES = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_NODE_SIZE_VARIABLES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE")


class LaunchError(RuntimeError):
    """An error: the process was started as one of several, but cannot communicate with the others."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem, self.remedy = problem, remedy


def n_launched() -> int:
    """Return how many processes mpirun or srun started, read from the environment; 1 without a launcher."""
    return _first_of(_SIZE_VARIABLES, 1)


def n_launched_here() -> int:
    """Return how many of the launched processes run on this machine.

    If the launcher does not set this number, return the number of all launched processes.
    """
    on_machines = _by_machine(os.environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    machine = _first_of(["SLURM_NODEID"], 0)
    return _first_of(_NODE_SIZE_VARIABLES, on_machines[machine] if machine < len(on_machines) else n_launched())


def _by_machine(counts: str) -> list[int]:
    """Expand Slurm's counts of processes: "8(x2),4" means eight on each of two machines and four on a third."""
    groups = (re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", group) for group in counts.split(","))
    return [int(group[1]) for group in groups if group for _ in range(int(group[2] or 1))]


def rank_launched() -> int:
    """Return the rank that the launcher gave this process, even if MPI cannot be used."""
    return _first_of(_RANK_VARIABLES, 0)


def is_first_launched_here() -> bool:
    """Return whether this process is the first of its machine, read from the environment."""
    return _first_of(_LOCAL_RANK_VARIABLES, 0) == 0


def _first_of(variables: Sequence[str], default: int) -> int:
    """Return the value of the first variable that holds a number, else ``default``."""
    numbers = (re.fullmatch(r"\d+", os.environ.get(name, "")) for name in variables)
    return next((int(number[0]) for number in numbers if number), default)


def communicator(patience: float = PATIENCE) -> Communicator:
    """Return MPI's communicator if mpirun or srun started several processes, else the serial one.

    If not all ranks have started MPI after ``patience`` seconds, this process ends with a traceback, and the launcher
    then ends the others.

    Raises: LaunchError if several processes were started that cannot communicate with each other.
    """
    expected = n_launched()
    if expected == 1:
        return SerialCommunicator()
    faulthandler.dump_traceback_later(patience, exit=True, file=STDERR)  # Python's threads cannot run meanwhile
    try:
        from parallel.mpi import MpiCommunicator  # noqa: PLC0415  (importing it starts MPI)

        world = MpiCommunicator()
    except (ImportError, RuntimeError) as error:  # mpi4py raises RuntimeError where it finds no MPI library
        raise LaunchError(
            f"{expected} processes were started, but mpi4py cannot be used ({error})", f"install it with {INSTALL_MPI}"
        ) from error
    finally:
        faulthandler.cancel_dump_traceback_later()
    if world.size != expected:
        raise LaunchError(
            f"{expected} processes were started, but mpi4py sees {world.size}: the launcher is another MPI library's",
            f"use {_right_launcher(expected)}",
        )
    return world


def _right_launcher(n_processes: int) -> str:
    if os.environ.get("SLURM_STEP_NUM_TASKS") == str(n_processes):
        return "srun --mpi=pmi2 with MPICH, srun --mpi=pmix with Open MPI (srun --mpi=list shows the choices)"
    return f"the mpirun of this environment, from {INSTALL_MPI}"


@contextmanager
def all_or_none(world: Communicator, expected: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """End all ranks if this context raises an exception on one of several ranks: the others would wait forever.

    Print an expected exception in one line, Ctrl-C as "interrupted", and any other exception with its traceback.
    Do not print an exit with a status: its reason was printed before.  An exit with status 0, as after a help text,
    ends no other rank.
    """
    try:
        yield
    except BaseException as error:
        has_printed_reason = isinstance(error, SystemExit) and isinstance(error.code, int | None)
        if world.size > 1 and not (isinstance(error, SystemExit) and not error.code):
            host = socket.gethostname()
            ended = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            with suppress(OSError):  # end the others even if the log cannot be written
                print(f"rank {world.rank} of {world.size} ({host}) {ended}; ending all ranks", file=sys.stderr)
                if isinstance(error, expected):
                    print(f"error: {error}", file=sys.stderr)
                elif ended == "failed" and not has_printed_reason:
                    traceback.print_exc()
                sys.stderr.flush()
            time.sleep(SECONDS_TO_FORWARD)
            world.abort()
        raise
