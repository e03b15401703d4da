"""The output file of a resumable translation, with the number and the checksum of its complete bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from minitransformer.system.errors import UserError
from minitransformer.system.files import try_lock

_BYTES_AT_ONCE = 1 << 20
OTHER_MODEL = 'model or weights ("float32" continues what a GPU began without TF32)'


class ResumeError(UserError, RuntimeError):
    """An error: a translation cannot be resumed, or must not be overwritten."""


@contextmanager
def refusals_of(output: Path) -> Iterator[None]:
    """Turn an error of the file system within this context into a ResumeError that names ``output``."""
    try:
        yield
    except OSError as error:
        raise ResumeError(
            f"{output}: cannot be written ({error}); correct that, then set resume and start it again"
        ) from error


@contextmanager
def open_output(output: Path) -> Iterator[BinaryIO]:
    """Open an output with a lock, so that no other process writes to it.

    Raises: ResumeError if the output cannot be opened, or if another process is writing to it.
    """
    with refusals_of(output):
        target = output.open("a+b")  # reads anywhere, writes at the end
        target.seek(0)
    try:
        if not try_lock(target.fileno()):
            raise ResumeError(f"{output}: another process is writing it; wait for it, or choose another output")
        yield target
    finally:
        with refusals_of(output):  # closing the file repeats a write that has failed
            target.close()


class OutputFile:
    """An output file, with the number and the checksum of its complete bytes."""

    def __init__(self, target: BinaryIO, path: Path) -> None:
        self.target, self.path = target, path
        self.opening = self.closing = b""  # bytes at the beginning and the end of the file
        self.n_bytes, self._checksum = 0, hashlib.blake2b(digest_size=16)

    @property
    def checksum(self) -> str:
        """The checksum of the complete bytes."""
        return self._checksum.hexdigest()

    @property
    def size(self) -> int:
        """The size of the file, including bytes that an interrupted process wrote incompletely."""
        return os.fstat(self.target.fileno()).st_size

    def append(self, data: bytes) -> None:
        """Append ``data`` to the complete bytes, and wait until it is on disk; write ``opening`` before the first."""
        if not self.n_bytes:
            data = self.opening + data
        self._write(data)
        self._count(data)

    def finish(self) -> None:
        """Write the end of the file.  The end is not counted as complete bytes, because more lines would replace it."""
        if self._ending:
            self._write(self._ending)

    def read_as_far_as(self, n_bytes: int, checksum: str) -> None:
        """Read the first ``n_bytes`` bytes, which are then complete.  Raises: ResumeError if ``checksum`` differs."""
        while (left := n_bytes - self.n_bytes) > 0 and (data := self._read(min(_BYTES_AT_ONCE, left))):
            self._count(data)
        if (self.n_bytes, self.checksum) != (n_bytes, checksum):
            raise self.refusal(f"its first {n_bytes:,} bytes have changed since they were written")

    def remove_incomplete(self, done: bool) -> None:
        """Remove bytes after the complete bytes; if the file is complete (``done``), only check its end.

        Raises: ResumeError if a complete file has another end than the one that was written.
        """
        if done:
            if self._read(len(self._ending) + 1) != self._ending:
                raise self.refusal(f"something was appended to the {self.n_bytes:,} bytes that were written")
        elif self.size > self.n_bytes:  # truncating to the same size would change the file's modification time
            self.truncate()

    def truncate(self) -> None:
        """Remove all bytes after the complete bytes, such as the end of a complete file."""
        with refusals_of(self.path):
            self.target.truncate(self.n_bytes)

    def refusal(self, reason: str) -> ResumeError:
        """Return the error for a file that cannot be continued for ``reason``."""
        return ResumeError(f"{self.path}: {reason}; choose another output, or remove this one to start anew")

    @property
    def _ending(self) -> bytes:
        return self.closing if self.n_bytes else self.opening + self.closing

    def _read(self, n_bytes: int) -> bytes:
        with refusals_of(self.path):
            return self.target.read(n_bytes)

    def _write(self, data: bytes) -> None:
        with refusals_of(self.path):
            self.target.write(data)
            self.target.flush()
            os.fsync(self.target.fileno())

    def _count(self, data: bytes) -> None:
        self.n_bytes += len(data)
        self._checksum.update(data)
