"""The power is cut at any moment of saving: the disk then always has a complete checkpoint, old or new.

Recorded file operations are replayed with and without what was not synced.  The model is stricter than any journaling
file system.  A file's content is certain from its fsync on; before, it may be missing in part or whole.  A name (made,
renamed or removed) is certain from the fsync of its directory on; before, any of the changes may be lost while later
ones are kept.
"""

import itertools
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autograd.optim import Adam
from minitransformer.config import ModelConfig
from minitransformer.config.run import METRICS_FILE
from minitransformer.model.files import load_model_files, save_model_files
from minitransformer.model.transformer import Transformer
from minitransformer.system import files
from minitransformer.system.files import CheckpointError, sync
from minitransformer.training import checkpoint
from minitransformer.training.state import TrainingState

Tree = dict[str, bytes | None]  # relative paths: the content of a file, None for a directory
HOOKED = ("fsync", "rename", "replace", "unlink", "remove", "rmdir", "mkdir")
ALL_SUBSETS_UP_TO, SUBSETS_OF_MORE = 6, 40


@dataclass(frozen=True)
class Change:
    """A name in a directory leads to another node now (None: to nothing); after a rename the old name to nothing."""

    place: tuple[int, str]
    node: int | None
    old: tuple[int, str] | None = None


@dataclass
class Recording:
    """Operations below ``root``, in order: changes of names, and nodes that are synced.

    A node is a file (its content) or a directory (None), whatever it is called.
    """

    root: Path
    operations: list[Change | int] = field(default_factory=list)
    nodes: list[bytes | None] = field(default_factory=lambda: [None])
    places: dict[str, int] = field(default_factory=lambda: {".": 0})

    def __post_init__(self) -> None:
        self.notice_new_files()
        self.operations += range(len(self.nodes))  # what was there before is on the disk
        self.n_before = len(self.operations)

    def notice_new_files(self) -> None:
        """Files appear without a call that is hooked (libraries write them); they are found before the next one."""
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if name not in self.places:
                self.places[name] = len(self.nodes)
                self.nodes.append(None)
                self.operations.append(Change(self._place(name), self.places[name]))
            if path.is_file():
                self.nodes[self.places[name]] = path.read_bytes()

    def _place(self, name: str) -> tuple[int, str]:
        return self.places[Path(name).parent.as_posix()], Path(name).name

    def note(self, function: str, before: str, after: str) -> None:
        """An operation that has been carried out, by the paths before and after it."""
        if function == "fsync":
            self.operations.append(self.places[before])
        elif function in ("rename", "replace"):
            self.operations.append(Change(self._place(after), self.places[before], self._place(before)))
            self.places = {
                (after + name[len(before) :] if (name + "/").startswith(before + "/") else name): number
                for name, number in self.places.items()
                if not (name + "/").startswith(after + "/")
            }
        elif function in ("unlink", "remove", "rmdir"):
            self.operations.append(Change(self._place(before), None))
            del self.places[before]

    def trees_after_cut(self, n_operations: int) -> Iterator[Tree]:
        """Every tree (of many changes at once: a sample) that the disk may hold after so many operations."""
        done = self.operations[:n_operations]
        last_sync = {operation: i for i, operation in enumerate(done) if isinstance(operation, int)}
        pending = [
            i for i, change in enumerate(done) if isinstance(change, Change) and last_sync.get(change.place[0], -1) < i
        ]
        for lost in _subsets(pending):
            for kept_share in (0.0, 0.5, 1.0):
                entries: dict[tuple[int, str], int] = {}
                for i, change in enumerate(done):
                    if isinstance(change, int) or i in lost:
                        continue
                    if change.old and entries.get(change.old) == change.node:
                        del entries[change.old]
                    if change.node is None:
                        entries.pop(change.place, None)
                    else:
                        entries[change.place] = change.node
                yield self._tree(entries, last_sync, kept_share)

    def _tree(self, entries: dict[tuple[int, str], int], synced: dict[Any, int], kept_share: float) -> Tree:
        tree: Tree = {}

        def walk(directory: int, prefix: str) -> None:
            for (parent, name), number in entries.items():
                if parent != directory:
                    continue
                content = self.nodes[number]
                if content is None:
                    walk(number, f"{prefix}{name}/")
                elif number not in synced:
                    content = content[: int(kept_share * len(content))]
                tree[prefix + name] = content

        walk(0, "")
        return tree


def _subsets(items: list[int]) -> Iterator[set[int]]:
    if len(items) <= ALL_SUBSETS_UP_TO:
        for n in range(len(items) + 1):
            yield from map(set, itertools.combinations(items, n))
        return
    draw = random.Random(len(items))
    yield set()
    yield set(items)
    yield from ({item} for item in items)
    yield from (set(items) - {item} for item in items)
    yield from ({item for item in items if draw.random() < 0.5} for _ in range(SUBSETS_OF_MORE))


def record(root: Path, action: Callable[[], object]) -> Recording:
    """Carry out ``action``; what its operations left must be what the recording says."""
    recording = Recording(root)
    with pytest.MonkeyPatch.context() as patch:
        for name in HOOKED:
            patch.setattr(os, name, _hooked(name, getattr(os, name), recording))
        action()
    recording.notice_new_files()
    real = {p.relative_to(root).as_posix(): p.read_bytes() if p.is_file() else None for p in root.rglob("*")}
    assert {name: recording.nodes[n] for name, n in recording.places.items() if n} == real
    return recording


def _hooked(name: str, function: Callable[..., Any], recording: Recording) -> Callable[..., Any]:
    def hooked(first: Any, *others: Any, **keywords: Any) -> Any:
        descriptor = keywords.get("dir_fd")
        folder = Path.cwd() if descriptor is None else Path(f"/proc/self/fd/{descriptor}").readlink()
        before = Path(f"/proc/self/fd/{first}").readlink() if name == "fsync" else folder / first
        after = others[0] if name in ("rename", "replace") else before
        if not before.is_relative_to(recording.root):
            return function(first, *others, **keywords)
        recording.notice_new_files()
        result = function(first, *others, **keywords)
        names = [Path(path).relative_to(recording.root).as_posix() for path in (before, after)]
        recording.note(name, *names)
        return result

    return hooked


TINY = ModelConfig(vocabulary_size=5, n_layers=1, d_model=2, d_ff=2, n_heads=1, d_k=1, d_v=1)


def save(run: Path, step: int, value: float) -> None:
    model = Transformer(TINY, seed=None)
    adam = Adam(model.parameters)
    for array in (model.parameters.values, adam.m, adam.v):
        array[...] = value
    checkpoint.save_checkpoint(run, checkpoint.Snapshot.of(model, adam, TrainingState(step=step)), keep=1)


def resumed(run: Path) -> tuple[int, float] | None:
    """Step and value of the checkpoint that a run in this directory goes on from; all that bear a name are whole."""
    model = Transformer(TINY, seed=None)
    adam = Adam(model.parameters)
    for path in checkpoint.checkpoints(run):
        checkpoint.load_checkpoint(path, model, adam)
    state = checkpoint.load_newest_checkpoint(run, model, adam, keep=1)
    if state is None:
        return None
    flat = (model.parameters.values, adam.m, adam.v)
    values = {float(v) for _, p in model.named_parameters() for array in flat for v in p.view_of(array).ravel()}
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
            (root := scratch / "cut").mkdir()
            for name, content in sorted(tree.items()):
                if content is None:
                    (root / name).mkdir()
                else:
                    (root / name).write_bytes(content)
            assert check(root) in ({at_the_end} if complete else allowed), (n, sorted(tree))
            shutil.rmtree(root)
    return len(seen)


def n_states_of(scene: str, folder: Path) -> int:
    """Save as in the scene, and check every cut; how many states there were."""
    before, new = SCENES[scene]
    run, line = folder / "run", "the line of the update\n"
    run.mkdir(parents=True)
    if before:
        save(run, *before)

    def log_and_save() -> None:
        if scene in LOGGED:
            (run / METRICS_FILE).write_text(line)
        save(run, *new)

    def resumed_with_its_line(cut: Path) -> tuple[int, float] | None:
        log = cut / METRICS_FILE
        if (found := resumed(cut)) == new and scene in LOGGED:
            assert log.exists()
            assert log.read_text() == line
        return found

    return check_every_cut(record(run, log_and_save), folder, resumed_with_its_line, {before, new}, at_the_end=new)


SCENES: dict[str, tuple[tuple[int, float] | None, tuple[int, float]]] = {  # before, and saved
    "the first": (None, (10, 1.0)),
    "the first, and the log": (None, (10, 1.0)),
    "a second instead, and the log": ((10, 1.0), (20, 2.0)),
    "one of a step that has one": ((10, 1.0), (10, 2.0)),
}
LOGGED = [scene for scene in SCENES if "log" in scene]
SYNCS = {  # by the function that asks for one, and whether of a directory; the shortest scene that needs it
    ("make_directory", True): "the first",
    ("atomic_write", False): "the first",
    ("atomic_write", True): "the first",
    ("save_checkpoint", False): "the first, and the log",
    ("save_checkpoint", True): "a second instead, and the log",
    ("_replace", True): "one of a step that has one",
    ("_remove", True): "one of a step that has one",
}


def check_with_syncs(is_kept: Callable[[tuple[str, bool]], bool], scenes: Iterable[str], folder: Path) -> list[int]:
    """Check every cut of the scenes, while some syncs do nothing; return how many states each scene had."""

    def sync_if_kept(path: Path) -> None:
        if is_kept((sys._getframe(1).f_code.co_name, path.is_dir())):
            sync(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sync", sync_if_kept)
        patch.setattr(checkpoint, "sync", sync_if_kept)
        return [n_states_of(scene, folder / scene) for scene in scenes]


@pytest.mark.slow
def test_whenever_the_power_is_cut_the_old_or_the_new_checkpoint_and_its_log_lines_are_complete(tmp_path: Path) -> None:
    """There are no other syncs than those of SYNCS."""
    seen = set()
    assert min(check_with_syncs(lambda sync: seen.add(sync) is None, SCENES, tmp_path)) > 20
    assert seen == SYNCS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("left_out", SYNCS)
def test_without_any_one_sync_a_cut_is_found_to_lose_something(left_out: tuple[str, bool], tmp_path: Path) -> None:
    with pytest.raises((AssertionError, CheckpointError)):
        check_with_syncs(lambda sync: sync != left_out, [SYNCS[left_out]], tmp_path)


def test_whenever_the_power_is_cut_the_best_model_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    def save_best(value: float) -> None:
        save_model_files(tmp_path / "run" / "best", TINY, {"a": np.full(100, value, np.float32)})

    def found(run: Path) -> float:
        return float(load_model_files(run / "best")[1]["a"][0])

    save_best(1.0)
    recording = record(tmp_path / "run", lambda: save_best(2.0))
    assert check_every_cut(recording, tmp_path, found, {1.0, 2.0}, at_the_end=2.0) > 10
