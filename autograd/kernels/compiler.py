"""Machine code of kernels, compiled once for each machine and kept in the user's cache directory.

C for the CPU (``kernels/cpu/library.py``) and CUDA C++ (``kernels/cuda/nvrtc.py``) use the same cache.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from platformdirs import user_cache_path

_log = logging.getLogger(__name__)
_DIGEST = hashlib.sha256


class CompilerError(RuntimeError):
    """An error: the compiler is missing, or rejects a source; the message has the compiler's log."""


def cached_code(name: str, inputs: Iterable[bytes], compile_code: Callable[[], bytes]) -> Path:
    """Return the file with the machine code that ``compile_code`` makes of ``inputs``; compile only if it is missing.

    ``inputs`` is everything that the code depends on: sources, options, compiler and processor.  The file ends with
    the SHA-256 of the code, so a corrupt file is noticed and compiled again.

    Raises: the exceptions of ``compile_code``, such as CompilerError; OSError if the file cannot be written.
    """
    key = _DIGEST()
    for part in inputs:
        key.update(_DIGEST(part).digest())
    path = cache_directory() / f"{name}-{key.hexdigest()[:32]}"
    if not _is_complete(path):
        code = compile_code()
        write_atomically(path, code + _DIGEST(code).digest())
    return path


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under another name, then rename it, so that no process reads an incomplete file."""
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        complete = Path(directory) / path.name
        complete.write_bytes(content)
        complete.replace(path)


def code_of(path: Path) -> bytes:
    """Return the machine code in a file of ``cached_code``, without its checksum."""
    return path.read_bytes()[: -_DIGEST().digest_size]


def _is_complete(path: Path) -> bool:
    """Return whether the file exists and ends with the checksum of its code."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    code, digest = content[: -_DIGEST().digest_size], content[-_DIGEST().digest_size :]
    return _DIGEST(code).digest() == digest


def cache_directory() -> Path:
    """Return the directory of compiled kernels, to which only this user may write.

    It is ``minitransformer/kernels`` in the user's cache directory.  It is a temporary directory, and kernels are
    compiled in every process, if there is no home directory, or if the cache directory cannot be written, belongs to
    another user, or can be written by other users.
    """
    try:
        directory = user_cache_path("minitransformer") / "kernels"
    except RuntimeError:
        return _temporary_directory("there is no home directory")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
        is_private = not hasattr(os, "getuid") or (
            status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o022
        )
        if is_private and os.access(directory, os.W_OK):
            return directory
        reason = "is not writable" if is_private else "can be written by other users"
    except OSError as error:
        reason = f"cannot be made ({error.strerror})"
    return _temporary_directory(f"{directory} {reason}")


@functools.cache
def _temporary_directory(reason: str) -> Path:
    _log.warning(f"{reason}: kernels are compiled again in every process")
    directory = tempfile.mkdtemp(prefix="minitransformer-kernels-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)
