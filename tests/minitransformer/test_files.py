"""Files that are whole or not there: what is said where the system refuses them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from minitransformer.files import CheckpointError, DamagedError, read_arrays, try_lock, write_text


def refuse(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_where_nothing_may_be_written_the_remedy_is_told_and_not_that_nothing_may_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "write_text", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(CheckpointError, match=r"note\.txt: cannot be written .*Permission denied.*another directory"):
        write_text(tmp_path / "note.txt", "here")


def test_arrays_that_cannot_be_opened_are_not_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match=r"cannot be read \(File name too long\); mend who may read it"):
        read_arrays(tmp_path / ("x" * 300))


def test_arrays_that_are_not_there_are(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match=r"nothing: not found; is .* the right directory"):
        read_arrays(tmp_path / "nothing")


def test_an_open_file_is_taken_once_and_free_when_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("w") as one, path.open("w") as other:
        assert try_lock(one.fileno())
        assert not try_lock(other.fileno())
        one.close()
        assert try_lock(other.fileno())


def test_a_file_system_without_locks_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse_locks)
    with (tmp_path / "file").open("w") as one, (tmp_path / "file").open("w") as other:
        assert try_lock(one.fileno())
        assert try_lock(other.fileno())
