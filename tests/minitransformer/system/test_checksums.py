"""Comparing large files once: what is remembered, and what is compared again."""

import os
import pwd
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from minitransformer.system import checksums
from minitransformer.system.checksums import passes


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache directory; files that were just written are remembered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(checksums, "SETTLED", 0)
    return tmp_path / "cache"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"content")
    return tmp_path / "file"


def test_a_check_that_has_passed_is_not_made_again(file: Path, cache: Path) -> None:
    check = Mock(return_value=True)
    assert passes(check, [file], {"sha256": "00"})
    assert passes(check, [file], {"sha256": "00"})
    assert check.call_count == 1
    assert passes(check, [file], {"sha256": "01"})
    assert check.call_count == 2, "other bytes were expected"
    assert [path.stat().st_size for path in (cache / "minitransformer" / "checked").iterdir()] == [0, 0]


def test_a_check_that_fails_is_made_again(file: Path) -> None:
    check = Mock(side_effect=[False, ValueError("corrupt"), True])
    assert not passes(check, [file], 0)
    with pytest.raises(ValueError, match="corrupt"):
        passes(check, [file], 0)
    assert passes(check, [file], 0)


def flip(path: Path) -> None:
    path.write_bytes(b"cantent")


def flip_in_the_same_second(path: Path) -> None:
    status = path.stat()
    flip(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_by_a_copy(path: Path) -> None:
    shutil.copy2(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


@pytest.mark.parametrize("change", [flip, flip_in_the_same_second, replace_by_a_copy, Path.touch])
def test_a_file_that_was_written_or_replaced_is_checked_again(file: Path, change: Callable[[Path], None]) -> None:
    check = Mock(return_value=True)
    assert passes(check, [file], 0)
    time.sleep(0.05)  # else both writes may get the same time: SETTLED, which is 0 here, prevents that
    change(file)
    assert passes(check, [file], 0)
    assert check.call_count == 2


def test_a_copied_folder_is_checked_again(file: Path) -> None:
    check = Mock(return_value=True)
    assert passes(check, [file], 0)
    shutil.copytree(file.parent, file.parent.with_name("other"))
    assert passes(check, [file.parent.with_name("other") / "file"], 0)
    assert check.call_count == 2


def test_a_file_that_changes_meanwhile_is_checked_again(file: Path) -> None:
    check = Mock(side_effect=lambda: time.sleep(0.05) or not flip(file))
    assert passes(check, [file], 0)
    assert passes(check, [file], 0)
    assert check.call_count == 2


def test_a_file_that_was_just_written_is_not_remembered(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "SETTLED", 3_600)
    check = Mock(return_value=True)
    assert passes(check, [file], 0)
    assert passes(check, [file], 0)
    assert check.call_count == 2


def test_a_check_that_is_made_anew_and_fails_is_forgotten(file: Path) -> None:
    assert passes(lambda: True, [file], 0)
    assert not passes(lambda: False, [file], 0, anew=True)
    assert not passes(lambda: False, [file], 0)


@pytest.mark.parametrize("has_home", [True, False])
def test_without_a_cache_every_check_is_made(
    has_home: bool, file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.write_text("no directory")
    if not has_home:
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # no user has this number, as in some containers
    check = Mock(return_value=True)
    assert passes(check, [file], 0)
    assert passes(check, [file], 0, anew=True)
    assert passes(check, [file.with_name("missing")], 0)
    assert check.call_count == 3
