"""The variables of a launcher, the end of all processes by one, and the watchdog, without MPI."""

import errno
import itertools
import socket
import sys
import threading
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from mpirun import SIZE_VARIABLES
from waiting import TIME_LIMIT

from parallel.communicator import SerialCommunicator
from parallel.launch import LaunchError, all_or_none, communicator, n_launched, n_launched_here, rank_launched
from parallel.watchdog import Watchdog

HOST = socket.gethostname()
UNWRITABLE = Mock(write=Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))


class OneOfTwo(SerialCommunicator):
    """A rank whose others are not there."""

    size = 2
    is_ended = False

    def abort(self) -> None:
        self.is_ended = True


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyboardInterrupt(), "interrupted; ending all ranks\n"),
        (LaunchError("no way", "walk"), "failed; ending all ranks\nerror: no way; walk\n"),
    ],
)
def test_what_needs_no_traceback_has_none(
    error: BaseException, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single process prints nothing.  Ranks end even if the log cannot be written."""
    monkeypatch.setattr("parallel.launch.SECONDS_TO_FORWARD", 0.0)
    for world, stderr in ((SerialCommunicator(), sys.stderr), (OneOfTwo(), sys.stderr), (OneOfTwo(), UNWRITABLE)):
        monkeypatch.setattr(sys, "stderr", stderr)
        with pytest.raises(type(error)), all_or_none(world, (LaunchError,)):
            raise error
        assert world.size == 1 or world.is_ended
    assert capsys.readouterr().err == f"rank 0 of 2 ({HOST}) {message}"


@pytest.fixture(autouse=True)
def outside_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SIZE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("variable", SIZE_VARIABLES)
def test_a_process_of_several_needs_mpi4py_and_one_that_is_alone_does_not(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("", "1"):
        monkeypatch.setenv(variable, value)
        assert isinstance(communicator(), SerialCommunicator)
    monkeypatch.setenv(variable, "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "parallel.mpi", raising=False)
    with pytest.raises(LaunchError, match="2 processes were started, but mpi4py .*pip install mpi4py mpich"):
        communicator()


def test_under_mpirun_within_srun_mpiruns_word_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert n_launched() == 1
    monkeypatch.setenv("PMI_SIZE", "")  # no number
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")  # a process on every machine, to start the ranks there
    assert (n_launched(), n_launched_here(), rank_launched()) == (2, 2, 0)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "1(x2)")
    assert n_launched_here() == 1
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "8(x2),4,2(x3)")
    for machine, n_ranks in enumerate([8, 8, 4, 2, 2, 2]):
        monkeypatch.setenv("SLURM_NODEID", str(machine))
        assert n_launched_here() == n_ranks
    for name, value in {"PMI_SIZE": "8", "PMI_RANK": "5", "SLURM_PROCID": "1", "MPI_LOCALNRANKS": "4"}.items():
        monkeypatch.setenv(name, value)
    assert (n_launched(), n_launched_here(), rank_launched()) == (8, 4, 5)


# The watchdog


def test_a_call_that_takes_too_long_ends_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for stderr in (sys.stderr, UNWRITABLE):
        monkeypatch.setattr(sys, "stderr", stderr)
        ended = threading.Event()
        with Watchdog(3, 0.05, ended.set).waiting("a sum"):
            assert ended.wait(timeout=TIME_LIMIT)
    message = f"rank 3 ({HOST}) has waited 0.05 s for the other ranks, in a sum: one of them is frozen"
    assert message in capsys.readouterr().err


def test_calls_that_end_in_time_are_left_alone_and_time_between_them_does_not_count() -> None:
    """An error in a call ends it, too."""
    ended = threading.Event()
    watchdog = Watchdog(0, 0.5, ended.set)
    for _ in range(3):
        with watchdog.waiting("a sum"):
            pass
        time.sleep(0.2)
    with pytest.raises(ValueError, match="on purpose"), watchdog.waiting("a sum"):
        raise ValueError("on purpose")
    assert not ended.wait(timeout=0.8)


def test_time_in_which_the_process_was_stopped_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-Z: the clock has gone far ahead while nothing ran."""
    clock = itertools.count(step=1000.0)
    monkeypatch.setattr("parallel.watchdog.time", SimpleNamespace(monotonic=lambda: next(clock)))
    ended = threading.Event()
    with Watchdog(0, 2.0, ended.set).waiting("a sum"):
        assert not ended.wait(timeout=1.5)
        assert ended.wait(timeout=TIME_LIMIT)
