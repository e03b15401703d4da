"""Automatic settings: what a run began with, else what suits the device and the number of processes."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from minitransformer.config import ConfigError, RunConfig, TrainingConfig
from minitransformer.config.run import initial_settings, resolved, with_values


def values(config: RunConfig) -> tuple[int, str]:
    return config.training.n_micro_batches, config.training.precision


def config_with(device: Any, **training: Any) -> RunConfig:
    return RunConfig(training=TrainingConfig(**training), device=device)


@pytest.mark.parametrize(("n_ranks", "expected"), [(1, 1), (2, 2), (3, 2), (4, 4), (6, 4), (7, 4), (8, 8), (16, 16)])
@pytest.mark.parametrize("order", ["exact", "fast"])
def test_a_gpu_has_bfloat16_and_one_micro_batch_for_each_working_rank(order: Any, n_ranks: int, expected: int) -> None:
    assert values(resolved(config_with("cuda", sum=order), n_ranks, None)) == (expected, "bfloat16")


@pytest.mark.parametrize("n_ranks", [1, 6, 16])
@pytest.mark.parametrize(("batch_tokens", "expected"), [(25_000, 8), (4_000, 8), (3_999, 2), (1, 2)])
def test_a_cpu_has_as_many_micro_batches_for_any_ranks(batch_tokens: int, expected: int, n_ranks: int) -> None:
    assert values(resolved(config_with("cpu", batch_tokens=batch_tokens), n_ranks, None))[0] == expected


def test_both_settings_are_automatic_by_default_and_presets_have_on_a_cpu_the_micro_batches_of_their_size() -> None:
    presets = [RunConfig(), *(RunConfig.of_preset(name) for name in ("tiny", "small", "base", "big", "parsing"))]
    assert {values(preset) for preset in presets} == {(0, "automatic")}
    assert [values(resolved(preset, 1, None))[0] for preset in presets] == [2, 2, 2, 8, 8, 8]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("obstacle", "expected"), [(None, "bfloat16"), ("ml_dtypes is missing", "float32")])
def test_a_device_has_bfloat16_unless_something_is_missing(device: Any, obstacle: Any, expected: str) -> None:
    assert values(resolved(config_with(device), 1, obstacle))[1] == expected


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_set_is_kept(device: Any) -> None:
    set_to = {"n_micro_batches": 16, "precision": "float32" if device == "cuda" else "bfloat16"}
    config = config_with(device, **set_to)
    assert resolved(config, 4, None) == config
    assert values(resolved(config_with(device, n_micro_batches=16), 4, None))[0] == 16


def begin(run: Path, **training: Any) -> None:
    RunConfig(run=run, training=TrainingConfig(**training)).claim_directory()


def test_a_run_keeps_the_values_it_began_with_where_they_are_automatic(tmp_path: Path) -> None:
    begin(tmp_path, n_micro_batches=8, precision="float32")
    assert initial_settings(tmp_path) == {"n_micro_batches": 8, "precision": "float32"}
    assert values(with_values(config_with("cuda"), initial_settings(tmp_path))) == (8, "float32")
    set_here = config_with("cuda", n_micro_batches=1, precision="bfloat16")
    assert with_values(set_here, initial_settings(tmp_path)) == set_here


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"training": 3}', '{"model": {}}'])
def test_where_no_run_began_all_stays_automatic(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    assert with_values(RunConfig(), initial_settings(tmp_path)) == RunConfig()


@pytest.mark.parametrize(("name", "value"), [("n_micro_batches", "x"), ("n_micro_batches", 3), ("precision", 5)])
def test_an_impossible_value_in_the_file_is_named(name: str, value: Any, tmp_path: Path) -> None:
    begin(tmp_path)
    content = json.loads((tmp_path / "run.json").read_text())
    content["training"][name] = value
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=f"{name} must be "):
        with_values(dataclasses.replace(RunConfig(), device="cuda"), initial_settings(tmp_path))
