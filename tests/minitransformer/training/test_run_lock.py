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
WORLD = SerialCommunicator()


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "run"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError, match=TAKEN), run_lock(run, WORLD):
            raise AssertionError("two in one directory")
        with run_lock(tmp_path / "another", WORLD):
            pass
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=TIME_LIMIT)
        with run_lock(run, WORLD):
            with pytest.raises(CheckpointError, match=TAKEN), run_lock(run, WORLD):
                raise AssertionError("two in one process")
            assert list(run.iterdir()) == []


def test_an_error_removes_a_directory_that_is_new_and_empty(tmp_path: Path) -> None:
    there, new = tmp_path / "there", tmp_path / "new"
    there.mkdir()
    for run in (there, new):
        with pytest.raises(ConfigError), run_lock(run, WORLD):
            assert run.is_dir()
            raise ConfigError
        assert run.is_dir() == (run == there)
    with pytest.raises(ConfigError), run_lock(new, WORLD):
        (new / "file").touch()
        raise ConfigError
    assert (new / "file").exists()


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "run"
    with pytest.raises(CheckpointError, match=r"file/run: cannot be written"), run_lock(path, WORLD):
        pass
