"""minitransformer-doctor --replay: what a repro bundle says of its cause."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_run import as_command

from cli.doctor import doctor
from minitransformer import ModelConfig, Transformer
from minitransformer.extras.doctor.check import Replay, conclusion
from minitransformer.training.divergence import UpdateFacts, write_repro_bundle

SMALL = ModelConfig(vocabulary_size=12, n_layers=1, d_model=8, d_ff=8, n_heads=2, d_k=4, d_v=4)
PAIRS = [(np.array([3, 4, 5]), np.array([6])), (np.array([8]), np.array([7, 9]))]


def bundle(folder: Path, value: float | None = None) -> str:
    model = Transformer(SMALL)
    if value is not None:
        model.parameters.named["decoder.layers.0.feed_forward.hidden.weight"].value[0] = value
    facts = UpdateFacts(17, 1, 0, 4, [5, 0], seed=3, n_micro_batches=2, learning_rate=1e-3, what="the loss is nan")
    write_repro_bundle(folder, model, PAIRS, facts, model.parameters.gradients)
    return str(folder)


@pytest.mark.parametrize(
    ("value", "single", "double", "output"),
    [
        (np.nan, "first not finite: ", "first not finite: ", "float64 does not help: look at the operation"),
        (3e38, "first not finite: ", "all numbers are finite", "lower the learning rate, or clip (training.clip_"),
        (None, "all numbers are finite", "all numbers are finite", "check the machine that trained"),
    ],
)
def test_both_precisions_lead_to_a_conclusion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: float | None, single: str, double: str, output: str
) -> None:
    assert doctor(["--replay", bundle(tmp_path, value)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"float32: {single}")
    assert lines[1].startswith(f"float64: {double}")
    assert lines[2].startswith("conclusion: ")
    assert output in lines[2]


def test_a_sum_that_overflows_is_not_finite() -> None:
    single, double = Replay("float32", 2.0, np.inf, None, None), Replay("float64", 2.0, 3.0, None, None)
    assert conclusion(single, double).startswith("float32 overflows")


def test_a_directory_that_is_no_repro_bundle_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert as_command("doctor", ["--replay", str(tmp_path)], monkeypatch) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'update.json'}: not found")


def test_only_the_first_of_several_processes_speaks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMI_RANK", "1")
    assert doctor(["--replay", bundle(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
