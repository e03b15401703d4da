"""What a launcher tells a process, and how one process ends all: without MPI."""

import errno
import socket
import sys
from unittest.mock import Mock

import pytest
from mpirun import SIZE_VARIABLES

from parallel.communicator import SerialCommunicator
from parallel.launch import LaunchError, all_or_none, communicator, n_launched, n_launched_here, rank_launched


def test_an_exception_of_a_single_process_passes_through_silently(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="on purpose"), all_or_none(SerialCommunicator()):
        raise ValueError("on purpose")
    assert capsys.readouterr().err == ""


class OneOfTwo(SerialCommunicator):
    """A rank whose others are not there."""

    size = 2


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
    monkeypatch.setattr("parallel.launch.SECONDS_TO_FORWARD", 0.0)
    with pytest.raises(type(error)), all_or_none(OneOfTwo(), (LaunchError,)):
        raise error
    assert capsys.readouterr().err == f"rank 0 of 2 ({socket.gethostname()}) {message}"


def test_a_log_that_cannot_be_written_keeps_no_rank_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    aborted = []
    monkeypatch.setattr("parallel.launch.SECONDS_TO_FORWARD", 0.0)
    monkeypatch.setattr(sys, "stderr", Mock(write=Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))))
    monkeypatch.setattr(OneOfTwo, "abort", lambda world: aborted.append(world.rank))
    with pytest.raises(ValueError, match="on purpose"), all_or_none(OneOfTwo()):
        raise ValueError("on purpose")
    assert aborted == [0]


@pytest.fixture(autouse=True)
def outside_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SIZE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_without_mpirun_and_under_mpirun_of_one_process_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert n_launched() == 1
    assert isinstance(communicator(), SerialCommunicator)
    for variable in SIZE_VARIABLES:
        with monkeypatch.context() as alone:
            alone.setenv(variable, "1")
            assert isinstance(communicator(), SerialCommunicator)


@pytest.mark.parametrize("variable", SIZE_VARIABLES)
def test_mpirun_without_mpi4py_names_the_remedy(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "parallel.mpi", raising=False)
    with pytest.raises(LaunchError, match="2 processes were started, but mpi4py .*pip install mpi4py mpich"):
        communicator()


def test_a_variable_without_a_number_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_SIZE", "")
    assert n_launched() == 1
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    assert n_launched() == 4


def test_under_mpirun_within_srun_mpiruns_word_counts(monkeypatch: pytest.MonkeyPatch) -> None:
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
