"""Reading of text files: their lines, a survey of unusual lines, and fingerprints to detect changed files."""

from __future__ import annotations

import hashlib
import io
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from minitransformer.system.errors import UserError
from minitransformer.system.file_kinds import (
    N_FIRST_BYTES,
    OPENERS,
    ZstdError,
    refusal_by_ending,
    refusal_by_first_bytes,
)

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
N_NAMED = 5  # locations of one kind in a message; further ones are only counted
LONGEST_LINE = 1_000_000  # bytes: no sentence is this long, and sentencepiece crashes at 300 times this length
_OBSTACLES: dict[type[BaseException], str] = {
    FileNotFoundError: "not found",
    NotADirectoryError: "not found: its parent is a file, not a directory",
    IsADirectoryError: "is a directory",
    PermissionError: "may not be read by this user",
}
READ_ERRORS = (EOFError, lzma.LZMAError, zlib.error, OSError, ZstdError)
# Other characters that editors take for the end of a line: single bytes, and U+0085, U+2028 and U+2029 in UTF-8.
_SEPARATORS, _LONG_SEPARATORS = frozenset(b"\x0b\x0c\r\x1c\x1d\x1e"), (b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
_ORDINARY = bytes([9, *range(32, 127), *range(128, 256)])

Item = TypeVar("Item")
Location: TypeAlias = int | str
Pair: TypeAlias = tuple[str, str]  # a source line and its target line


class CorpusError(UserError, ValueError):
    """An error: text cannot be used; the message has file, line and remedy."""


@dataclass
class Found:
    """The number of lines or pairs of one kind, and their first locations."""

    count: int = 0
    first: list[Location] = field(default_factory=list)

    def add(self, location: Location) -> None:
        """Count one more line or pair, found at ``location``."""
        self.count += 1
        if len(self.first) < N_NAMED:
            self.first.append(location)

    def extend(self, later: Found) -> None:
        """Add the lines or pairs that were found in later text."""
        self.count += later.count
        self.first += later.first[: N_NAMED - len(self.first)]

    @property
    def locations(self) -> str:
        """The first locations, as text for messages."""
        return ", ".join(f"{location:,}" if isinstance(location, int) else location for location in self.first) + (
            " …" if self.count > len(self.first) else ""
        )


@dataclass(frozen=True)
class Survey:
    """The survey of a complete UTF-8 file.

    ``odd`` counts unusual lines by kind; for a file with both sides, it counts entries without a pair by reason.
    ``languages`` are the codes of source and target of a file with both sides.
    """

    n_lines: int
    odd: dict[str, Found]
    languages: tuple[str, ...] = ()


def groups_of(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of ``size`` items; the last one may be shorter."""
    iterator = iter(items)
    while group := list(itertools.islice(iterator, size)):
        yield group


def open_bytes(path: Path) -> io.BufferedReader:
    """Open a file for reading, and decompress it if its name ends in .gz, .xz or .zst.

    Raises: OSError; UserError for .zst if this Python has no Zstandard.
    """
    opener = OPENERS.get(path.suffix.lower())
    return cast(io.BufferedReader, path.open("rb") if opener is None else opener(path))


def open_text(path: Path) -> io.BufferedReader:
    """Open a text file as ``open_bytes`` does.  Raises: CorpusError if the file is not text, and READ_ERRORS."""
    require_text(path, refusal_by_ending(path))
    stream = open_bytes(path)
    try:
        require_text(path, refusal_by_first_bytes(stream.peek(N_FIRST_BYTES)[:N_FIRST_BYTES]))
    except BaseException:
        stream.close()
        raise
    return stream


def require_text(name: Path | str, refusal: str | None) -> None:
    """Raise CorpusError if there is a reason, ``refusal``, not to read the input ``name`` as text."""
    if refusal is not None:
        raise CorpusError(f"{name}: {refusal}")


def byte_lines(path: Path, opened: Callable[[Path], io.BufferedReader] = open_text) -> Iterator[bytes]:
    """Yield the lines of a text file (plain, gzip, xz or Zstandard) with their line ends; only a line feed ends a line.

    Raises: CorpusError if the file is missing, is not text or cannot be read to its end, or if a line is too long.
        The message names the file, and the line that is too long.
    """
    number = 0
    try:
        with opened(path) as stream:
            while line := stream.readline(LONGEST_LINE + 2):
                number += 1
                if len(line) > LONGEST_LINE + 1:
                    raise CorpusError(
                        f"{path}, line {number}: has more than {LONGEST_LINE:,} bytes; expected one sentence per line:"
                        " split it, or take it out of this file and the same line out of its partner"
                    )
                yield line
    except tuple(_OBSTACLES) as error:
        raise CorpusError(
            f"{path}: {_OBSTACLES[type(error)]}; expected a text file, plain, .gz, .xz or .zst"
        ) from error
    except READ_ERRORS as error:
        raise CorpusError(
            f"{path}: cannot be read after line {number}: {error}; the file may be incomplete, or not what it is named"
        ) from error


def content(line: bytes, number: int) -> bytes:
    """Return a line without its end (LF or CR LF); if it is line number 1, also without a byte order mark."""
    return line.removesuffix(b"\n").removesuffix(b"\r").removeprefix(BYTE_ORDER_MARK if number == 1 else b"")


def read_lines(path: Path, opened: Callable[[Path], io.BufferedReader] = open_text) -> Iterator[str]:
    """Yield the lines of a text file without their ends; only a line feed ends a line.

    Raises: CorpusError as ``byte_lines`` does, and if a line is not UTF-8; then the message names file and line.
    """
    for number, line in enumerate(byte_lines(path, opened), 1):
        try:
            yield content(line, number).decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(path, number, error) from error


def survey(path: Path) -> Survey:
    """Read a file to its end and count unusual lines.

    Raises: CorpusError as ``read_lines`` does; if lines are not UTF-8, the message has their count and the first line
        numbers.
    """
    n_lines, odd, broken, first = 0, dict[str, Found](), Found(), None
    for n_lines, line in enumerate(byte_lines(path), 1):
        for kind in _oddities(line, n_lines):
            odd.setdefault(kind, Found()).add(n_lines)
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            broken.add(n_lines)
            first = first or _not_utf8(path, n_lines, error)
    if first:
        raise CorpusError(f"{first}. Lines of this kind: {broken.count:,} of {n_lines:,} ({broken.locations})")
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


def _not_utf8(path: Path, number: int, error: UnicodeDecodeError) -> CorpusError:
    return CorpusError(
        f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start + 1} of the line);"
        " convert the file from the encoding that it has, for example windows-1252 (Western Europe), windows-1251"
        " (Cyrillic), gb18030 (Chinese) or cp932 (Japanese): iconv -f windows-1252 -t utf-8; or, if only some lines are"
        " broken, take them out of this file and the same lines out of its partner"
    )


def fingerprint_of_file(path: Path) -> dict[str, Any]:
    """Return a file's size in bytes and its checksum, to detect whether it has changed.

    Raises: CorpusError; a pipe cannot be read twice, and a device, such as /dev/zero, may have no end.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        kind = "pipe" if path.is_fifo() else "device or a socket"
        raise CorpusError(f"{path}: is a {kind}, but text is read several times; write it to a file, and name the file")
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
            return {"bytes": stream.tell(), "blake2b": digest}
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error}") from error
