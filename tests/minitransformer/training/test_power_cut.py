"""The power is cut at any moment of saving: the disk then always has a complete checkpoint, old or new."""

import dataclasses
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from power_cut import Recording, record, write_tree

from autograd.optim import Adam
from minitransformer.config import ModelConfig
from minitransformer.config.run import METRICS_FILE
from minitransformer.model.files import load_model_files, save_model_files
from minitransformer.model.transformer import Transformer
from minitransformer.system import files
from minitransformer.system.files import CheckpointError, sync
from minitransformer.training import checkpoint as checkpoint_module
from minitransformer.training.checkpoint import (
    Snapshot,
    checkpoints,
    load_checkpoint,
    load_newest_checkpoint,
    save_checkpoint,
)
from minitransformer.training.state import TrainingState

TINY = ModelConfig(vocabulary_size=5, n_layers=1, d_model=2, d_ff=2, n_heads=1, d_k=1, d_v=1)


def save(run: Path, step: int, value: float) -> None:
    model = Transformer(TINY, seed=None)
    adam = Adam(model.parameters)
    for array in (model.parameters.values, adam.m, adam.v):
        array[...] = value
    save_checkpoint(run, Snapshot.of(model, adam, TrainingState(step=step)), keep=1)


def resumed(run: Path) -> tuple[int, float] | None:
    """Step and value of the checkpoint that a run in this directory goes on from; all that bear a name are whole."""
    model = Transformer(TINY, seed=None)
    adam = Adam(model.parameters)
    for path in checkpoints(run):
        load_checkpoint(path, model, adam)
    state = load_newest_checkpoint(run, model, adam, keep=1)
    if state is None:
        return None
    values = {float(v) for _, p in model.named_parameters() for v in p.value.ravel()}
    moments = {
        float(v) for _, p in model.named_parameters() for flat in (adam.m, adam.v) for v in p.view_of(flat).ravel()
    }
    assert values == moments
    assert len(values) == 1
    return state.step, values.pop()


def check_every_cut(
    recording: Recording, scratch: Path, check: Callable[[Path], object], allowed: set[object], at_the_end: object
) -> int:
    """``check`` of every state that a cut may leave; what it was in the end must hold when all is done."""
    seen = set()
    for n in range(recording.n_before, len(recording.operations) + 1):
        for tree in recording.trees_after_cut(n):
            complete = n == len(recording.operations)
            key = (complete, tuple(sorted(tree.items())))
            if key in seen:
                continue
            seen.add(key)
            write_tree(tree, scratch / "cut")
            assert check(scratch / "cut") in ({at_the_end} if complete else allowed), (n, sorted(tree))
            shutil.rmtree(scratch / "cut")
    return len(seen)


SCENES = {  # what is there before, what is saved, and what may be found
    "the first": ([], (10, 1.0), {None, (10, 1.0)}),
    "a second, which replaces the first": ([(10, 1.0)], (20, 2.0), {(10, 1.0), (20, 2.0)}),
    "one of a step that has one": ([(10, 1.0)], (10, 2.0), {(10, 1.0), (10, 2.0)}),
}


def n_states_of(scene: str, folder: Path) -> int:
    """Save as in the scene, and check every cut; how many states there were."""
    before, new, allowed = SCENES[scene]
    run = folder / "run"
    run.mkdir(parents=True)
    for old in before:
        save(run, *old)
    return check_every_cut(record(run, lambda: save(run, *new)), folder, resumed, allowed, at_the_end=new)


def n_states_of_log(checkpoint_before: bool, folder: Path) -> int:
    """Write the first line of the log and save, and check every cut; how many states there were."""
    run = folder / "run"
    run.mkdir(parents=True)
    if checkpoint_before:
        save(run, 10, 1.0)

    def log_and_save() -> None:
        (run / METRICS_FILE).write_text("the line of update 20\n")
        save(run, 20, 2.0)

    def has_its_line(cut: Path) -> bool:
        log = cut / METRICS_FILE
        return resumed(cut) != (20, 2.0) or (log.exists() and log.read_text() == "the line of update 20\n")

    return check_every_cut(record(run, log_and_save), folder, has_its_line, {True}, at_the_end=True)


SYNCS = {  # by the function that asks for one, and whether of a directory
    ("make_directory", True), ("atomic_write", False), ("atomic_write", True), ("save_checkpoint", False),
    ("save_checkpoint", True), ("_replace", True), ("_remove", True),
}  # fmt: skip


def check_with_syncs(is_kept: Callable[[tuple[str, bool]], bool], folder: Path) -> list[int]:
    """Check every cut of every scene, while some syncs do nothing; return how many states each scene had."""

    def sync_if_kept(path: Path) -> None:
        if is_kept((sys._getframe(1).f_code.co_name, path.is_dir())):
            sync(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sync", sync_if_kept)
        patch.setattr(checkpoint_module, "sync", sync_if_kept)
        first, second, again = SCENES
        return [  # the shortest first
            n_states_of(first, folder / "first"),
            n_states_of_log(False, folder / "log"),
            n_states_of(second, folder / "second"),
            n_states_of_log(True, folder / "log after a checkpoint"),
            n_states_of(again, folder / "again"),
        ]


def test_whenever_the_power_is_cut_the_old_or_the_new_checkpoint_and_its_log_lines_are_complete(tmp_path: Path) -> None:
    """There are no other syncs than those of SYNCS."""
    seen = set()

    def see(sync: tuple[str, bool]) -> bool:
        seen.add(sync)
        return True

    assert min(check_with_syncs(see, tmp_path)) > 20
    assert seen == SYNCS


@pytest.mark.parametrize("left_out", sorted(SYNCS))
def test_without_any_one_sync_a_cut_is_found_to_lose_something(left_out: tuple[str, bool], tmp_path: Path) -> None:
    with pytest.raises((AssertionError, CheckpointError)):
        check_with_syncs(lambda sync: sync != left_out, tmp_path)


def weights_of(run: Path) -> float:
    _, weights = load_model_files(run / "best")
    return float(weights["a"][0])


def test_whenever_the_power_is_cut_the_best_model_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    def save_best(value: float) -> None:
        save_model_files(tmp_path / "run" / "best", TINY, {"a": np.full(100, value, np.float32)})

    save_best(1.0)
    recording = record(tmp_path / "run", lambda: save_best(2.0))
    assert check_every_cut(recording, tmp_path, weights_of, {1.0, 2.0}, at_the_end=2.0) > 10


def test_a_corrupt_checkpoint_is_passed_over_and_named(tmp_path: Path, logged: list[str]) -> None:
    for step in (10, 20, 30):
        model = Transformer(TINY, seed=step)
        save_checkpoint(tmp_path, Snapshot.of(model, Adam(model.parameters), TrainingState(step)), keep=3)
    weights = tmp_path / "checkpoints" / "step-00000030" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    (tmp_path / "checkpoints" / "step-00000020" / "state.json").unlink()
    model = Transformer(TINY, seed=None)
    state = load_newest_checkpoint(tmp_path, model, Adam(model.parameters), keep=3)
    assert state == dataclasses.replace(TrainingState(), step=10)
    assert np.array_equal(model.parameters.values, Transformer(TINY, seed=10).parameters.values)
    assert [line.partition(": ")[0] for line in logged[:2]] == ["warning"] * 2
    assert "step-00000030/model.safetensors: has changed since it was written" in logged[0]
    assert "step-00000020/state.json: not found" in logged[1]
    assert logged[2] == "using the newest complete checkpoint, step-00000010; the updates after it are done again"
