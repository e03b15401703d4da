"""Prepared data whose files changed after they were written, or were written by two processes, is refused."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from minitransformer.config import ConfigError, DataConfig, RunConfig
from minitransformer.data.prepare import PreparedData, prepare
from minitransformer.system.checksums import checksums_of
from minitransformer.system.files import CheckpointError, CorruptFileError, lock_directory
from tests.support.training import corrupt

SHARD = "train-00000.target.npy"
FILES = [
    "tokenizer.model", "validation.json", "test.json",
    *(f"{split}-00000.{part}.npy" for split in ("train", "validation") for part in ("source", "target", "lengths")),
]  # fmt: skip


def prepared(folder: Path, n_letters: int = 8) -> PreparedData:
    line = " ".join("abcdefghijklm"[:n_letters])
    for name in ("en", "de"):
        (folder / name).write_text(f"{line}\n" * 40)
    fields = {"train_source": ("en",), "train_target": ("de",)}
    config = DataConfig(raw=folder, vocabulary_size=n_letters + 12, held_out=5, **fields)  # type: ignore[arg-type]
    return prepare(config, folder / "data")


def note_checksums(directory: Path) -> None:
    """Make the manifest's checksums those of the files that are there."""
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["checksums"] = checksums_of(directory, manifest["checksums"])
    (directory / "manifest.json").write_text(json.dumps(manifest))


def test_a_flipped_bit_is_noticed_when_data_is_opened(tmp_path: Path) -> None:
    directory = prepared(tmp_path).directory
    for name in FILES:
        whole = (directory / name).read_bytes()
        corrupt(directory / name)
        with pytest.raises(CheckpointError, match=f"{name}.*has changed since it was written"):
            PreparedData.open(directory)
        (directory / name).write_bytes(whole)
    assert PreparedData.open(directory).manifest["train_pairs"] == 36


def test_a_manifest_without_checksums_and_held_out_lines_that_are_no_pairs_are_named(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    (data.directory / "test.json").write_text('[["a", "b"], ["a"]]')
    with pytest.raises(
        CorruptFileError, match=r"test\.json: pairs\[1\] must be a list of 2; .*; prepare the data again"
    ):
        data.text("test")
    manifest = json.loads((data.directory / "manifest.json").read_text())
    del manifest["checksums"]
    (data.directory / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CorruptFileError, match=r"manifest\.json: is no manifest of prepared data; .*repare the data"):
        PreparedData.open(data.directory)


def test_a_shard_that_was_added_or_lost_is_noticed(tmp_path: Path) -> None:
    directory = prepared(tmp_path).directory
    shutil.copy(directory / SHARD, directory / "train-00001.target.npy")
    with pytest.raises(CorruptFileError, match=r"train-00001.*expected the files that manifest\.json lists"):
        PreparedData.open(directory)
    (directory / "train-00001.target.npy").unlink()
    (directory / "test.json").unlink()
    with pytest.raises(CorruptFileError, match=r"expected the files that manifest\.json lists.*repare the data again"):
        PreparedData.open(directory)


def test_the_tokenizer_of_another_preparation_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    directory, other = prepared(tmp_path).directory, prepared(tmp_path / "other", n_letters=9).directory
    for name in ("tokenizer.model", "tokenizer.checksums.json"):
        shutil.copy(other / name, directory / name)
    with pytest.raises(CorruptFileError, match=r"tokenizer\.model: .*Prepare the data again"):
        PreparedData.open(directory)


@pytest.mark.parametrize("name", [SHARD, "validation-00000.source.npy"])
def test_ids_that_the_tokenizer_has_not_are_refused_though_the_checksums_fit(tmp_path: Path, name: str) -> None:
    data = prepared(tmp_path)
    ids = np.load(data.directory / name)
    ids[0] += 1 << 14
    np.save(data.directory / name, ids)
    note_checksums(data.directory)
    with pytest.raises(CorruptFileError, match=rf"{name}: has token 16,\d+, expected less than \d+, the size"):
        PreparedData.open(data.directory)


def test_the_digest_stands_for_what_is_trained_on(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    data, other = prepared(tmp_path), prepared(tmp_path / "other", n_letters=9)
    assert len(data.digest) == 10
    assert PreparedData.open(data.directory).digest == data.digest != other.digest
    path = data.directory / SHARD
    path.write_bytes(path.read_bytes()[:-2] + np.uint16(3).tobytes())  # another id of the vocabulary
    note_checksums(data.directory)
    assert PreparedData.open(data.directory).digest != data.digest


def test_a_second_preparation_at_the_same_time_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    directory = prepared(tmp_path).directory
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with lock_directory(directory, "preparing data"):
        with pytest.raises(CheckpointError, match="data: another process is preparing data there; wait for its end"):
            prepared(tmp_path, 9)
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert prepared(tmp_path, 9).digest


def test_a_run_does_not_lie_in_the_directory_of_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = RunConfig(run=tmp_path)
    for directory in (tmp_path, Path()):
        with pytest.raises(ConfigError, match="data.directory and run are both"):
            dataclasses.replace(config, data=DataConfig(directory=directory))
