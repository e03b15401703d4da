"""What a text file is made of: its lines, what is odd about them, and a checksum by which it is known again."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

from minitransformer.data.xz import open_xz
from minitransformer.errors import UserError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
N_NAMED = 5  # places of one kind that are named one by one; the others are counted
LONGEST_LINE = 1_000_000  # bytes: no sentence is so long, and at 300 times that sentencepiece ends the process
_OPENERS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": open_xz}
COMPRESSED = tuple(_OPENERS)
_OBSTACLES: dict[type[BaseException], str] = {
    FileNotFoundError: "not found",
    NotADirectoryError: "not found: what it should lie in is a file",
    IsADirectoryError: "is a directory",
    PermissionError: "may not be read by this user",
}
READ_ERRORS = (EOFError, lzma.LZMAError, zlib.error, OSError)
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
# What editors and other tools take for the end of a line, as bytes and as longer sequences (U+0085, U+2028, U+2029).
_SEPARATORS, _LONG_SEPARATORS = frozenset(b"\x0b\x0c\r\x1c\x1d\x1e"), (b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
_ORDINARY = bytes([9, *range(32, 127), *range(128, 256)])

Place: TypeAlias = int | str


class CorpusError(UserError, ValueError):
    """Text that cannot be used, with file, line and remedy."""


@dataclass
class Found:
    """How often something was found, and the first places."""

    count: int = 0
    first: list[Place] = field(default_factory=list)

    def add(self, place: Place) -> None:
        """Count one more."""
        self.count += 1
        if len(self.first) < N_NAMED:
            self.first.append(place)

    @property
    def places(self) -> str:
        """The first places, for people."""
        return ", ".join(f"{place:,}" if isinstance(place, int) else place for place in self.first) + (
            " …" if self.count > len(self.first) else ""
        )


@dataclass(frozen=True)
class Survey:
    """A file that was read to its end; every line is UTF-8.  ``odd``: kinds of lines that are used all the same."""

    n_lines: int
    odd: dict[str, Found]


def open_bytes(path: Path) -> io.BufferedReader:
    """What a file holds, plain, or by its name gzip or xz.  Raises: OSError."""
    return cast(io.BufferedReader, _OPENERS[path.suffix](path) if path.suffix in _OPENERS else path.open("rb"))


def byte_lines(path: Path) -> Iterator[bytes]:
    """The lines of a text file, plain, gzip or xz, with their ends; only a line feed ends a line.

    Raises: CorpusError naming the file if it is missing or cannot be read to its end, and the line if it is too long.
    """
    number = 0
    try:
        with open_bytes(path) as stream:
            while line := stream.readline(LONGEST_LINE + 2):
                number += 1
                if len(line) > LONGEST_LINE + 1:
                    raise CorpusError(
                        f"{path}, line {number}: has more than {LONGEST_LINE:,} bytes; expected a sentence a line:"
                        " split it, or take it out of this file and the same line out of its partner"
                    )
                yield line
    except tuple(_OBSTACLES) as error:
        raise CorpusError(f"{path}: {_OBSTACLES[type(error)]}; expected a text file, plain, .gz or .xz") from error
    except READ_ERRORS as error:
        raise CorpusError(
            f"{path}: cannot be read after line {number}: {error}; the file may be incomplete, or not what it is named"
        ) from error


def content(line: bytes, number: int) -> bytes:
    """A line without its end (LF or CR LF) and, if it is the first of its file, without a byte order mark."""
    return line.removesuffix(b"\n").removesuffix(b"\r").removeprefix(BYTE_ORDER_MARK if number == 1 else b"")


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file without their ends; only a line feed ends a line.

    Raises: CorpusError naming the file, and the line if it is not UTF-8.
    """
    for number, line in enumerate(byte_lines(path), 1):
        try:
            yield content(line, number).decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(path, line, number, error) from error


def survey(path: Path) -> Survey:
    """Read a file to its end and count what is odd.

    Raises: CorpusError as ``read_lines``; if lines are not UTF-8, with their number and the first few.
    """
    n_lines, odd, broken, first = 0, dict[str, Found](), Found(), None
    for n_lines, line in enumerate(byte_lines(path), 1):
        for kind in _oddities(line, n_lines):
            odd.setdefault(kind, Found()).add(n_lines)
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            broken.add(n_lines)
            first = first or _not_utf8(path, line, n_lines, error)
    if first:
        raise CorpusError(f"{first}. Lines of this kind: {broken.count:,} of {n_lines:,} ({broken.places})")
    return Survey(n_lines, odd)


def _oddities(line: bytes, number: int) -> Iterator[str]:
    if number == 1 and line.startswith(BYTE_ORDER_MARK):
        yield "byte order mark (taken away)"
    if line.endswith(b"\r\n"):
        yield "CR LF at the end (taken away)"
    inside = content(line, number)
    controls = set(inside.translate(None, _ORDINARY))
    if controls & _SEPARATORS or any(separator in inside for separator in _LONG_SEPARATORS):
        yield "a separator that ends no line"
    if controls - _SEPARATORS:
        yield "control characters"


def _not_utf8(path: Path, line: bytes, number: int, error: UnicodeDecodeError) -> CorpusError:
    encoding = "utf-16" if number == 1 and line.startswith(_UTF_16) else "latin1"
    return CorpusError(
        f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start + 1} of the line);"
        f" convert the file, for example with: iconv -f {encoding} -t utf-8; or, if only some lines are broken, take"
        " them out of this file and the same lines out of its partner"
    )


def fingerprint_of_file(path: Path) -> dict[str, Any]:
    """By what a file of a corpus is known again: its size in bytes, and its checksum.  Raises: CorpusError."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
            return {"bytes": stream.tell(), "blake2b": digest}
    except FileNotFoundError as error:
        raise CorpusError(f"{path}: not found; --data.raw names the folder that holds the text files") from error
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error}") from error
