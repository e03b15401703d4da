"""Checksums: no bit can flip and no byte be lost unnoticed, and another format is one clear error."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from autograd.optim import Adam
from minitransformer import Transformer
from minitransformer.config import ModelConfig
from minitransformer.system.checksums import check_files, has_checksums
from minitransformer.system.files import CheckpointError, CorruptFileError
from minitransformer.training.checkpoint import (
    CHECKPOINT_FILES,
    Snapshot,
    checkpoint_path,
    load_checkpoint,
    load_newest_checkpoint,
    save_checkpoint,
)
from minitransformer.training.state import TrainingState

TINY = ModelConfig(vocabulary_size=5, n_layers=1, d_model=2, d_ff=2, n_heads=1, d_k=1, d_v=1)
STATE = TrainingState(20, 3, 2, 7, 1 / 3, 12.25, unlogged_loss=61.5, unlogged_tokens=30, unlogged_seconds=0.5)


def model_and_adam(seed: int | None = None) -> tuple[Transformer, Adam]:
    model = Transformer(TINY, seed=seed)
    return model, Adam(model.parameters)


def saved(run: Path, step: int = 20) -> Path:
    return save_checkpoint(run, Snapshot.of(*model_and_adam(step), STATE), keep=5)


def resumed(run: Path) -> TrainingState | None:
    return load_newest_checkpoint(run, *model_and_adam(), keep=5)


@pytest.mark.parametrize("name", [*CHECKPOINT_FILES, "checksums.json"])
def test_a_flipped_bit_and_a_truncation_are_noticed_wherever_they_are(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path)
    content = (path / name).read_bytes()
    for offset in range(0, len(content), 2 if name == "checksums.json" else 37):
        flipped = bytearray(content)
        flipped[offset] ^= 1 << offset // 2 % 8
        for damaged in (flipped, content[:offset]):
            (path / name).write_bytes(damaged)
            with pytest.raises(CheckpointError):
                check_files(path, CHECKPOINT_FILES)


def set_format(path: Path, version: int) -> None:
    checksums = path / "checksums.json"
    checksums.write_text(checksums.read_text().replace('"format": 1', f'"format": {version}'))


def test_a_checkpoint_of_a_newer_format_is_not_passed_over(tmp_path: Path) -> None:
    shutil.copytree(saved(tmp_path), tmp_path / "checkpoints" / "step-00000010")
    set_format(checkpoint_path(tmp_path, 20), 2)
    with pytest.raises(
        CheckpointError, match="is of format 2, and this version reads format 1: update minitransformer"
    ):
        resumed(tmp_path)


def test_a_checkpoint_of_another_model_among_others_is_passed_over_and_named(tmp_path: Path, logged: list[str]) -> None:
    shutil.copytree(saved(tmp_path), tmp_path / "checkpoints" / "step-00000010")
    foreign = Transformer(dataclasses.replace(TINY, d_ff=3), seed=1)
    save_checkpoint(tmp_path, Snapshot.of(foreign, Adam(foreign.parameters), STATE), keep=5)
    state = resumed(tmp_path)
    assert state == STATE
    assert logged == [
        f"warning: checkpoint step-00000020 does not fit: {checkpoint_path(tmp_path, 20)}: is of another model:"
        " d_ff 3 there, 2 here",
        "using the newest complete checkpoint, step-00000010; the updates after it are done again",
    ]


def test_where_all_checkpoints_are_of_another_model_or_corrupt_a_run_does_not_begin_anew(tmp_path: Path) -> None:
    foreign = Transformer(dataclasses.replace(TINY, d_ff=3), seed=1)
    save_checkpoint(tmp_path, Snapshot.of(foreign, Adam(foreign.parameters), STATE), keep=5)
    with pytest.raises(CheckpointError, match="is complete and fits .*is of another model: d_ff 3 there, 2 here"):
        resumed(tmp_path)
    (saved(tmp_path) / "optimizer.safetensors").write_bytes(b"")
    remedy = r"none of its checkpoints is complete and fits \(the newest: .*optimizer.*backup, or set run to another"
    with pytest.raises(CheckpointError, match=remedy):
        resumed(tmp_path)


def test_names_that_lead_elsewhere_are_never_opened(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (tmp_path / "secret").write_text("{}")
    listed = (path / "checksums.json").read_text().replace('"model.json"', '"../../secret"')
    (path / "checksums.json").write_text(listed)
    with pytest.raises(CorruptFileError, match=r"does not list model\.json"):
        load_checkpoint(path, *model_and_adam())


def test_every_byte_of_a_model_is_checked_on_loading(tmp_path: Path) -> None:
    Transformer(TINY, seed=1).save(tmp_path)
    assert has_checksums(tmp_path)
    content = bytearray(whole := (tmp_path / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"model\.safetensors: has changed since it was written"):
        Transformer.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content + b"x")
    with pytest.raises(CorruptFileError, match=r"model\.safetensors: expected \d+ bytes, found"):
        Transformer.load(tmp_path)
    (tmp_path / "checksums.json").unlink()
    (tmp_path / "model.safetensors").write_bytes(whole)
    assert np.array_equal(Transformer.load(tmp_path).parameters.values, Transformer(TINY, seed=1).parameters.values)


LIES = "describes a model of at least .* do not belong together"
OTHER_TYPE = r"model\.json: not the configuration of a model: model\.{} must be"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("n_layers", 999, LIES), ("n_decoder_layers", 999, LIES), ("d_model", 10**6, LIES), ("d_ff", 10**6, LIES),
        ("n_heads", 10**6, LIES), ("vocabulary_size", 2 * 10**9, LIES),
        *((field, value, OTHER_TYPE.format(field)) for field, value in [
            ("n_layers", 1.5), ("n_layers", True), ("n_decoder_layers", 0), ("p_drop", None), ("tied", 3),
            ("d_model", 2**31), ("attention_bias", 1), ("layer_norm_eps", float("inf")), ("vocabulary_size", -1),
            ("source_vocabulary_size", 0),
        ]),
    ],
)  # fmt: skip
def test_a_lying_configuration_is_refused_early(tmp_path: Path, field: str, value: object, message: str) -> None:
    Transformer(TINY, seed=1).save(tmp_path)
    (tmp_path / "checksums.json").unlink()
    config = json.loads((tmp_path / "model.json").read_text()) | {field: value}
    (tmp_path / "model.json").write_text(json.dumps(config))
    with pytest.raises(CorruptFileError, match=message):
        Transformer.load(tmp_path)
