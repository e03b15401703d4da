"""Averaging from end to end: the mean of a run's last checkpoints."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from small_run import Trained, contents, output_of, translated

from cli.average import average
from minitransformer.system.files import CheckpointError, CorruptFileError

LAST = "step-00000060"


def averaged(run: Path, n: int, *words: str) -> str:
    return output_of(lambda: average(["--run", str(run), "--last", str(n), *words]))


def test_the_average_of_checkpoints_is_a_model_that_translates(trained: Trained, tmp_path: Path) -> None:
    output = averaged(trained.run, 2, "--output", str(tmp_path / "mean"))
    assert output == f"averaged step-00000040, {LAST} into {tmp_path / 'mean'}\n"
    mean = dataclasses.replace(trained, run=tmp_path / "mean")
    assert translated(mean, b"one\ntwo\n").count(b"\n") == 2


def test_the_average_of_the_last_is_the_last(trained: Trained, tmp_path: Path) -> None:
    unfinished = tmp_path / ".model.safetensors.0123456789abcdef.tmp"  # as a killed process leaves it
    unfinished.touch()
    averaged(trained.run, 1, "--output", str(tmp_path))
    last = trained.run / "checkpoints" / LAST
    assert contents(tmp_path)["model.safetensors"] == contents(last)["model.safetensors"]
    assert not unfinished.exists()


def test_two_checkpoints_of_an_update_that_a_kill_has_left_count_once_and_the_complete_one_is_averaged(
    run_copy: Path, tmp_path: Path
) -> None:
    last = run_copy / "checkpoints" / LAST
    shutil.copytree(last, last.with_name(f"{LAST}.replaced"))
    assert averaged(run_copy, 2, "--output", str(tmp_path / "two")).startswith(f"averaged step-00000040, {LAST} into")
    weights = (last / "model.safetensors").read_bytes()
    (last / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    *warnings, said = averaged(run_copy, 1, "--output", str(tmp_path / "one")).splitlines()
    assert said.startswith(f"averaged {LAST}.replaced into")
    assert [line.partition(":")[0] for line in warnings] == ["warning"]
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == weights
    shutil.rmtree(last.with_name(f"{LAST}.replaced"))
    with pytest.raises(CorruptFileError, match=f"{LAST}/model.safetensors: has changed since it was written"):
        averaged(run_copy, 1)


def test_each_run_has_its_own_average_and_no_model_of_a_run_is_overwritten(trained: Trained, run_copy: Path) -> None:
    before = contents(run_copy)
    for directory in (run_copy, trained.run):
        with pytest.raises(CheckpointError, match=r"run: holds a run \(run\.json\), whose model would be replaced"):
            averaged(run_copy, 2, "--output", str(directory))
    assert contents(run_copy) == before
    assert averaged(run_copy, 2).endswith(f" into {run_copy / 'averaged'}\n")
    assert {name: c for name, c in contents(run_copy).items() if not name.startswith("averaged/")} == before


@pytest.mark.parametrize("n", [0, 4, -1])
def test_more_checkpoints_than_there_are_cannot_be_averaged(trained: Trained, tmp_path: Path, n: int) -> None:
    with pytest.raises(CheckpointError, match=f"has 3 checkpoints; cannot average the last {n}"):
        averaged(trained.run, n, "--output", str(tmp_path / "mean"))
    assert not (tmp_path / "mean").exists()


def test_where_no_checkpoints_are_it_says_which_directory_to_give(tmp_path: Path) -> None:
    for run, message in ((tmp_path / "nowhere", "nowhere: no such directory"), (tmp_path, "has no checkpoints")):
        with pytest.raises(CheckpointError, match=f"{message}; give the directory of a training run"):
            average(["--run", str(run)])
