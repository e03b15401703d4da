"""Checkpoints: complete or absent, restored bit for bit, checked byte by byte, and written while training goes on."""

import dataclasses
import json
import os
import re
import shutil
import stat
import threading
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from waiting import TIME_LIMIT

from autograd.optim import Adam
from minitransformer.config import ModelConfig
from minitransformer.model.files import save_model_files
from minitransformer.model.transformer import Transformer
from minitransformer.system.checksums import check_files, write_checksums
from minitransformer.system.files import CheckpointError, CorruptFileError
from minitransformer.training import checkpoint as checkpoint_module
from minitransformer.training.checkpoint import (
    CHECKPOINT_FILES,
    CheckpointWriter,
    Snapshot,
    average_weights,
    checkpoint_path,
    checkpoints,
    load_checkpoint,
    load_newest_checkpoint,
    save_checkpoint,
)
from minitransformer.training.state import TrainingState, read_state
from tests.support.training import FULL_DISK, corrupt, names_in

TINY = ModelConfig(vocabulary_size=9, n_layers=1, d_model=4, d_ff=6, n_heads=1, d_k=4, d_v=4)
FOREIGN = dataclasses.replace(TINY, d_ff=3, p_drop=0.0)
STATE = TrainingState(20, 3, 2, 7, ("loss", 1 / 3), 12.25, unlogged_loss=61.5, unlogged_tokens=30, unlogged_seconds=0.5)
FILES = ["checksums.json", "model.json", "model.safetensors", "optimizer.safetensors", "state.json"]


def model_and_adam(seed: int, config: ModelConfig = TINY) -> tuple[Transformer, Adam]:
    model = Transformer(config, seed=seed)
    adam, values = Adam(model.parameters), np.random.default_rng(seed)
    for _, parameter in model.named_parameters():
        parameter.view_of(adam.m)[...] = values.standard_normal(parameter.shape)
        parameter.view_of(adam.v)[...] = values.random(parameter.shape)
    return model, adam


def everything(model: Transformer, adam: Adam) -> list[bytes]:
    return [array.tobytes() for array in (model.parameters.values, adam.m, adam.v)]


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def saved(run: Path, step: int = 20, seed: int = 1, *, keep: int = 5, every: int = 1) -> Path:
    """As by a run that saves after so many updates, and at interruptions."""
    state = dataclasses.replace(STATE, step=step, between_intervals=step % every != 0)
    return save_checkpoint(run, Snapshot.of(*model_and_adam(seed), state), keep=keep)


def resumed(run: Path, keep: int = 5) -> TrainingState | None:
    return load_newest_checkpoint(run, *model_and_adam(2), keep=keep)


def test_a_checkpoint_restores_every_bit_and_is_a_model_with_its_state_in_plain_json(tmp_path: Path) -> None:
    there, here = model_and_adam(1), model_and_adam(2)
    path = save_checkpoint(tmp_path, Snapshot.of(*there, STATE), keep=5)
    assert load_checkpoint(path, *here) == STATE
    assert everything(*here) == everything(*there)
    assert path == tmp_path / "checkpoints" / "step-00000020" == checkpoint_path(tmp_path, 20)
    assert list(contents(path)) == FILES
    assert np.array_equal(Transformer.load(path).parameters.values, there[0].parameters.values)
    state = json.loads((path / "state.json").read_text())
    assert state == dataclasses.asdict(STATE) | {"avoided": [], "best": ["loss", 1 / 3]}


def test_who_may_read_one_file_of_a_checkpoint_may_read_all(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = saved(tmp_path)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o640}


def test_the_last_ones_are_kept_and_those_of_interruptions_do_not_outlive_the_next_one(tmp_path: Path) -> None:
    assert checkpoints(tmp_path) == []
    for step in (10, 20, 23, 30, 990, 1_000, 1_001, 1_001):
        saved(tmp_path, step, keep=3, every=10)
    assert [path.name for path in checkpoints(tmp_path)] == names_in(tmp_path / "checkpoints")
    assert names_in(tmp_path / "checkpoints") == ["step-00000990", "step-00001000", "step-00001001"]


def test_resuming_removes_what_a_killed_process_had_to_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "_remove_superseded", lambda *arguments: None)
        for step in (10, 20, 23, 30):
            saved(tmp_path, step, every=10)
    (tmp_path / "checkpoints" / ".step-00000004.4711.removed").mkdir()
    assert resumed(tmp_path, keep=2)
    assert names_in(tmp_path / "checkpoints") == ["step-00000020", "step-00000030"]


def test_what_another_process_has_removed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, path = saved(tmp_path, 10), saved(tmp_path, 20)
    shutil.rmtree(gone)
    monkeypatch.setattr(checkpoint_module, "checkpoints", lambda run: [gone, path])
    assert resumed(tmp_path, keep=1)
    assert names_in(tmp_path / "checkpoints") == ["step-00000020"]


@pytest.mark.parametrize("n_syncs", [*range(11), None])
def test_a_full_disk_harms_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_syncs: int | None) -> None:
    """At any fsync, or at the last rename; a new checkpoint, and one in the place of another."""
    saved(tmp_path, step=10)
    before = contents(tmp_path)
    owner, name = (os, "fsync") if n_syncs is not None else (Path, "rename")
    for step in (20, 10):
        with monkeypatch.context() as patch:
            refusing = chain([DEFAULT] * (n_syncs or 0), repeat(FULL_DISK))
            patch.setattr(owner, name, Mock(wraps=getattr(owner, name), side_effect=refusing))
            with pytest.raises(CheckpointError, match=rf"step-0*{step}.*cannot be written .*No space left.*free some"):
                saved(tmp_path, step, seed=2)
        assert contents(tmp_path) == before
        assert names_in(tmp_path / "checkpoints") == ["step-00000010"]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def writing(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


STATE_WITH = json.dumps(dataclasses.asdict(STATE)).replace
NO_STATE, COUNTED = "expected an object with step, epoch, .*; missing or unknown: ", "must be at least 0 and less than"
STATES = {
    STATE_WITH('"next_batch": ', '"nextbatch": '): NO_STATE + r"\['next_batch', 'nextbatch'\]",
    STATE_WITH('"step": 20', '"step": -1'): f"step {COUNTED} 9,223,372,036,854,775,808; got -1",
    STATE_WITH("12.25", "NaN"): f"seconds {COUNTED} inf; got nan",
    STATE_WITH('"epoch": 3', f'"epoch": {2**70}'): f"epoch {COUNTED} .*; got {2**70}",
    STATE_WITH('"flops": 0', f'"flops": {2**127}'): f"flops {COUNTED} .*; got {2**127}",
    STATE_WITH('"avoided": []', '"avoided": [[1, 0, -2]]'): f"avoided {COUNTED} .*; got -2",
}
ANOTHER = "the checkpoint is corrupt or of another version: use another one"
NOTED_CORRUPTIONS = [  # as if written so: what the checksums cannot tell
    ("model.safetensors", truncate, "truncated or corrupt: use another checkpoint"),
    ("optimizer.safetensors", truncate, "truncated or corrupt: use another checkpoint"),
    ("model.json", truncate, "corrupt or of another kind"),
    ("state.json", truncate, "corrupt or of another kind"),
    *(("state.json", writing(content), f"{message}.*; {ANOTHER}") for content, message in STATES.items()),
    *(("model.json", writing(content), "not the configuration") for content in ("[]", '{"layers": 2}', '{"d_ff": 0}')),
]


def require_refused(path: Path, file: str, message: str) -> None:
    """Require that a checkpoint is refused with the name of a file, and that nothing is changed by it."""
    here = model_and_adam(2)
    with pytest.raises(CheckpointError, match=f"{re.escape(str(path / file))}.*{message}"):
        load_checkpoint(path, *here)
    assert everything(*here) == everything(*model_and_adam(2))


@pytest.mark.parametrize(("name", "damage", "message"), NOTED_CORRUPTIONS)
def test_what_checksums_miss_is_refused(
    tmp_path: Path, name: str, damage: Callable[[Path], object], message: str
) -> None:
    path = saved(tmp_path)
    damage(path / name)
    write_checksums(path, CHECKPOINT_FILES)
    require_refused(path, name, message)


@pytest.mark.parametrize("name", [*CHECKPOINT_FILES, "checksums.json"])
def test_a_flipped_bit_a_truncation_and_a_missing_file_are_refused_by_name(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path)
    content = (path / name).read_bytes()
    for offset in range(0, len(content), 2 if name == "checksums.json" else 101):
        flipped = bytearray(content)
        flipped[offset] ^= 1 << offset // 2 % 8
        for damaged in (flipped, content[:offset]):
            (path / name).write_bytes(damaged)
            with pytest.raises(CheckpointError):
                check_files(path, CHECKPOINT_FILES)
    changed, missing = "has changed since it was written", r"not found, though checksums\.json lists it"
    if name == "checksums.json":
        changed, missing = "corrupt", "not found; is .*step-00000020 the right directory"
    (path / name).write_bytes(flipped)
    require_refused(path, name, changed)
    (path / name).unlink()
    require_refused(path, name, missing)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_arrays_that_do_not_fit_are_refused_by_name_and_change_nothing(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path)
    arrays = load_file(path / name)
    key = next(key for key in arrays if "embedding" in key)
    without = {other: array for other, array in arrays.items() if other != key}
    for changed, named in (
        (without, key),
        (arrays | {"unknown": arrays[key]}, "unknown"),
        (arrays | {key: np.zeros((9, 5), np.float32)}, key),
    ):
        save_file(changed, path / name)
        write_checksums(path, CHECKPOINT_FILES)
        require_refused(path, "", re.escape(named))


def test_the_average_is_the_mean_of_every_weight(tmp_path: Path) -> None:
    seeds = range(1, 4)
    mean = average_weights([saved(tmp_path, step, seed=step) for step in seeds])
    models = [dict(model_and_adam(seed)[0].named_parameters()) for seed in seeds]
    assert mean.keys() == models[0].keys()
    for name, value in mean.items():
        expected = np.mean([model[name].value.astype(np.float64) for model in models], axis=0)
        assert np.array_equal(value, expected.astype(np.float32))
        assert value.dtype == np.float32


def test_nothing_and_corrupt_unfit_and_infinite_weights_are_not_averaged(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there are no checkpoints to average"):
        average_weights([])
    arrays = {"gain": np.ones(2, np.float32)}
    for name in ("one", "damaged"):
        save_model_files(tmp_path / name, TINY, arrays)
    corrupt(tmp_path / "damaged" / "model.safetensors")
    for read in (Transformer.load, lambda path: average_weights([tmp_path / "one", path])):
        with pytest.raises(CorruptFileError, match=r"damaged/model\.safetensors: has changed since it was written"):
            read(tmp_path / "damaged")
    unfit = "is of a model of another shape than .*one; they cannot be averaged"
    infinite = "gain has numbers that are not finite; leave this checkpoint out"
    for other, message in (
        ({"gain": np.ones((2, 1), np.float32)}, unfit),
        ({"bias": arrays["gain"]}, unfit),
        ({"gain": arrays["gain"] * np.nan}, infinite),
        ({"gain": arrays["gain"] * np.inf}, infinite),
    ):
        save_model_files(tmp_path / "other", TINY, other)
        with pytest.raises(CheckpointError, match=f"other: {message}"):
            average_weights([tmp_path / "one", tmp_path / "other"])


@pytest.mark.parametrize("field", ["earlier_updates", "group"])
def test_the_state_of_a_checkpoint_from_before_there_was_a_field_is_read(tmp_path: Path, field: str) -> None:
    path = saved(tmp_path) / "state.json"
    state = json.loads(path.read_text())
    del state[field]
    path.write_text(json.dumps(state))
    assert read_state(path) == dataclasses.replace(STATE, **{field: 0})


def test_a_link_under_the_name_of_an_unfinished_checkpoint_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "elsewhere").mkdir()
    path = checkpoint_path(tmp_path, 20)
    path.with_name(f".{path.name}.{os.getpid()}.tmp").symlink_to(tmp_path / "elsewhere")
    saved(tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_checkpoint_of_a_newer_format_is_not_passed_over(tmp_path: Path) -> None:
    saved(tmp_path, 10)
    checksums = saved(tmp_path) / "checksums.json"
    checksums.write_text(checksums.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(CheckpointError, match="is of format 2, and this version reads format 1: update "):
        resumed(tmp_path)


def test_corrupt_checkpoints_and_those_of_another_model_are_passed_over(tmp_path: Path, logged: list[str]) -> None:
    shutil.copytree(saved(tmp_path), tmp_path / "checkpoints" / "step-00000010")
    save_checkpoint(tmp_path, Snapshot.of(*model_and_adam(1, FOREIGN), STATE), keep=5)
    corrupt(saved(tmp_path, step=30) / "model.safetensors")
    (saved(tmp_path, step=40) / "state.json").unlink()
    here = model_and_adam(2)
    assert load_newest_checkpoint(tmp_path, *here, keep=5) == STATE
    assert everything(*here) == everything(*model_and_adam(1))
    expected = [
        r"warning: checkpoint step-00000040 is corrupt: .*/step-00000040/state\.json: not found",
        r"warning: checkpoint step-00000030 is corrupt: .*/step-00000030/model\.safetensors: has changed since it was",
        "warning: checkpoint step-00000020 does not fit: .*/step-00000020: is of another model: d_ff 3 there, 6 here",
        "using the newest complete checkpoint, step-00000010; the updates after it are done again",
    ]
    assert [pattern for pattern, line in zip(expected, logged, strict=True) if not re.match(pattern, line)] == []


def test_where_all_checkpoints_are_of_another_model_or_corrupt_a_run_does_not_begin_anew(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, Snapshot.of(*model_and_adam(1, FOREIGN), STATE), keep=5)
    require_refused(checkpoints(tmp_path)[0], "", "of another model: d_ff 3 there, 6 here; p_drop 0.0 there, 0.1 here")
    with pytest.raises(CheckpointError, match="is complete and fits .*is of another model: d_ff 3 there"):
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
        load_checkpoint(path, *model_and_adam(2))


LIES = "describes a model of at least .* do not belong together"
OTHER_TYPE = r"model\.json: not the configuration of a model: model\.{} must be"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("n_layers", 999, LIES), ("n_decoder_layers", 999, LIES), ("d_model", 10**6, LIES), ("d_ff", 10**6, LIES),
        ("n_heads", 10**6, LIES), ("vocabulary_size", 2 * 10**9, LIES),
        *((field, value, OTHER_TYPE.format(field)) for field, value in [
            ("n_layers", True), ("p_drop", None), ("tied", 3), ("d_model", 2**31), ("layer_norm_eps", float("inf")),
            ("vocabulary_size", -1), ("source_vocabulary_size", 0),
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


def test_no_update_changes_a_save_that_is_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, model = threading.Event(), Transformer(TINY, seed=1)

    def held_back(*arguments: Any, **keywords: Any) -> Path:
        assert go_on.wait(TIME_LIMIT)
        return save_checkpoint(*arguments, **keywords)

    monkeypatch.setattr(checkpoint_module, "save_checkpoint", held_back)
    writer, values, places = CheckpointWriter(tmp_path, keep=9), {}, []
    for step in range(1, 6):
        values[step] = model.parameters.values.copy()
        writer.save(Snapshot.of(model, Adam(model.parameters), TrainingState(step)))
        model.parameters.values *= 1.5  # the next update; after the first save, before a byte is written
        copies = writer._weights | writer._moments
        places.append({name: array.ctypes.data for name, array in copies.items()})
        if step == 1:
            assert checkpoints(tmp_path) == []
            go_on.set()
    writer.wait()
    assert writer.failure() is None
    for step, expected in values.items():
        assert np.array_equal(Transformer.load(checkpoint_path(tmp_path, step)).parameters.values, expected)
    assert all(place == places[0] for place in places)
    assert sum(array.nbytes for array in copies.values()) == 12 * model.n_parameters


def test_a_failure_is_reported_also_one_right_after_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[Exception | None] = []
    watched = property(lambda writer: failures.pop(0), lambda writer, error: failures.clear())
    monkeypatch.setattr(CheckpointWriter, "_failure", watched, raising=False)
    writer = CheckpointWriter(Path(), keep=2)
    failures += [None, CheckpointError("step-00000001: cannot be written")]
    assert writer.failure() is None
    assert isinstance(writer.failure(), CheckpointError)
    failures += [ZeroDivisionError()]
    with pytest.raises(ZeroDivisionError):
        writer.failure()
