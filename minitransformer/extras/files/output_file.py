"""A file to which a resumable translation is appended, with the number and the checksum of its complete bytes."""

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


class ResumeError(UserError, RuntimeError):
    """An error: a translation cannot be resumed, or must not be overwritten."""


@contextmanager
def _refusals_of(output: Path) -> Iterator[None]:
    """Turn an error of the file system within this context into a ResumeError that names ``output``."""
    try:
        yield
    except OSError as error:
        raise ResumeError(
            f"{output}: cannot be written ({error}); correct that, then set resume and start it again"
        ) from error


@contextmanager
def open_output(output: Path) -> Iterator[BinaryIO]:
    """Open an output with a lock, so that no other process writes it.

    Raises: ResumeError if it cannot be opened, or another process is writing it.
    """
    with _refusals_of(output):
        target = output.open("a+b")  # reads anywhere, writes at the end
        target.seek(0)
    try:
        if not try_lock(target.fileno()):
            raise ResumeError(f"{output}: another process is writing it; wait for it, or choose another output")
        yield target
    finally:
        with _refusals_of(output):  # after a failed write, closing the file tries it again
            target.close()


class OutputFile:
    """A file that is written, with the number and the checksum of its complete bytes."""

    def __init__(self, target: BinaryIO, path: Path) -> None:
        self.target, self.path = target, path
        self.opening = self.closing = b""  # of the whole file
        self.n_bytes, self._checksum = 0, hashlib.blake2b(digest_size=16)

    @property
    def checksum(self) -> str:
        """The checksum of the complete bytes."""
        return self._checksum.hexdigest()

    @property
    def size(self) -> int:
        """The size of the file, with bytes that were incomplete when the process ended."""
        return os.fstat(self.target.fileno()).st_size

    def append(self, data: bytes) -> None:
        """Append bytes after those that are complete; when this returns, they are on disk."""
        if not self.n_bytes:
            data = self.opening + data
        self._write(data)
        self._count(data)

    def finish(self) -> None:
        """Write what ends the file; it does not count, because further lines would replace it."""
        if self._ending:
            self._write(self._ending)

    def read_as_far_as(self, n_bytes: int, checksum: str) -> None:
        """Read the recorded bytes.  Raises: ResumeError if they have changed."""
        while (left := n_bytes - self.n_bytes) > 0 and (data := self._read(min(_BYTES_AT_ONCE, left))):
            self._count(data)
        if (self.n_bytes, self.checksum) != (n_bytes, checksum):
            raise self.refusal(f"its first {n_bytes:,} bytes have changed since they were written")

    def remove_incomplete(self, done: bool) -> None:
        """Remove what follows the complete bytes.

        Raises: ResumeError if the file was complete (``done``) and has another end now.
        """
        if done:
            if self._read(len(self._ending) + 1) != self._ending:
                raise self.refusal(f"something was appended to the {self.n_bytes:,} bytes that were written")
        elif self.size > self.n_bytes:  # truncating to the same size would change the file's modification time
            self.truncate()

    def truncate(self) -> None:
        """Remove what follows the complete bytes, such as the end of a complete file."""
        with _refusals_of(self.path):
            self.target.truncate(self.n_bytes)

    def refusal(self, reason: str) -> ResumeError:
        """Return the error that this file cannot be continued."""
        return ResumeError(f"{self.path}: {reason}; choose another output, or remove this one to start anew")

    @property
    def _ending(self) -> bytes:
        return self.closing if self.n_bytes else self.opening + self.closing

    def _read(self, n_bytes: int) -> bytes:
        with _refusals_of(self.path):
            return self.target.read(n_bytes)

    def _write(self, data: bytes) -> None:
        with _refusals_of(self.path):
            self.target.write(data)
            self.target.flush()
            os.fsync(self.target.fileno())

    def _count(self, data: bytes) -> None:
        self.n_bytes += len(data)
        self._checksum.update(data)
