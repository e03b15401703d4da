"""All of an .xz file: ``lzma.open`` takes a damaged second stream for padding, and ends before it without an error."""

from __future__ import annotations

import io
import lzma
from pathlib import Path
from typing import Any

_BYTES_AT_ONCE = 1 << 16


class _Streams(io.RawIOBase):
    """The content of an .xz file's streams, one after another; zeros may lie between and behind them."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._decoder = lzma.LZMADecompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as there is content.  Raises: EOFError, LZMAError for a file that is not whole."""
        room, content = memoryview(buffer), b""
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
            content = self._decoder.decompress(compressed, len(room))
        room[: len(content)] = content
        return len(content)

    def _start_of_next(self) -> bytes:
        """Return what was read, or comes next, behind the end of a stream and the zeros there; nothing at the end."""
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
    """Open an .xz file to read it.  Raises: OSError."""
    return io.BufferedReader(_Streams(path))
