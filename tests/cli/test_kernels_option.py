"""With --kernels reference a command computes without kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_run import Trained, output_of, translated

from cli.doctor import doctor
from cli.train import read_options, train

OPTION = "--kernels", "reference"


def test_translations_are_those_of_the_kernels(trained: Trained, kernels_run: list[object]) -> None:
    source = b"one two\nsix\n"
    by_references = translated(trained, source, *OPTION)
    assert kernels_run == []
    assert translated(trained, source) == by_references
    assert kernels_run


def test_a_file_of_options_may_choose_references(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text('kernels = "reference"', encoding="utf-8")
    assert read_options(["--config", str(file)]).kernels == "reference"


def test_training_runs_without_kernels(trained: Trained, tmp_path: Path, kernels_run: list[object]) -> None:
    arguments = [*trained.arguments, "--run", str(tmp_path / "run"), "--training.max-updates", "10", *OPTION]
    assert "step 10 of 10, epoch" in output_of(lambda: train(arguments))
    assert kernels_run == []


def test_the_doctor_reports_that_kernels_are_not_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    doctor(["--run", str(tmp_path), *OPTION])
    assert 'not used (kernels is "reference")' in capsys.readouterr().out
