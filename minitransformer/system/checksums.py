"""Lists of the size and SHA-256 of the files in a directory; readers compare them to detect corrupt files.

A list is written last, and removed before a listed file changes in place.  So an existing list is never out of date.
Large files are compared once: ``passes`` remembers it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from minitransformer.system.files import CheckpointError, CorruptFileError, read_json, require_regular, write_text
from minitransformer.system.records import as_object

CHECKSUMS_FILE = "checksums.json"
SETTLED = 2.0  # seconds: the coarsest step of the times that a file system notes (FAT)
FORMAT = 1  # of checkpoints and model directories; increased when older versions cannot read new ones


def checksums_of(directory: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the size and the SHA-256 of each file.  Raises: OSError."""
    return {
        name: {"size": (directory / name).stat().st_size, "sha256": _sha256(directory / name)} for name in sorted(names)
    }


def write_checksums(directory: Path, names: Iterable[str], into: str = CHECKSUMS_FILE) -> None:
    """Write the list of sizes and checksums; all files must exist.  Raises: CheckpointError."""
    write_list(directory / into, checksums_of(directory, names))


def write_list(path: Path, files: Mapping[str, Any], about: Mapping[str, Any] | None = None) -> None:
    """Write ``files``, a result of ``checksums_of``, as a list, with the further fields in ``about``."""
    write_text(path, _as_text({"format": FORMAT, **(about or {}), "files": files}))


def remove_checksums(directory: Path, of: str = CHECKSUMS_FILE) -> None:
    """Remove the list before the listed files change; the removal is durable once the directory is synced."""
    (directory / of).unlink(missing_ok=True)


def has_checksums(directory: Path, of: str = CHECKSUMS_FILE) -> bool:
    """Return whether a directory has a list of checksums; models and tokenizers of other programs have none."""
    return (directory / of).exists()


def check_files(directory: Path, names: Iterable[str], listed_in: str = CHECKSUMS_FILE) -> None:
    """Compare files with the list: their sizes, and the SHA-256 of their bytes.

    Only the given names are opened, even if the list has other names.
    Raises: CorruptFileError naming a corrupt file, or the list if it is missing; CheckpointError if the directory has a
    newer format.
    """
    compare_files(directory, names, _read(directory / listed_in), listed_in)


def check_all_files(directory: Path, names: Iterable[str], listed_in: str) -> None:
    """Compare all listed files with the list, which must contain ``names``.  Raises: as ``check_files``."""
    listed = _read(directory / listed_in)
    if odd := [name for name in listed if not re.fullmatch(r"[\w-][\w.-]*", name)]:
        raise CorruptFileError(f"{directory / listed_in}: lists {odd[0]!r}, which is no file's name; it is corrupt")
    compare_files(directory, sorted({*listed, *names}), listed, listed_in)


def compare_files(directory: Path, names: Iterable[str], listed: Mapping[str, Any], listed_in: str) -> None:
    """Compare files with ``listed``, an earlier result of ``checksums_of`` from the file ``listed_in``.

    Raises: CorruptFileError naming a corrupt file.
    """
    for name in names:
        path, entry = directory / name, as_object(listed.get(name))
        if entry.keys() != {"size", "sha256"}:
            raise CorruptFileError(f"{directory / listed_in}: does not list {name}; it is corrupt")
        try:
            size = path.stat().st_size
            digest = _sha256(path) if size == entry["size"] else None
        except FileNotFoundError as error:
            raise CorruptFileError(f"{path}: not found, though {listed_in} lists it") from error
        except OSError as error:
            raise CorruptFileError(f"{path}: cannot be read ({error})") from error
        if size != entry["size"]:
            raise CorruptFileError(
                f"{path}: expected {entry['size']!r} bytes, found {size}; it is truncated or corrupt"
            )
        if digest != entry["sha256"]:
            raise CorruptFileError(
                f"{path}: has changed since it was written (its SHA-256 is not the one that was noted)"
            )


def passes(check: Callable[[], bool], paths: Iterable[Path], expected: object, *, anew: bool = False) -> bool:
    """Return ``check()``; but if an earlier call has passed, and no file was written since, return True at once.

    ``check`` compares the files with ``expected``, which JSON can express.  A file was not written if its path, inode,
    size, and times of modification and of status change are the same, so a copied or restored file is checked again.
    What has passed is remembered as an empty file in the user's cache directory.  Its name is a hash of all this, so
    ranks on several machines need no lock.  Windows has no time of status change, so there every check is made.  A file
    that was written in the last ``SETTLED`` seconds is not remembered, because another write could have the same time.
    ``anew`` forgets an earlier result.
    """
    began, (mark, newest) = time.time(), _mark(paths, expected)
    with suppress(OSError):  # without a cache directory, every check is made
        if mark and anew:
            mark.unlink(missing_ok=True)
        elif mark and mark.exists():
            return True
    passed = check()
    if mark and passed and newest < (began - SETTLED) * 1e9:
        with suppress(OSError):
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
    return passed


def _mark(paths: Iterable[Path], expected: object) -> tuple[Path | None, int]:
    """Return the path that exists after a check of these files has passed, and their newest time in nanoseconds.

    The path is None on Windows, if a file cannot be read, which its check reports, or without a home directory.
    """
    key, newest = hashlib.blake2b(json.dumps(expected, sort_keys=True).encode(), digest_size=16), 0
    if os.name == "nt":
        return None, newest
    with suppress(OSError, RuntimeError):
        for path in paths:
            file = path.stat()
            times = file.st_mtime_ns, file.st_ctime_ns
            key.update(f"{path.absolute()!r} {file.st_ino} {file.st_size} {times}\n".encode())
            newest = max(newest, *times)
        return user_cache_path("minitransformer") / "checked" / key.hexdigest(), newest
    return None, newest


def _read(path: Path) -> dict[str, Any]:
    fields = as_object(read_json(path))
    version, files = fields.get("format"), fields.get("files")
    if (
        type(version) is not int
        or version < FORMAT
        or not isinstance(files, dict)
        or _as_text(fields).encode() != path.read_bytes()
    ):
        raise CorruptFileError(
            f'{path}: expected an object with "format" and "files", as it was written; it is corrupt'
        )
    if version > FORMAT:
        raise CheckpointError(
            f"{path.parent}: is of format {version}, and this version reads format {FORMAT}: update minitransformer"
            " (or, if no other version ever ran here, remove this directory)"
        )
    return files


def _as_text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def _sha256(path: Path) -> str:
    require_regular(path)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
