"""Token ids on disk: what is written is read back, and an incomplete store is refused."""

import gc
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minitransformer.data import store as store_module
from minitransformer.data.store import TokenStore, write_store
from minitransformer.system.files import CheckpointError

SEQUENCES = st.lists(st.integers(0, 65_535), max_size=6)
PAIRS = st.lists(st.tuples(SEQUENCES, SEQUENCES), max_size=12)
THREE = [([3, 4, 5], [6, 7]), ([], [8]), ([9, 10], [])]


def pairs_of(store: TokenStore, shards: Sequence[int] | None = None) -> list[tuple[list[int], list[int]]]:
    pairs = store.read(shards)
    return [(source.tolist(), target.tolist()) for source, target in map(pairs.pair, range(len(pairs)))]


@settings(max_examples=25)
@given(pairs=PAIRS, pairs_per_shard=st.integers(1, 5))
@example(pairs=[], pairs_per_shard=1)
def test_pairs_are_read_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[list[int], list[int]]], pairs_per_shard: int
) -> None:
    directory = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "PAIRS_PER_SHARD", pairs_per_shard)
        assert write_store(directory, "train", iter(pairs), 65_536) == len(pairs)
    store = TokenStore(directory, "train")
    assert pairs_of(store) == pairs
    assert (len(store), store.longest) == (len(pairs), max((len(side) for pair in pairs for side in pair), default=0))
    lengths = store.read().lengths
    assert (lengths.dtype, lengths.shape) == (np.int64, (len(pairs), 2))
    assert lengths.tolist() == [[len(source), len(target)] for source, target in pairs]
    assert {path.suffixes[-1] for path in directory.iterdir()} == {".npy"}, "no temporary file remains"


def test_a_full_shard_is_closed_and_a_lost_one_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "PAIRS_PER_SHARD", 2)
    write_store(tmp_path, "train", THREE * 2, 100)
    first, second, _ = (np.load(tmp_path / f"train-0000{number}.lengths.npy") for number in range(3))
    assert (first.tolist(), second.tolist()) == ([[3, 2], [0, 1]], [[2, 0], [3, 2]])
    assert np.load(tmp_path / "train-00001.source.npy").tolist() == [9, 10, 3, 4, 5]
    assert pairs_of(TokenStore(tmp_path, "train"), [1]) == [THREE[2], THREE[0]]
    write_store(tmp_path, "train", THREE[:1], 100)
    assert pairs_of(TokenStore(tmp_path, "train")) == THREE[:1], "no shard of a larger store remains"
    write_store(tmp_path, "train", THREE * 2, 100)
    (tmp_path / "train-00001.lengths.npy").unlink()
    for split, message in (("train", "train-00001"), ("other", "no 'other' data here; prepare the data first")):
        with pytest.raises(CheckpointError, match=message):
            TokenStore(tmp_path, split)


def test_a_store_of_many_shards_keeps_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mapped file takes a descriptor, and a process may have 1,024 of them."""
    monkeypatch.setattr(store_module, "PAIRS_PER_SHARD", 1)
    write_store(tmp_path, "train", THREE * 10, 100)
    before = set(Path("/proc/self/fd").iterdir())
    store = TokenStore(tmp_path, "train")
    store.check_ids(100, 100)
    gc.collect()
    assert set(Path("/proc/self/fd").iterdir()) <= before


@pytest.mark.parametrize(
    ("vocabulary_size", "dtype", "largest"),
    [(100, np.uint16, 99), (65_536, np.uint16, 65_535), (65_537, np.uint32, 65_536)],
)
def test_ids_take_two_bytes_while_they_suffice(tmp_path: Path, vocabulary_size: int, dtype: type, largest: int) -> None:
    write_store(tmp_path, "train", [([largest], [3])], vocabulary_size)
    source, _ = TokenStore(tmp_path, "train").read().pair(0)
    assert source.dtype == dtype
    assert source.tolist() == [largest]


def test_tokens_are_memory_mapped_and_read_only(tmp_path: Path) -> None:
    write_store(tmp_path, "train", THREE, 100)
    for side in TokenStore(tmp_path, "train").read().pair(0):
        owner = side
        while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
            owner = owner.base
        assert isinstance(owner, np.memmap)
        assert not side.flags.writeable


AGAIN = ".*prepare the data again"


def cut(n_bytes: int) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[:-n_bytes])


@pytest.mark.parametrize(("part", "change", "message"), [
    *((part, cut(n_bytes), "the data is incomplete: prepare the data again")
      for part in ("source", "target") for n_bytes in (1, 2, 150)),  # half an id, an id, the header
    ("source", lambda path: path.write_bytes(b""), f"cannot be read {AGAIN}"),
    ("target", lambda path: np.save(path, np.zeros(39, np.uint16)), f"expected 40 tokens, found 39; {AGAIN}"),
    ("source", Path.unlink, f"cannot be read {AGAIN}"),
    ("target", Path.unlink, f"cannot be read {AGAIN}"),
    ("lengths", cut(4), f"cannot be read {AGAIN}"),
    ("source", lambda path: np.save(path, np.array([{"a": 1}] * 60), allow_pickle=True), "cannot be read"),
], ids=range(12))  # fmt: skip
def test_changed_shards_are_named(tmp_path: Path, part: str, change: Callable[[Path], object], message: str) -> None:
    """Cut off, emptied, of other tokens than the lengths say, removed, or pickled."""
    write_store(tmp_path, "train", [([5] * 20, [6] * 20)] * 2, 100)
    path = tmp_path / f"train-00000.{part}.npy"
    change(path)
    with pytest.raises(CheckpointError, match=f"^{path}: .*{message}"):
        TokenStore(tmp_path, "train")
