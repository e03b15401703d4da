"""Atomic writing of files: each file is written under a temporary name in the same folder, synced, then renamed."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from minitransformer.system.errors import UserError


class CheckpointError(UserError, RuntimeError):
    """An error: a file of a model or of a training run cannot be written or read."""


class CorruptFileError(CheckpointError):
    """An error: a file is corrupt or incomplete; another checkpoint may be complete."""


class UnfitError(CheckpointError):
    """An error: a complete file belongs to another model, or has an unsupported dtype; another checkpoint may fit."""


def is_same_file(one: Path, other: Path) -> bool:
    """Return whether two paths name one file, also through links."""
    return one == other or (one.exists() and other.exists() and one.samefile(other))


def temporary_path(path: Path, ending: str = "tmp") -> Path:
    """Return a random name beside ``path``, so that no other user can place a link there in advance."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.{ending}")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield an empty temporary file beside ``path``; on success rename it to ``path``, on failure remove it.

    Raises: CheckpointError, with the remedy, if the file system refuses; an older file at ``path`` stays as it was.
    """
    temporary = temporary_path(path)
    try:
        make_directory(path.parent)
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))  # never through a link
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error}); free some space or choose another directory."
            " Files written before are unharmed"
        ) from error
    finally:
        with suppress(OSError):  # the file may not exist: after a rename, or after an error that was reported
            temporary.unlink()


def remove_unfinished(directory: Path) -> None:
    """Remove temporary files of killed processes from a directory: our files, and safetensors' (.tmpJrcgCB)."""
    for path in (*directory.glob(".*.tmp"), *directory.glob(".tmp??????")):
        if path.is_file():
            path.unlink()


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a directory, is on the disk; on Windows, no directory is synced."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock an open file or directory for this process, until it is closed or the process ends in any way.

    Returns: False if another process holds the lock.  On Windows, and on a file system without locks, as on some
    clusters, the result is always True.
    """
    try:
        fcntl = import_module("fcntl")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


@contextmanager
def lock_directory(directory: Path, activity: str) -> Iterator[None]:
    """Lock a directory for this process; create the directory if it does not exist.

    The lock ends with this context, or when the process ends in any way.  After an error, a directory that was created
    here is removed if it is empty.
    Raises: CheckpointError if another process holds the lock.
    """
    is_new = not directory.exists()
    try:
        make_directory(directory)
        descriptor = os.open(os.devnull if os.name == "nt" else directory, os.O_RDONLY)
    except OSError as error:
        raise CheckpointError(
            f"{directory}: cannot be written ({error}); free some space or choose another directory"
        ) from error
    if not try_lock(descriptor):
        os.close(descriptor)
        raise CheckpointError(
            f"{directory}: another process is {activity} there; wait for its end, end it, or choose another directory"
        )
    try:
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):  # it is not empty
                directory.rmdir()
        raise
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents, and wait until their names are on the disk."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a small text file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def require_regular(path: Path) -> None:
    """Raise OSError if a path is no regular file: reading a FIFO waits for a writer, and a device may have no end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a directory"}
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        raise OSError(errno.EINVAL, f"is {kind}; expected a regular file", str(path))


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file.  Raises: OSError if it is of another kind, or cannot be read."""
    require_regular(path)
    return path.read_bytes()


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.  Raises: CorruptFileError if it is missing or not JSON."""
    try:
        return json.loads(read_regular(path).decode("utf-8"))
    except FileNotFoundError as error:
        raise CorruptFileError(f"{path}: not found; is {path.parent} the right directory?") from error
    except (OSError, ValueError, RecursionError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise CorruptFileError(f"{path}: cannot be read ({cause}); it is corrupt or of another kind") from error


def write_arrays(
    path: Path, arrays: Mapping[str, np.ndarray[Any, Any]], metadata: dict[str, str] | None = None
) -> None:
    """Write named arrays, and texts that describe them, atomically to a safetensors file.

    The file gets the usual permissions of this process: safetensors itself writes files that only their owner may read.
    """
    with atomic_write(path) as temporary:
        mode = temporary.stat().st_mode
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary, metadata)
        temporary.chmod(mode)


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Read the arrays of a safetensors file; bfloat16, which NumPy lacks, becomes float32 with the same values.

    Raises: CorruptFileError if it is missing, corrupt or not readable; UnfitError if it has floats of 8 bits or fewer.
    """
    try:
        require_regular(path)
        with path.open("rb"):  # safetensors reports every file that cannot be opened as missing
            pass
        with safe_open(path, framework="numpy") as file:
            types = {name: file.get_slice(name).get_dtype() for name in list(file.keys())}
            for name, of in types.items():
                if re.match(r"F[468](_|$)", of):
                    raise UnfitError(
                        f"{path}: {name} is of type {of}; expected F64, F32, F16 or BF16: convert the file"
                    )
            return {
                name: _read_bfloat16(path, name) if of == "BF16" else file.get_tensor(name)
                for name, of in types.items()
            }
    except FileNotFoundError as error:
        raise CorruptFileError(f"{path}: not found; is {path.parent} the right directory?") from error
    except OSError as error:
        raise CorruptFileError(
            f"{path}: cannot be read ({error.strerror}); change its permissions, or use another checkpoint"
        ) from error
    except (SafetensorError, ValueError) as error:  # ValueError: more axes, or a larger shape, than NumPy has
        raise CorruptFileError(
            f"{path}: cannot be read ({error}); it is truncated or corrupt: use another checkpoint"
        ) from error


def _read_bfloat16(path: Path, name: str) -> np.ndarray[Any, Any]:
    """Read an array of bfloat16, the upper halves of float32; safetensors has checked the file's header.

    The file's format: the size of the header in 8 bytes, the header as JSON, the arrays.
    """
    with path.open("rb") as file:
        entry = json.loads(file.read(int.from_bytes(file.read(8), "little")))[name]
        begin, end = entry["data_offsets"]
        file.seek(begin, os.SEEK_CUR)
        upper = np.frombuffer(file.read(end - begin), "<u2")
    return (upper.astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])
