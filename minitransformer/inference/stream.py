"""Bytes in, bytes out: exactly one line for each line, in order, as soon as lines stop coming."""

from __future__ import annotations

import dataclasses
import io
import re
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from minitransformer.data.survey import LONGEST_LINE, READ_ERRORS, CorpusError, content, open_bytes
from minitransformer.inference.beam import SearchConfig
from minitransformer.inference.translator import Translation, Translator

LINES_AT_ONCE = 2_048  # sorted by length together; their translations appear together
PAUSE = 0.1  # seconds without input, after which what has come is translated
_BYTES_AT_ONCE = 1 << 16
_CUT_CHARACTER = re.compile(rb"[\xc0-\xff][\x80-\xbf]{0,2}\Z")  # in UTF-8: the last one, which may lack bytes


class Source(Protocol):
    """What lines are read from: a file, or a pipe."""

    def read1(self, size: int, /) -> bytes:
        """What is there, but for nothing wait; empty at the end only."""

    def fileno(self) -> int:
        """The descriptor; an OSError if there is none."""

    def isatty(self) -> bool:
        """Whether somebody types."""


def groups_of_lines(source: Source, size: int) -> Iterator[list[bytes]]:
    """Lines without their line feeds, ``size`` together; fewer at the end, and wherever the source pauses.

    So a program that writes a line into a pipe and waits gets its translation.  A file never pauses: its groups, and
    so all bits of the results, depend on nothing else.  Of a line beyond LONGEST_LINE one byte more is kept.
    """
    lines: list[bytes] = []
    line = bytearray()  # whose end has not come yet
    while data := source.read1(_BYTES_AT_ONCE):
        first, *others = data.split(b"\n")
        line += first[: LONGEST_LINE + 1 - len(line)]
        for following in others:
            lines.append(bytes(line))
            line = bytearray(following)
        while len(lines) >= size:
            yield lines[:size]
            del lines[:size]
        if lines and _pauses(source):
            yield lines
            lines = []
    if line:
        lines.append(bytes(line))
    if lines:
        yield lines


@contextmanager
def groups_of_file(path: Path, size: int) -> Iterator[Iterator[list[bytes]]]:
    """``groups_of_lines`` of a file, plain, gzip or xz.  Raises: CorpusError if it cannot be opened, or be read on."""
    hint = "--input names a UTF-8 text file, plain, .gz or .xz"

    def read(stream: Source) -> Iterator[list[bytes]]:
        try:
            yield from groups_of_lines(stream, size)
        except READ_ERRORS as error:
            raise CorpusError(f"{path}: cannot be read to its end: {error}; {hint}") from error

    try:
        stream = open_bytes(path)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error}; {hint}") from error
    with stream:
        yield read(stream)


def decoded(line: bytes, number: int, warn: Callable[[str], None]) -> str:
    """The text of an input's line ``number`` (from 1), without its end, blanks around it, or a byte order mark.

    What is not UTF-8 is read with replacements, what is longer than LONGEST_LINE is cut off; a warning names the line.
    """
    line = content(line, number)
    if len(line) > LONGEST_LINE:
        warn(f"warning: line {number} has over {LONGEST_LINE:,} bytes; the rest is cut off")
        line = _CUT_CHARACTER.sub(b"", line[:LONGEST_LINE])
    try:
        return line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        warn(f"warning: line {number} is not UTF-8 ({error.reason}); read with replacements")
        return line.decode("utf-8", errors="replace").strip()


def cut_warning(name: str, translator: Translator) -> str:
    """What to say of a line or a tree that is longer than what the model is given of it."""
    return f"warning: {name} has over {translator.longest_source:,} tokens; the rest is cut off"


def _pauses(source: Source) -> bool:
    try:
        descriptor = source.fileno()
    except io.UnsupportedOperation:
        return False
    return not select.select([descriptor], [], [], PAUSE)[0]


@dataclass(frozen=True)
class LineTranslator:
    """Turns groups of lines into what is written for them.

    With ``n_best``, up to so many lines for each: number, score, log-probability and translation, between tabs.
    """

    translator: Translator
    search: SearchConfig
    n_best: int | None = None
    n_threads: int | None = None
    warn: Callable[[str], None] = lambda line: None

    def __call__(self, lines: Sequence[bytes], n_before: int) -> bytes:
        """The translations of a group of lines, which follow ``n_before`` others."""
        texts = [decoded(line, number, self.warn) for number, line in enumerate(lines, n_before + 1)]
        for i in self.translator.cut(texts):
            self.warn(cut_warning(f"line {n_before + 1 + i}", self.translator))
        found = self.translator.n_best(texts, self.search, n_threads=self.n_threads)
        return "".join(self._formatted(of_line, n) for n, of_line in enumerate(found, n_before + 1)).encode()

    def facts(self) -> dict[str, Any]:
        """All that decides what is written for a line."""
        model = self.translator.fingerprint()
        return {**dataclasses.asdict(self.search), "n_best": self.n_best, "model": model}

    def _formatted(self, translations: Sequence[Translation], number: int) -> str:
        if self.n_best is None:
            return translations[0].text + "\n"
        return "".join(f"{number}\t{t.score:.4f}\t{t.log_probability:.4f}\t{t.text}\n" for t in translations)
