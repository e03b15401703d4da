"""A reader of .xz files that detects a corrupt second stream; ``lzma.open`` would treat it as padding and end early."""

from __future__ import annotations

import io
import lzma
from pathlib import Path
from typing import Any

_BYTES_AT_ONCE = 1 << 16


class _Streams(io.RawIOBase):
    """The concatenated content of an .xz file's streams; zeros may be between and after them."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._decoder = lzma.LZMADecompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next content.  Raises: EOFError or LZMAError if the file is incomplete or corrupt."""
        view, content = memoryview(buffer), b""
        while not content:
            compressed = b""
            if self._decoder.eof:
                compressed = self._start_of_next()
                if not compressed:
                    return 0
                self._decoder = lzma.LZMADecompressor()
            elif self._decoder.needs_input:
                compressed = self._file.read(_BYTES_AT_ONCE)
                if not compressed:
                    raise EOFError("the file ends within a compressed stream")
            content = self._decoder.decompress(compressed, len(view))
        view[: len(content)] = content
        return len(content)

    def _start_of_next(self) -> bytes:
        """Return bytes from the start of the next stream, without the zeros before it; b"" at the end of the file."""
        data = self._decoder.unused_data
        while not (start := data.lstrip(b"\0")):
            data = self._file.read(_BYTES_AT_ONCE)
            if not data:
                break
        return start

    def close(self) -> None:
        self._file.close()
        super().close()


def open_xz(path: Path) -> io.BufferedReader:
    """Open an .xz file for reading.  Raises: OSError."""
    return io.BufferedReader(_Streams(path))
