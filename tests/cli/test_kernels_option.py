"""With --kernels reference a command computes without kernels."""

from pathlib import Path

import pytest
from small_run import Trained, translated

from cli.doctor import doctor

OPTION = "--kernels", "reference"


def test_translations_are_those_of_the_kernels(trained: Trained, kernels_run: list[object]) -> None:
    source = b"one two\nsix\n"
    by_references = translated(trained, source, *OPTION)
    assert kernels_run == []
    assert translated(trained, source) == by_references
    assert kernels_run


def test_the_doctor_reports_that_kernels_are_not_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    doctor(["--run", str(tmp_path), *OPTION])
    assert 'not used (kernels is "reference")' in capsys.readouterr().out
