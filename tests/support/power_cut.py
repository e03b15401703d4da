"""What a disk can hold after a power cut: recorded file operations, replayed with and without what was not synced.

The model is stricter than any journaling file system.  A file's content is certain from its fsync on; before, it may be
missing in part or whole.  A name (made, renamed or removed) is certain from the fsync of its directory on; before, any
of the changes may be lost while later ones are kept.
"""

import itertools
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Tree = dict[str, bytes | None]  # relative paths: the content of a file, None for a directory
HOOKED = ("fsync", "rename", "replace", "unlink", "remove", "rmdir", "mkdir")
ALL_SUBSETS_UP_TO, SUBSETS_OF_MORE = 6, 40


@dataclass
class Node:
    """A file or a directory, whatever it is called."""

    is_directory: bool
    content: bytes = b""
    number: int = 0


@dataclass(frozen=True)
class Change:
    """A name in a directory leads to another node now (None: to nothing); after a rename the old name to nothing."""

    directory: int
    name: str
    node: int | None
    old: tuple[int, str] | None = None


@dataclass
class Recording:
    """Operations below ``root``, in order: changes of names, and nodes that are synced."""

    root: Path
    operations: list[Change | int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes.append(Node(True))
        self.places["."] = 0
        self.notice_new_files()
        self.operations += range(len(self.nodes))  # what was there before is on the disk
        self.n_before = len(self.operations)

    def notice_new_files(self) -> None:
        """Files appear without a call that is hooked (libraries write them); they are found before the next one."""
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if name not in self.places:
                self._add(name, path)
            if path.is_file():
                self.nodes[self.places[name]].content = path.read_bytes()

    def _add(self, name: str, path: Path) -> None:
        self.nodes.append(Node(path.is_dir(), number=len(self.nodes)))
        self.places[name] = len(self.nodes) - 1
        self.operations.append(Change(self._parent(name), path.name, self.places[name]))

    def _parent(self, name: str) -> int:
        return self.places[Path(name).parent.as_posix()]

    def note(self, function: str, before: str, after: str | None) -> None:
        """An operation that has been carried out, by the paths before and after it."""
        if function == "fsync":
            self.operations.append(self.places[before])
        elif function in ("rename", "replace"):
            assert after is not None
            node = self.places[before]
            old = (self._parent(before), Path(before).name)
            self.operations.append(Change(self._parent(after), Path(after).name, node, old))
            self.places = {
                (after + name[len(before) :] if (name + "/").startswith(before + "/") else name): number
                for name, number in self.places.items()
                if not (name + "/").startswith(after + "/")
            }
        elif function in ("unlink", "remove", "rmdir"):
            self.operations.append(Change(self._parent(before), Path(before).name, None))
            del self.places[before]

    def tree_now(self) -> Tree:
        """What the recording says that the directory holds."""
        return {
            name: None if self.nodes[n].is_directory else self.nodes[n].content for name, n in self.places.items() if n
        }

    def trees_after_cut(self, n_operations: int) -> Iterator[Tree]:
        """Every tree (of many changes at once: a sample) that the disk may hold after so many operations."""
        done = self.operations[:n_operations]
        last_sync = {operation: i for i, operation in enumerate(done) if isinstance(operation, int)}
        pending = [
            i for i, change in enumerate(done) if isinstance(change, Change) and last_sync.get(change.directory, -1) < i
        ]
        for lost in _subsets(pending):
            for kept_share in (0.0, 0.5, 1.0):
                entries: dict[int, dict[str, int]] = {}
                for i, change in enumerate(done):
                    if isinstance(change, Change) and i not in lost:
                        _apply(change, entries)
                yield self._tree(entries, last_sync, kept_share)

    def _tree(self, entries: dict[int, dict[str, int]], synced: dict[Any, int], kept_share: float) -> Tree:
        tree: Tree = {}

        def walk(directory: int, prefix: str) -> None:
            for name, number in entries.get(directory, {}).items():
                node = self.nodes[number]
                content = node.content if number in synced else node.content[: int(kept_share * len(node.content))]
                tree[prefix + name] = None if node.is_directory else content
                if node.is_directory:
                    walk(number, f"{prefix}{name}/")

        walk(0, "")
        return tree


def _apply(change: Change, entries: dict[int, dict[str, int]]) -> None:
    if change.old:
        names = entries.setdefault(change.old[0], {})
        if names.get(change.old[1]) == change.node:
            del names[change.old[1]]
    names = entries.setdefault(change.directory, {})
    if change.node is None:
        names.pop(change.name, None)
    else:
        names[change.name] = change.node


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
    assert recording.tree_now() == real
    return recording


def _hooked(name: str, function: Callable[..., Any], recording: Recording) -> Callable[..., Any]:
    def hooked(first: Any, *others: Any, dir_fd: int | None = None, **keywords: Any) -> Any:
        place = f"/proc/self/fd/{first}" if name == "fsync" else os.fspath(first)
        folder = Path(f"/proc/self/fd/{dir_fd}").readlink() if dir_fd is not None else Path.cwd()
        before = Path(place).readlink() if name == "fsync" else folder / place
        after = others[0] if name in ("rename", "replace") else before
        if not before.is_relative_to(recording.root):
            return function(first, *others, **keywords, **({} if dir_fd is None else {"dir_fd": dir_fd}))
        recording.notice_new_files()
        result = function(first, *others, **keywords, **({} if dir_fd is None else {"dir_fd": dir_fd}))
        names = [Path(path).relative_to(recording.root).as_posix() for path in (before, after)]
        recording.note(name, *names)
        return result

    return hooked


def write_tree(tree: Tree, root: Path) -> None:
    """Put a tree into an empty directory."""
    root.mkdir()
    for name, content in sorted(tree.items()):
        if content is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)
