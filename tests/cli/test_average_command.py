"""Averaging from end to end: the mean of a run's last checkpoints."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from small_run import Trained, contents, output_of, translated

from cli.average import average
from minitransformer.system.files import CheckpointError, CorruptFileError


def test_the_average_of_checkpoints_is_a_model_that_translates(trained: Trained, tmp_path: Path) -> None:
    words = ["--run", str(trained.run), "--last", "2", "--output", str(tmp_path / "mean")]
    output = output_of(lambda: average(words))
    assert output == f"averaged step-00000040, step-00000060 into {tmp_path / 'mean'}\n"
    averaged = dataclasses.replace(trained, run=tmp_path / "mean")
    assert translated(averaged, b"one\ntwo\n").count(b"\n") == 2


def test_the_average_of_the_last_is_the_last(trained: Trained, tmp_path: Path) -> None:
    unfinished = tmp_path / ".model.safetensors.0123456789abcdef.tmp"  # as a killed process leaves it
    unfinished.touch()
    output_of(lambda: average(["--run", str(trained.run), "--last", "1", "--output", str(tmp_path)]))
    last = trained.run / "checkpoints" / "step-00000060"
    assert contents(tmp_path)["model.safetensors"] == contents(last)["model.safetensors"]
    assert not unfinished.exists()


def test_an_update_that_a_kill_has_left_two_checkpoints_of_counts_once(trained: Trained, tmp_path: Path) -> None:
    run, words = tmp_path / "run", ["--last", "2", "--output", str(tmp_path / "mean")]
    shutil.copytree(trained.run, run)
    last = run / "checkpoints" / "step-00000060"
    shutil.copytree(last, last.with_name("step-00000060.replaced"))
    output = output_of(lambda: average(["--run", str(run), *words]))
    assert output.startswith("averaged step-00000040, step-00000060 into")


def test_of_two_checkpoints_of_an_update_the_whole_one_is_averaged(trained: Trained, tmp_path: Path) -> None:
    run, words = tmp_path / "run", ["--last", "1", "--output", str(tmp_path / "mean")]
    shutil.copytree(trained.run, run)
    last = run / "checkpoints" / "step-00000060"
    shutil.copytree(last, last.with_name("step-00000060.replaced"))
    weights = (last / "model.safetensors").read_bytes()
    (last / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    output = output_of(lambda: average(["--run", str(run), *words]))
    assert output.startswith("averaged step-00000060.replaced into")
    assert (tmp_path / "mean" / "model.safetensors").read_bytes() == weights
    shutil.rmtree(last.with_name("step-00000060.replaced"))
    with pytest.raises(CorruptFileError, match="step-00000060/model.safetensors: has changed since it was written"):
        average(["--run", str(run), *words])


def test_each_run_has_its_own_average_and_no_model_of_a_run_is_overwritten(trained: Trained, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained.run, run)
    before = contents(run)
    for directory in (run, trained.run):
        with pytest.raises(CheckpointError, match=r"run: holds a run \(run\.json\), whose model would be replaced"):
            average(["--run", str(run), "--last", "2", "--output", str(directory)])
    assert contents(run) == before
    assert output_of(lambda: average(["--run", str(run), "--last", "2"])).endswith(f" into {run / 'averaged'}\n")
    assert {name: content for name, content in contents(run).items() if not name.startswith("averaged/")} == before


@pytest.mark.parametrize("n", ["0", "4", "-1"])
def test_more_checkpoints_than_there_are_cannot_be_averaged(trained: Trained, tmp_path: Path, n: str) -> None:
    with pytest.raises(CheckpointError, match=f"has 3 checkpoints; cannot average the last {n}"):
        average(["--run", str(trained.run), "--last", n, "--output", str(tmp_path / "mean")])
    assert not (tmp_path / "mean").exists()


def test_where_no_checkpoints_are_it_says_which_directory_to_give(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere: no such directory; give the directory of a training run"):
        average(["--run", str(tmp_path / "nowhere")])
    with pytest.raises(CheckpointError, match=r"has no checkpoints; give the directory of a training run"):
        average(["--run", str(tmp_path)])
