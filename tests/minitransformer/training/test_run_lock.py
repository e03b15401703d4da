"""Who may train in a directory: one command, until it ends, however it ends."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import TIME_LIMIT

from minitransformer.config import ConfigError
from minitransformer.system.files import CheckpointError
from minitransformer.training.run import run_lock
from parallel.communicator import SerialCommunicator

HOLD = """
import sys, time
from pathlib import Path
from minitransformer.training.run import run_lock
from parallel.communicator import SerialCommunicator

with run_lock(Path(sys.argv[1]), SerialCommunicator()):
    print("held", flush=True)
    time.sleep(600)
"""
TAKEN = r"run: another process is training there; wait for its end, end it, or choose another directory"


def test_the_second_is_refused_while_the_first_is_there(tmp_path: Path) -> None:
    run, world = tmp_path / "runs" / "run", SerialCommunicator()
    with run_lock(run, world):
        with pytest.raises(CheckpointError, match=TAKEN), run_lock(run, world):
            raise AssertionError("two in one directory")
        with run_lock(tmp_path / "another", world):
            pass
    with run_lock(run, world):
        assert list(run.iterdir()) == []


def test_a_killed_process_keeps_nobody_out(tmp_path: Path) -> None:
    run, world = tmp_path / "run", SerialCommunicator()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError, match=TAKEN), run_lock(run, world):
            raise AssertionError("two in one directory")
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=TIME_LIMIT)
        with run_lock(run, world):
            pass


@pytest.mark.parametrize("was_there", [True, False])
def test_an_error_removes_a_directory_that_is_new_and_empty(tmp_path: Path, *, was_there: bool) -> None:
    run, world = tmp_path / "run", SerialCommunicator()
    if was_there:
        run.mkdir()
    with pytest.raises(ConfigError), run_lock(run, world):
        assert run.is_dir()
        raise ConfigError
    assert run.is_dir() == was_there
    with pytest.raises(ConfigError), run_lock(run, world):
        (run / "file").touch()
        raise ConfigError
    assert (run / "file").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc, where no directory can be made")
def test_a_directory_that_cannot_be_made_is_reported() -> None:
    world = SerialCommunicator()
    with pytest.raises(CheckpointError, match=r"/proc/x/run: cannot be written"), run_lock(Path("/proc/x/run"), world):
        pass
