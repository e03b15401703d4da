"""A run's directory: one command at a time trains there; it may be moved or removed meanwhile."""

import dataclasses
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import pytest
from waiting import TIME_LIMIT

from minitransformer import RunConfig, Transformer
from minitransformer.config import ConfigError
from minitransformer.inference.translator import Translator
from minitransformer.system.files import CheckpointError
from minitransformer.training import checkpoint as checkpoint_module
from minitransformer.training.callbacks import Callback
from minitransformer.training.checkpoint import LostDirectoryError, checkpoints
from minitransformer.training.run import finish, run_lock, train_to_end
from parallel.communicator import SerialCommunicator
from tests.support.training import Recorder, finished, job_of, run_of, weights

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


@pytest.mark.parametrize("step", [2, 9, 18])  # before the first save, before a validation, before the last save
def test_a_removed_runs_last_state_lies_beside_it_and_goes_on(shared_run: RunConfig, tmp_path: Path, step: int) -> None:
    config = run_of(tmp_path, precision="float32")
    job = job_of(config)

    def lose(now: int) -> None:
        if now == step:
            job.trainer.checkpoints.writer.wait()
            shutil.rmtree(config.run)

    with pytest.raises(LostDirectoryError, match="moved or removed while it trained") as caught:
        train_to_end(job, Recorder(lose))
    assert not config.run.exists()
    kept = caught.value.kept_in
    assert kept.parent == config.run.parent
    assert f"in {kept}:" in str(caught.value)
    finished(dataclasses.replace(config, run=kept))
    Translator.load(kept).translate(["one two three"])
    last = [Transformer.load(checkpoints(run)[-1]).parameters.values for run in (shared_run.run, kept)]
    assert last[0].tobytes() == last[1].tobytes()


def test_an_interruption_saves_beside_a_moved_run_which_goes_on_where_it_is_now(tmp_path: Path) -> None:
    config, moved = run_of(tmp_path), tmp_path / "moved"
    job = job_of(config)

    def move_and_interrupt(step: int) -> None:
        if step == 5:
            job.trainer.checkpoints.writer.wait()
            config.run.rename(moved)
        if step == 6:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(LostDirectoryError, match="update 6 is in") as caught:
        train_to_end(job, Recorder(move_and_interrupt))
    assert not config.run.exists()
    (checkpoint,) = checkpoints(caught.value.kept_in)
    checkpoint.rename(moved / "checkpoints" / checkpoint.name)
    assert job_of(dataclasses.replace(config, run=moved)).trainer.state.step == 6


def test_a_run_moved_during_a_save_is_reported_like_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = run_of(tmp_path)
    job = job_of(config)
    replace = checkpoint_module._replace

    def replace_and_move(path: Path, unfinished: Path) -> None:
        replace(path, unfinished)
        if config.run in path.parents:
            config.run.rename(tmp_path / "moved")

    monkeypatch.setattr(checkpoint_module, "_replace", replace_and_move)
    with pytest.raises(LostDirectoryError, match="update 4 is in"):
        train_to_end(job, Callback())


@pytest.mark.parametrize("work", [None, "loss", "evaluate"])
def test_a_run_lost_at_its_end_is_not_made_anew(finished_run: RunConfig, work: str | None) -> None:
    job, moved = job_of(finished_run), finished_run.run.with_name("moved")
    (finished_run.run / "results.json").unlink()
    job.trainer.validation = validation = Mock(wraps=job.trainer.validation)
    if work is None:
        finished_run.run.rename(moved)
    else:
        getattr(validation, work).side_effect = lambda *_, **__: finished_run.run.rename(moved) and DEFAULT
    with pytest.raises(CheckpointError, match="moved or removed after its last update"):
        finish(job, Callback())
    assert not finished_run.run.exists()
    there = dataclasses.replace(finished_run, run=moved)
    finished(there)
    assert len(weights(there))
