"""What the start of a run says about settings that make it slower on a GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from minitransformer import ModelConfig
from minitransformer.config import DataConfig, RunConfig, TrainingConfig
from minitransformer.training.open_run import open_run
from parallel.communicator import SerialCommunicator

FLOAT32 = "warning: slower in float32 (training.precision): bfloat16 uses the GPU's tensor cores and fewer bytes"
MICRO_BATCHES = (
    "warning: slower in 2 micro-batches, one after the other (training.n_micro_batches): 1 would be faster in a"
    " new run, if its memory suffices"
)


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    for name in ("t.en", "t.de"):
        (tmp_path / name).write_text("".join(f"a line of text {i}\n" for i in range(30)), encoding="utf-8")
    data = DataConfig(raw=tmp_path, train_source=("t.en",), train_target=("t.de",), vocabulary_size=40, held_out=4)
    model = ModelConfig(n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8)
    training = TrainingConfig(max_updates=1, batch_tokens=150, n_micro_batches=2)
    return RunConfig(run=tmp_path / "run", data=data, model=model, training=training, device="cuda")


def warnings_of(config: RunConfig, logged: list[str], **training: Any) -> list[str]:
    open_run(
        dataclasses.replace(config, training=dataclasses.replace(config.training, **training)), SerialCommunicator()
    )
    return [line for line in logged if line.startswith("warning: slower")]


def test_float32_and_micro_batches_are_slower(
    config: RunConfig, cupy: Any, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitransformer.training.open_run.why_no_bfloat16", lambda device, kernels: None)
    assert warnings_of(config, logged, precision="float32") == [FLOAT32, MICRO_BATCHES]


def test_an_update_that_is_no_graph_is_slower(config: RunConfig, cupy: Any, logged: list[str]) -> None:
    (warning,) = warnings_of(config, logged, n_micro_batches=1, precision="bfloat16")
    assert warning.startswith("warning: slower without a CUDA graph, kernel by kernel: no CUDA kernel computes ")


def test_nothing_is_slower_on_a_cpu(config: RunConfig, logged: list[str]) -> None:
    assert warnings_of(dataclasses.replace(config, device="cpu"), logged) == []
