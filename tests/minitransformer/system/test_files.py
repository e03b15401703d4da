"""Files that are complete or absent: what is said where the system refuses them, and where they hold no record."""

import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from minitransformer.extras.convert.formats import atomic_directory
from minitransformer.system.checksums import compare_files
from minitransformer.system.files import (
    CheckpointError,
    CorruptFileError,
    UnfitError,
    read_arrays,
    read_json,
    try_lock,
    write_text,
)
from minitransformer.system.records import read_object, read_record

REFUSE = Mock(side_effect=PermissionError(errno.EACCES, "Permission denied"))


def test_where_nothing_may_be_written_the_remedy_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_text", REFUSE)
    monkeypatch.setattr(Path, "unlink", REFUSE)
    with pytest.raises(CheckpointError, match=r"note\.txt: cannot be written .*Permission denied.*another directory"):
        write_text(tmp_path / "note.txt", "here")


def test_arrays_that_cannot_be_opened_are_not_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"cannot be read \(File name too long\); change its permissions"):
        read_arrays(tmp_path / ("x" * 300))
    with pytest.raises(CorruptFileError, match=r"nothing: not found; is .* the right directory"):
        read_arrays(tmp_path / "nothing")


def test_a_link_under_a_temporary_name_is_not_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "precious").write_text("untouched")
    for name in (f".note.txt.{os.getpid()}.tmp", ".note.txt.0000.tmp"):
        (tmp_path / name).symlink_to(tmp_path / "precious")
    write_text(tmp_path / "note.txt", "here")
    monkeypatch.setattr("secrets.token_hex", lambda n: "0000")
    with pytest.raises(CheckpointError, match=r"note\.txt: cannot be written .*File exists"):
        write_text(tmp_path / "note.txt", "there")
    assert (tmp_path / "precious").read_text() == "untouched"
    assert (tmp_path / "note.txt").read_text() == "here"


def test_a_directory_gets_its_name_and_its_old_mode_when_it_is_complete(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "old")
    for name in ("old", "link", "new/one"):
        with atomic_directory(tmp_path / name) as temporary:
            (temporary / "file").write_text(name)
            assert not (tmp_path / name / "file").exists()
        assert (tmp_path / name / "file").read_text() == name
        (tmp_path / name / "file").unlink()
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "new", "old"]


def test_unfinished_directories_are_removed_unless_a_process_writes_them(tmp_path: Path) -> None:
    left, other = tmp_path / ".new.0123456789abcdef.tmp", tmp_path / ".news.0123456789abcdef.tmp"
    for directory in (left, other):
        directory.mkdir()
        (directory / "file").touch()
    with atomic_directory(tmp_path / "new") as first:
        assert not left.exists()
        with atomic_directory(tmp_path / "new") as second:
            assert {first, second, other} == set(tmp_path.iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"new", other.name}


@pytest.mark.parametrize("read", [read_json, read_arrays])
def test_only_regular_files_are_read(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "x")
    with pytest.raises(CorruptFileError, match=r"/x: cannot be read \(is a FIFO; expected a regular file\); "):
        read(tmp_path / "x")
    with pytest.raises(CorruptFileError, match=r"/null: cannot be read \(is a device; expected a regular file\); "):
        read(Path("/dev/null"))
    with pytest.raises(CorruptFileError, match=r"/x: cannot be read \(.*is a FIFO"):
        compare_files(tmp_path, ["x"], {"x": {"size": 0, "sha256": ""}}, "list")


def write_raw(path: Path, **tensors: tuple[str, list[int], bytes]) -> None:
    """Write a safetensors file of any types, some of which NumPy has not."""
    header, data = dict[str, Any](), b""
    for name, (kind, shape, content) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_bfloat16_is_read_as_float32(tmp_path: Path) -> None:
    values = np.array([[1, -2.5, 0], [np.inf, 2**-130, 3e38]], np.float32)
    halves = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    write_raw(tmp_path / "a", x=("F32", [2], b"\0\0\x80?\0\0\0@"), y=("BF16", [2, 3], halves), z=("BF16", [0, 3], b""))
    arrays = read_arrays(tmp_path / "a")
    assert {name: array.shape for name, array in arrays.items()} == {"x": (2,), "y": (2, 3), "z": (0, 3)}
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    assert arrays["x"].tolist() == [1, 2]
    assert ((arrays["y"].view(np.uint32) >> 16).astype("<u2").tobytes()) == halves
    assert arrays["y"][0].tolist() == [1, -2.5, 0]


def test_numbers_of_eight_bits_or_fewer_and_arrays_of_too_many_axes_are_refused_by_name(tmp_path: Path) -> None:
    for kind, size in (("F8_E4M3", 4), ("F4", 2)):
        write_raw(tmp_path / "a", x=(kind, [4], bytes(size)))
        with pytest.raises(UnfitError, match=rf"a: x is of type {kind}; expected F64, F32, F16 or BF16"):
            read_arrays(tmp_path / "a")
    write_raw(tmp_path / "x", w=("F32", [1] * 65, bytes(4)))
    with pytest.raises(CorruptFileError, match="/x: cannot be read .*maximum supported dimension"):
        read_arrays(tmp_path / "x")


def test_an_open_file_is_taken_once_if_there_are_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    with path.open("w") as one, path.open("w") as other, path.open("w") as third:
        assert try_lock(one.fileno())
        assert not try_lock(other.fileno())
        one.close()
        assert try_lock(other.fileno())
        monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOTSUP, "Operation not supported")))
        assert try_lock(third.fileno())


# Dataclasses that are read from JSON objects


@dataclass(frozen=True)
class Basket:
    name: str
    weight: float
    sizes: tuple[tuple[int, int], ...]
    eggs: list[int]
    price: float | None = None


FIELDS: dict[str, Any] = {"name": "A", "weight": 2, "sizes": [[1, 2], [3, 4]], "eggs": [5], "price": None}
BASKET = Basket("A", 2.0, ((1, 2), (3, 4)), [5])


def written(directory: Path, content: Any) -> Path:
    path = directory / "basket.json"
    path.write_text(json.dumps(content))
    return path


def test_an_object_becomes_a_record_of_the_annotated_types(tmp_path: Path) -> None:
    record = read_record(written(tmp_path, FIELDS), Basket)
    assert (record, type(record.weight)) == (BASKET, float)


def test_fields_with_a_default_may_be_missing_and_keys_are_unknown_only_on_request(tmp_path: Path) -> None:
    path = written(tmp_path, {name: value for name, value in FIELDS.items() if name != "price"})
    assert read_record(path, Basket) == BASKET
    with pytest.raises(CorruptFileError, match=r"missing or unknown: \['price'\]"):
        read_record(path, Basket, needed=("price",))
    without_default = written(tmp_path, {name: value for name, value in FIELDS.items() if name != "eggs"})
    with pytest.raises(CorruptFileError, match=r"missing or unknown: \['eggs'\]"):
        read_record(without_default, Basket)
    old = written(tmp_path, {"title" if name == "name" else name: value for name, value in FIELDS.items()})
    assert read_record(old, Basket, upgrade=lambda fields: {"name": fields.pop("title"), **fields}) == BASKET
    path = written(tmp_path, FIELDS | {"owner": 1})
    assert read_record(path, Basket, ignore_unknown=True) == BASKET
    with pytest.raises(CorruptFileError, match=r"name, weight, sizes, eggs, price; missing or unknown: \['owner'\]"):
        read_record(path, Basket)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": [[1, 2, 3]]}, "sizes[0] must be a list of 2; got [1, 2, 3]"),
        ({"sizes": [[1, 2], [3, 9]]}, "sizes must be at least 0 and less than 9; got 9"),
        ({"eggs": [1, True]}, "eggs[1] must be a whole number; got True"),
        ({"price": -1}, "price must be at least 0 and less than 10; got -1.0"),
    ],
)
def test_messages_name_file_field_expected_got_remedy(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = written(tmp_path, FIELDS | changes)
    with pytest.raises(CorruptFileError) as caught:
        read_record(path, Basket, bounds={"sizes": (0, 9), "price": (0, 10)}, remedy="buy another")
    assert str(caught.value) == f"{path}: {message}; buy another"


@pytest.mark.parametrize("content", [[], None])
def test_other_content_is_no_record_and_an_empty_object(tmp_path: Path, content: Any) -> None:
    path = written(tmp_path, content)
    assert read_object(path) == read_object(tmp_path / "no.json") == {}
    with pytest.raises(CorruptFileError, match="expected an object with name, weight"):
        read_record(path, Basket)
