"""Token ids on disk, memory-mapped, so that a corpus may be larger than memory.

A split consists of file shards.  Each shard is three NumPy files: the source tokens of its pairs in one flat array, the
target tokens in another, and the two lengths of every pair.  Files are memory-mapped, so that processes of a machine
share them.  A training opens a few shards at a time; their lengths and offsets are in memory: 36 bytes a pair.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from autograd import Segments
from autograd.array import IntArray
from minitransformer.model.batch import IdPair, PackedIds
from minitransformer.model.symbols import END
from minitransformer.system.files import CheckpointError, CorruptFileError, atomic_write

MANIFEST = "manifest.json"
CHECKSUMS = "checksums"  # the manifest's field with the checksums of all other files
PAIRS_PER_SHARD = 500_000
SIDES = ("source", "target")
Text = TypeVar("Text")
_TOKENS, _LENGTHS = ("<u2", "<u4"), ("<i4",)
_INCOMPLETE = "the data is incomplete: prepare the data again"
# The header of a NumPy file.  NumPy's own reader evaluates the header as Python, and warns or fails if it is corrupt.
_HEADER_BYTES = 128
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00\x76\x00\{'descr': '(?P<dtype>[<>|]\w\d)', 'fortran_order': False,"
    rb" 'shape': \((?P<shape>\d{1,18},(?: \d{1,18})?)\), \} *\n"
)


def write_store(directory: Path, split: str, pairs: Iterable[IdPair], vocabulary_size: int) -> int:
    """Write the file shards of a split from pairs of id sequences; return the number of pairs.

    At most one shard is held in memory, at 2 or 4 bytes a token.
    """
    remove_shards(directory, split)
    shards = cut_into_shards(pairs)
    n_pairs = sum(write_shard(directory, split, first, shard, vocabulary_size) for first, shard in shards)
    return n_pairs or write_shard(directory, split, 0, (), vocabulary_size)


def shard_files(directory: Path, split: str) -> list[str]:
    """Return the names of a split's files."""
    return [path.name for path in directory.glob(f"{split}-*.npy")]


def remove_shards(directory: Path, split: str) -> None:
    """Remove the shards that ``write_shard`` wrote for a split."""
    for name in shard_files(directory, split):
        (directory / name).unlink()


def cut_into_shards(pairs: Iterable[Text]) -> Iterator[tuple[int, Iterator[Text]]]:
    """Yield for each shard the index of its first pair and an iterator of its pairs, which may stay unread."""
    for number, numbered in itertools.groupby(enumerate(pairs), lambda one: one[0] // PAIRS_PER_SHARD):
        yield number * PAIRS_PER_SHARD, (pair for _, pair in numbered)


def write_shard(directory: Path, split: str, first: int, pairs: Iterable[IdPair], vocabulary_size: int) -> int:
    """Write the shard whose first pair has the index ``first`` in the text; return the number of its pairs."""
    number, lengths = first // PAIRS_PER_SHARD, array("i")
    tokens = [array("H" if vocabulary_size <= 2**16 else "I") for _ in SIDES]
    for pair in pairs:
        for flat, ids in zip(tokens, pair, strict=True):
            flat.extend(ids)
            lengths.append(len(ids))
    for name, flat in zip(SIDES, tokens, strict=True):
        _write_array(_shard_path(directory, split, number, name), np.asarray(flat))
    _write_array(_shard_path(directory, split, number, "lengths"), np.asarray(lengths).reshape(-1, 2))
    return len(lengths) // 2


def _write_array(path: Path, array: np.ndarray[Any, Any]) -> None:
    with atomic_write(path) as temporary, temporary.open("wb") as stream:
        np.save(stream, array, allow_pickle=False)


def _shard_path(directory: Path, split: str, number: int, part: str) -> Path:
    return directory / f"{split}-{number:05d}.{part}.npy"


Shard: TypeAlias = tuple[np.ndarray[Any, Any], ...]  # lengths, (n, 2), source tokens, target tokens


class Pairs:
    """The pairs of id sequences of some shards, by index.

    Shapes: ``lengths`` (n, 2) int64: source and target tokens of each pair, without start and end symbols.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards, lengths = shards, [lengths for lengths, *_ in shards]
        self.lengths: IntArray = np.concatenate(lengths, dtype=np.int64)
        self._offsets = np.concatenate([np.cumsum(part, axis=0, dtype=np.int64) - part for part in lengths])
        self._shard_of_pair = np.repeat(np.arange(len(shards), dtype=np.int32), list(map(len, lengths)))

    def __len__(self) -> int:
        return len(self.lengths)

    def tokens(self, side: int) -> np.ndarray[Any, Any]:
        """Return the ids of all sources (side 0) or targets (side 1), one after the other in one array."""
        return np.concatenate([shard[1 + side] for shard in self._shards])

    def pair(self, i: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the source and target ids of pair i, as views."""
        _, source, target = self._shards[self._shard_of_pair[i]]
        (s, t), (n_s, n_t) = self._offsets[i], self.lengths[i]
        return source[s : s + n_s], target[t : t + n_t]

    def selected(self, indices: IntArray) -> Pairs:
        """Return the pairs with these indices, which may occur several times; ``tokens`` stays that of all pairs."""
        chosen = copy.copy(self)
        chosen.lengths, chosen._offsets = self.lengths[indices], self._offsets[indices]
        chosen._shard_of_pair = self._shard_of_pair[indices]
        return chosen

    def replaced(self, indices: IntArray, shard: Shard) -> Pairs:
        """Return these pairs, but at these indices the pairs of a shard, in its order; ``tokens`` has both."""
        changed, others = copy.copy(self), Pairs([shard])
        changed._shards = [*self._shards, shard]
        changed.lengths, changed._offsets = self.lengths.copy(), self._offsets.copy()
        changed._shard_of_pair = self._shard_of_pair.copy()
        changed.lengths[indices], changed._offsets[indices] = others.lengths, others._offsets
        changed._shard_of_pair[indices] = len(self._shards)
        return changed

    def packed(self, indices: IntArray, side: int) -> PackedIds:
        """Return the sources (side 0) or targets (side 1) of some pairs in one array, each followed by END.

        The result is that of ``pack_sequences``, without a loop over sentences.
        """
        lengths, offsets = self.lengths[indices, side], self._offsets[indices, side]
        packed = Segments.of_lengths(lengths + 1)
        ids = np.full(packed.n_tokens, END, np.int64)
        shard_of_pair = self._shard_of_pair[indices]
        for number in np.unique(shard_of_pair):
            own = shard_of_pair == number
            stored, wanted = Segments(offsets[own], lengths[own]), Segments(packed.starts[own], lengths[own])
            ids[wanted.tokens] = np.asarray(self._shards[number][1 + side])[stored.tokens]
        return ids, packed


class TrainingPairs(Protocol):
    """The training pairs of a run, in shards; their tokens may differ from epoch to epoch."""

    shard_sizes: Sequence[int]
    """The number of pairs in each shard."""

    def __len__(self) -> int:
        """Return the number of pairs of an epoch, which is the same in each epoch."""

    def read(self, shards: Sequence[int], epoch: int) -> Pairs:
        """Return the pairs of the shards with these numbers, with the tokens of this epoch (from 0)."""


class TokenStore:
    """The shards of a split that ``write_store`` wrote.  Opening a store checks all shards, then closes them."""

    def __init__(self, directory: Path, split: str) -> None:
        self._directory, self._split, n_shards = directory, split, _n_shards(directory, split)
        self._latest = dict[tuple[int, ...], Pairs]()  # the shards that were read last
        found = [(len(lengths), int(lengths.max(initial=0))) for lengths, *_ in self._open(range(n_shards))]
        self.shard_sizes: Sequence[int] = [n_pairs for n_pairs, _ in found]
        self.longest = max(longest for _, longest in found)  # tokens of the longest sentence

    def __len__(self) -> int:
        return sum(self.shard_sizes)

    def read(self, shards: Sequence[int] | None = None, epoch: int = 0) -> Pairs:
        """Return the pairs of the shards with these numbers, by default of all; they are the same in each epoch."""
        key = tuple(range(len(self.shard_sizes)) if shards is None else shards)
        if key not in self._latest:
            self._latest.clear()
            self._latest[key] = Pairs(list(self._open(key)))
        return self._latest[key]

    def _open(self, shards: Iterable[int]) -> Iterator[Shard]:
        return (_open_shard(self._directory, self._split, number) for number in shards)

    def check_ids(self, *vocabulary_sizes: int) -> None:
        """Raise CorruptFileError if a source or target id is too large for its vocabulary.

        Then the shards are corrupt or belong to another tokenizer.
        """
        for _, *tokens in self._open(range(len(self.shard_sizes))):
            for flat, size in zip(tokens, vocabulary_sizes, strict=True):
                if (largest := int(flat.max(initial=0))) >= size:
                    raise CorruptFileError(
                        f"{getattr(flat, 'filename', 'token ids')}: has token {largest:,}, expected less than {size:,},"
                        " the size of the tokenizer's vocabulary: it is corrupt, or of another tokenizer; prepare the"
                        " data again"
                    )


def _n_shards(directory: Path, split: str) -> int:
    """Return the number of file shards of a split, from the numbers in file names.  Raises: CheckpointError if none."""
    found = [name[len(split) + 1 :][:5] for name in shard_files(directory, split)]
    numbers = [int(number) for number in found if number.isdecimal()]
    if not numbers:
        raise CheckpointError(f"{directory}: no {split!r} data here; prepare the data first")
    return max(numbers) + 1


def _open_shard(directory: Path, split: str, number: int) -> Shard:
    """Return the lengths, source tokens and target tokens of a shard.  Raises: CheckpointError if corrupt."""
    path = _shard_path(directory, split, number, "lengths")
    lengths = _open(path, _LENGTHS, (2,))
    if lengths.min(initial=0) < 0:
        raise CheckpointError(f"{path}: has negative lengths; it is corrupt: prepare the data again")
    shard = [lengths]
    for side, name in enumerate(SIDES):
        path, n_tokens = _shard_path(directory, split, number, name), lengths[:, side].sum()
        shard.append(_open(path, _TOKENS, ()))
        if len(shard[-1]) != n_tokens:
            raise CheckpointError(f"{path}: expected {n_tokens} tokens, found {len(shard[-1])}; {_INCOMPLETE}")
    return tuple(shard)


def _open(path: Path, dtypes: Sequence[str], other_axes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return a memory-mapped array (n, *other_axes).

    Headers may be corrupt, so the size of the file is compared with the size in its header.

    Raises: CheckpointError if the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            header = _HEADER.match(stream.read(_HEADER_BYTES))
        if header is None:
            raise ValueError("expected the header that NumPy writes")
        dtype, shape = header["dtype"].decode(), tuple(map(int, re.findall(rb"\d+", header["shape"])))
        if dtype not in dtypes or shape[1:] != other_axes:
            raise ValueError(f"expected (n, {', '.join(map(str, other_axes))}), found {shape} of {dtype}")
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if header.end() + size != path.stat().st_size:
            raise ValueError(f"expected {header.end() + size} bytes, found {path.stat().st_size}")
        # An array without elements cannot be mapped.
        return np.memmap(path, dtype, "r", header.end(), shape) if size else np.empty(shape, dtype)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); {_INCOMPLETE}") from error
