"""Token ids on disk, memory-mapped: a corpus may be larger than memory.

A split is a row of shards, each three NumPy files: the source tokens of all its pairs in one flat array, the target
tokens likewise, and the two lengths of every pair.  Only lengths and offsets are held in memory: 32 bytes a pair.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.files import CheckpointError, written_whole
from minitransformer.model.batch import Ids

PAIRS_PER_SHARD = 500_000
_SIDES = ("source", "target")

IdPair = tuple[Ids, Ids]


def write_store(directory: Path, split: str, pairs: Iterable[IdPair], vocabulary_size: int) -> int:
    """Write the shards of a split from pairs of id sequences; return the number of pairs."""
    dtype = np.uint16 if vocabulary_size <= 2**16 else np.uint32
    held: list[IdPair] = []
    n_pairs = n_shards = 0
    for pair in pairs:
        held.append(pair)
        if len(held) == PAIRS_PER_SHARD:
            _write_shard(directory, split, n_shards, held, dtype)
            n_pairs, n_shards, held = n_pairs + len(held), n_shards + 1, []
    _write_shard(directory, split, n_shards, held, dtype)
    return n_pairs + len(held)


def _write_shard(directory: Path, split: str, number: int, pairs: list[IdPair], dtype: Any) -> None:
    lengths = np.array([(len(source), len(target)) for source, target in pairs], np.int32).reshape(-1, 2)
    _write_array(_shard_path(directory, split, number, "lengths"), lengths)
    for side, name in enumerate(_SIDES):
        flat = np.fromiter((i for pair in pairs for i in pair[side]), dtype, int(lengths[:, side].sum()))
        _write_array(_shard_path(directory, split, number, name), flat)


def _write_array(path: Path, array: np.ndarray[Any, Any]) -> None:
    with written_whole(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, array, allow_pickle=False)


def _shard_path(directory: Path, split: str, number: int, part: str) -> Path:
    return directory / f"{split}-{number:05d}.{part}.npy"


class TokenStore:
    """A split that ``write_store`` wrote: pairs of id sequences by index.

    Shapes: ``lengths`` (n, 2) int64: source and target tokens of each pair, without start and end symbols.
    """

    def __init__(self, directory: Path, split: str) -> None:
        self._shards: list[tuple[np.ndarray[Any, Any], ...]] = []
        lengths: list[np.ndarray[Any, Any]] = []
        while _shard_path(directory, split, len(lengths), "lengths").exists():
            number = len(lengths)
            lengths.append(_open(_shard_path(directory, split, number, "lengths")))
            tokens = tuple(_open(_shard_path(directory, split, number, side), mapped=True) for side in _SIDES)
            _check_complete(tokens, lengths[-1], directory, split, number)
            self._shards.append(tokens)
        if not lengths:
            raise CheckpointError(f"{directory}: no {split!r} data here; write it with minitransformer-prepare")
        self.lengths = np.concatenate(lengths).astype(np.int64)
        self._offsets = np.concatenate([np.cumsum(part, axis=0, dtype=np.int64) - part for part in lengths])
        self._first_pairs = np.cumsum([0, *map(len, lengths)])

    def __len__(self) -> int:
        return len(self.lengths)

    def pair(self, i: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The ids of pair i: views into the memory-mapped files."""
        shard = self._shards[int(np.searchsorted(self._first_pairs, i, side="right")) - 1]
        (s, t), (n_s, n_t) = self._offsets[i], self.lengths[i]
        return shard[0][s : s + n_s], shard[1][t : t + n_t]


def _open(path: Path, *, mapped: bool = False) -> np.ndarray[Any, Any]:
    try:
        # An array without elements cannot be mapped.
        return np.asarray(np.load(path, mmap_mode="r" if mapped and path.stat().st_size > 128 else None))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error}); the data is incomplete: run minitransformer-prepare again"
        ) from error


def _check_complete(
    tokens: tuple[np.ndarray[Any, Any], ...], lengths: np.ndarray[Any, Any], directory: Path, split: str, number: int
) -> None:
    for side, name in enumerate(_SIDES):
        if len(tokens[side]) != lengths[:, side].sum():
            raise CheckpointError(
                f"{_shard_path(directory, split, number, name)}: expected {lengths[:, side].sum()} tokens, found"
                f" {len(tokens[side])}; the data is incomplete: run minitransformer-prepare again"
            )
