"""Settings of runs that are automatic, and those that make a run slower, on the stand-ins for a GPU."""

import dataclasses
import json
from pathlib import Path
from typing import Any
from unittest import mock

import cuda_on_cpu
import fake_cuda
import pytest

from autograd.array import DeviceError
from minitransformer import ModelConfig
from minitransformer.config import ConfigError, DataConfig, RunConfig, TrainingConfig
from minitransformer.extras.doctor.machine import precision
from minitransformer.training import automatic_settings
from minitransformer.training.automatic_settings import resolve, why_no_bfloat16
from minitransformer.training.open_run import OpenRun, open_run
from parallel.communicator import SerialCommunicator

pytestmark = pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler (g++)")


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    for name in ("t.en", "t.de"):
        (tmp_path / name).write_text("".join(f"a line of text {i}\n" for i in range(30)), encoding="utf-8")
    data = DataConfig(raw=tmp_path, train_source=("t.en",), train_target=("t.de",), vocabulary_size=40, held_out=4)
    model = ModelConfig(n_layers=1, d_model=128, d_ff=16, n_heads=1, d_k=32, d_v=32)
    training = TrainingConfig(max_updates=1, batch_tokens=60)
    return RunConfig(run=tmp_path / "run", data=data, model=model, training=training, device="cuda")


def opened(config: RunConfig, **training: Any) -> OpenRun:
    return open_run(
        dataclasses.replace(config, training=dataclasses.replace(config.training, **training)), SerialCommunicator()
    )


def values(config: RunConfig) -> tuple[int, str]:
    return config.training.n_micro_batches, config.training.precision


def slower(logged: list[str]) -> list[str]:
    return [line.removeprefix("warning: ") for line in logged if line.startswith("warning: slower")]


def test_bfloat16_one_micro_batch_and_no_slower_line(config: RunConfig, launched: list[str], logged: list[str]) -> None:
    run = opened(config)
    assert values(run.config) == (1, "bfloat16")
    assert run.trainer.config is run.config.training
    assert run.trainer.model.parameters.low_precision is not None
    assert slower(logged) == []
    of_file = json.loads((config.run / "run.json").read_text())["training"]
    assert (of_file["n_micro_batches"], of_file["precision"]) == (1, "bfloat16")


def test_what_is_set_wins_and_is_said_to_be_slower(config: RunConfig, launched: list[str], logged: list[str]) -> None:
    run = opened(config, precision="float32", n_micro_batches=2)
    assert values(run.config) == (2, "float32")
    assert slower(logged) == [
        "slower in float32 (training.precision): bfloat16 uses the GPU's tensor cores and fewer bytes",
        "slower in 2 micro-batches, one after the other (training.n_micro_batches): 1 would be faster in a new run,"
        " if its memory suffices",
    ]


def test_an_update_that_is_no_graph_is_slower(config: RunConfig, cupy: Any, logged: list[str]) -> None:
    opened(config, n_micro_batches=1, precision="bfloat16")
    (warning,) = slower(logged)
    assert warning.startswith("slower without a CUDA graph, kernel by kernel: no CUDA kernel computes ")


def test_nothing_is_slower_on_a_cpu(config: RunConfig, logged: list[str]) -> None:
    opened(dataclasses.replace(config, device="cpu"))
    assert slower(logged) == []


def test_a_run_goes_on_with_the_values_it_began_with_on_another_device(
    config: RunConfig, launched: list[str], logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic_settings, "bfloat16_set", lambda: None)
    assert values(opened(dataclasses.replace(config, device="cpu")).config) == (2, "float32")
    assert values(opened(config).config) == (2, "float32")
    assert len(slower(logged)) == 2
    with pytest.raises(ConfigError, match="training.precision is 'float32' there, 'bfloat16' here"):
        opened(config, precision="bfloat16")


@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        ("references", 'the references compute in float32 (kernels is "reference")'),
        ("no ml_dtypes", "ml_dtypes is missing; install it"),
        ("old GPU", "the GPU has compute capability 7.5, and bfloat16 needs 8.0"),
        ("no kernels", "no kernel of products in bfloat16 has passed its check"),
    ],
)
def test_where_bfloat16_is_not_available_a_run_has_float32_and_says_once_why(
    obstacle: str,
    reason: str,
    config: RunConfig,
    request: pytest.FixtureRequest,
    logged: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request.getfixturevalue("cupy" if obstacle == "no kernels" else "launched")
    if obstacle == "references":
        config = dataclasses.replace(config, kernels="reference")
    elif obstacle == "no ml_dtypes":
        error = DeviceError("ml_dtypes is missing", "install it")
        monkeypatch.setattr(automatic_settings, "dtype_named", mock.Mock(side_effect=error))
    elif obstacle == "old GPU":
        monkeypatch.setattr(fake_cuda.Device, "compute_capability", "75")
    assert values(opened(config).config) == (1, "float32")
    assert slower(logged) == [f"slower in float32: {reason}"]


def test_a_gpu_of_compute_capability_8_has_bfloat16(launched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for capability in ("80", "90", "120"):
        monkeypatch.setattr(fake_cuda.Device, "compute_capability", capability)
        assert why_no_bfloat16("cuda", "compiled") is None


class OneOfTwo(SerialCommunicator):
    """One of two ranks; the GPU of the other cannot compute in bfloat16, and its directory has a run."""

    size = 2

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def allgather(self, value: Any) -> list[Any]:
        return [value, "an old GPU"]

    def bcast(self, value: Any) -> Any:
        return value if self.rank == 0 else {"training": {"n_micro_batches": 16}}


def test_ranks_take_rank_0s_values_and_bfloat16_only_if_all_have_it(config: RunConfig, launched: list[str]) -> None:
    assert values(resolve(config, OneOfTwo(0))[0]) == (2, "float32")
    assert values(resolve(config, OneOfTwo(1))[0]) == (16, "float32")


def test_the_doctor_names_the_precision_and_why_it_is_not_bfloat16(config: RunConfig, launched: list[str]) -> None:
    settled, obstacle = resolve(config, SerialCommunicator())
    assert precision(settled.training.precision, obstacle).found == "bfloat16"
    settled, obstacle = resolve(dataclasses.replace(config, kernels="reference"), SerialCommunicator())
    assert precision(settled.training.precision, obstacle).found.startswith(
        "float32; not bfloat16: the references compute in float32"
    )
