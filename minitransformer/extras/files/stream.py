"""Translation of a stream of lines: one output line for each input line, in order, written when the input pauses."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import logging
import re
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

from minitransformer.data.normalisation import BLANKS
from minitransformer.data.survey import LONGEST_LINE, READ_ERRORS, CorpusError, content, open_text, require_text
from minitransformer.extras.files.notes import NoteLog
from minitransformer.extras.sampling import Sampling
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.system.errors import UserError
from minitransformer.system.file_kinds import N_FIRST_BYTES, refusal_by_first_bytes
from minitransformer.text.codes import Parts
from minitransformer.text.road import Road
from minitransformer.text.translation import Links, Translation

LINES_AT_ONCE = 2_048  # lines of a group, which are batched by length; their translations are written together
PAUSE = 0.1  # seconds without input, after which the lines read so far are translated
_BYTES_AT_ONCE = 1 << 16
_log = logging.getLogger(__name__)
_LINE_BREAK = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")  # whitespace that some programs take for a line's end
_CUT_CHARACTER = re.compile(rb"[\xc0-\xff][\x80-\xbf]{0,2}\Z")  # a last UTF-8 character that may be incomplete


LinesDone: TypeAlias = Callable[[float], None]  # called on any thread with the number, or fraction, of lines finished


class Source(Protocol):
    """An input of bytes: a file, a pipe or a terminal."""

    def read1(self, size: int, /) -> bytes:
        """Return available bytes; wait only if there are none.  The result is empty only at the end of the input."""

    def fileno(self) -> int:
        """Return the file descriptor.  Raises: OSError if there is none."""

    def isatty(self) -> bool:
        """Return whether the input is a terminal."""


def groups_of_lines(source: Source, size: int) -> Iterator[list[bytes]]:
    """Yield groups of ``size`` lines without line feeds; a group is smaller at the end and when the source pauses.

    So a program that writes one line into a pipe and waits gets the line's translation.  A file never pauses: the
    groups, and every bit of the results, depend on the file's content alone.  A line over LONGEST_LINE bytes is cut to
    LONGEST_LINE + 1 bytes, so that the caller can detect the cut.
    """
    lines: list[bytes] = []
    line = bytearray()  # incomplete: no line feed read yet
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


def groups_of_standard_input(source: Source, size: int) -> Iterator[list[bytes]]:
    """Yield the groups of ``groups_of_lines``.  Raises: CorpusError if the input does not begin like a text."""
    first = b""
    for lines in groups_of_lines(source, size):
        if len(first) < N_FIRST_BYTES:
            first = (first + b"".join(line + b"\n" for line in lines))[:N_FIRST_BYTES]
            require_text("standard input", refusal_by_first_bytes(first))
        yield lines


@contextmanager
def groups_of_file(path: Path, size: int) -> Iterator[Iterator[list[bytes]]]:
    """Open a text file, plain, gzip or xz, for ``groups_of_lines``.

    Raises: CorpusError if the file cannot be read, or is of another kind.
    """
    hint = "the input must be a UTF-8 text file, plain, .gz, .xz or .zst"

    def read(stream: Source) -> Iterator[list[bytes]]:
        try:
            yield from groups_of_lines(stream, size)
        except READ_ERRORS as error:
            raise CorpusError(f"{path}: cannot be read to its end: {error}; {hint}") from error

    try:
        stream = open_text(path)
    except READ_ERRORS as error:
        raise CorpusError(f"{path}: cannot be read: {error}; {hint}") from error
    with stream:
        yield read(stream)


class PrefixError(UserError, ValueError):
    """An error: the beginnings of translations do not belong to the lines of the input."""


@dataclass(frozen=True)
class Prefixes:
    """The beginnings of the translations of an input: one for each line, or one for all lines.

    ``path`` is the file that has a beginning for each line; None if one beginning is for all lines.
    """

    texts: Sequence[str]
    path: Path | None = None

    def of_lines(self, n_before: int, n_lines: int) -> list[str]:
        """Return the beginnings for the ``n_lines`` lines that follow the first ``n_before`` lines.

        Raises: PrefixError if there are too few beginnings.
        """
        if self.path is None:
            return list(self.texts) * n_lines
        self.require_lines(max(n_before + n_lines, len(self.texts)))
        return list(self.texts[n_before : n_before + n_lines])

    def require_lines(self, n_lines: int) -> None:
        """Raise PrefixError if ``path`` has another number of lines than ``n_lines``, the number in the input."""
        if self.path is not None and len(self.texts) != n_lines:
            more_or_fewer = "more" if len(self.texts) > n_lines else "fewer"
            raise PrefixError(
                f"{self.path}: has {len(self.texts):,} lines, {more_or_fewer} than the input; give one line for each"
                " line of the input, an empty one where nothing is given"
            )

    def checksum(self, n_lines: int) -> str:
        """Return a checksum of the beginnings of the first ``n_lines`` lines."""
        text = "\n".join(["all", *self.texts] if self.path is None else ["each", *self.texts[:n_lines]])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def read_prefixes(path: Path) -> Prefixes:
    """Read a file of beginnings of translations; keep a blank at the end of a line.

    Raises: CorpusError if the file cannot be read.
    """
    texts = list[str]()
    with groups_of_file(path, LINES_AT_ONCE) as groups:
        for group in groups:
            for line in group:
                blank = " " * (line.rstrip(b"\r")[-1:] in (b" ", b"\t"))
                texts.append(decoded(line, len(texts) + 1, f"{path}: line") + blank)
    return Prefixes(texts, path)


def decoded(line: bytes, number: int, of: str = "line") -> str:
    """Decode line ``number`` (from 1) of an input, without surrounding blanks and byte order mark.

    Bytes that are not UTF-8 are replaced, and a line over LONGEST_LINE bytes is cut; the log names such a line, after
    ``of``.  A line of whitespace alone, such as U+3000, becomes "".
    """
    line = content(line, number)
    if len(line) > LONGEST_LINE:
        _log.warning(f"{of} {number} has over {LONGEST_LINE:,} bytes; the rest is cut off")
        line = _CUT_CHARACTER.sub(b"", line[:LONGEST_LINE])
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        _log.warning(f"{of} {number} is not UTF-8 ({error.reason}); read with replacements")
        text = line.decode("utf-8", errors="replace")
    return "" if text.isspace() else text.strip(BLANKS)


def warn_of_cut(name: str, translator: Translator) -> None:
    """Log that the line or tree ``name`` is cut, because it is too long for the model."""
    _log.warning(f"{name} has over {translator.longest_source:,} tokens; the rest is cut off")


def _pauses(source: Source) -> bool:
    try:
        descriptor = source.fileno()
    except io.UnsupportedOperation:
        return False
    return not select.select([descriptor], [], [], PAUSE)[0]


@dataclass(frozen=True)
class TextTranslator:
    """A model with the road, the search (or the sampler) and the threads by which it translates texts."""

    translator: Translator
    search: SearchConfig
    road: Road
    sampling: Sampling | None = None
    n_threads: int | None = None

    def __call__(
        self,
        texts: Sequence[str | Parts],
        n_before: int,
        prefixes: Sequence[str] | None,
        advance: LinesDone,
        *,
        aligned: bool,
    ) -> list[list[Translation]]:
        """Translate texts, before which come ``n_before`` others; see ``Translator.translate_texts``."""
        for number, prefix in enumerate(prefixes or (), n_before + 1):
            if self.translator.prefixer.is_cut(prefix):
                warn_of_cut(f"the beginning of the translation of line {number}", self.translator)
        return self.translator.translate_texts(
            texts,
            self.search,
            self.road,
            n_threads=self.n_threads,
            advance=advance,
            prefixes=prefixes,
            sampling=self.sampling,
            n_before=n_before,
            aligned=aligned,
        )

    def facts(self) -> dict[str, Any]:
        """Return the settings on which translations depend, and the checksum of the model."""
        return {
            **dataclasses.asdict(self.search),
            "no_repeat": self.search.no_repeat or None,
            "model": self.translator.fingerprint(),
            "sampling": self.sampling and dataclasses.asdict(self.sampling),
            **self.road.facts(),
        }


@dataclass(frozen=True)
class LineFormat:
    """The output for a line: its translation or, with ``n_best``, a row for each of up to ``n_best`` translations.

    A row has number, score, log-probability and translation, tab-separated.  ``alignments`` is the path of the file for
    word alignments, one line for each output line; the caller writes the file.
    """

    n_best: int | None = None
    alignments: Path | None = None

    def translations(self, found: Sequence[Translation], number: int) -> str:
        """Return the output lines for line ``number`` (from 1) of the input."""
        texts = [_LINE_BREAK.sub(" ", each.text) for each in found]
        if self.n_best is None:
            return texts[0] + "\n"
        rows = zip(found, texts, strict=True)
        return "".join(f"{number}\t{t.score:.4f}\t{t.log_probability:.4f}\t{text}\n" for t, text in rows)

    def links(self, found: Sequence[Translation]) -> str:
        """Return the word alignments of the translations of a line, one for each of its output lines."""
        return "".join(f"{pharaoh(each.alignment)}\n" for each in (found if self.n_best else found[:1]))


@dataclass(frozen=True)
class LineTranslator:
    """A translation of groups of lines into output bytes; ``notes`` collects the notes on all lines."""

    opening: ClassVar[bytes] = b""  # an output of lines has no bytes before its first line, or after its last line
    closing: ClassVar[bytes] = b""
    whole_units: ClassVar[bool] = False  # lines are text, not units of a memory
    translator: TextTranslator
    format: LineFormat = field(default_factory=LineFormat)
    prefixes: Prefixes | None = None
    notes: NoteLog = field(default_factory=NoteLog, compare=False)

    @property
    def alignments(self) -> Path | None:
        """The path of the file for word alignments, or None."""
        return self.format.alignments

    def __call__(self, lines: Sequence[bytes], n_before: int, advance: LinesDone = lambda n: None) -> list[bytes]:
        """Translate a group of lines; ``n_before`` lines of the input come before it.

        Returns: a list with the bytes of the translations and, if there is a file for alignments, of the alignments.
        """
        return self.outputs_of(self.texts_of(lines, n_before), n_before, advance)

    def texts_of(self, lines: Sequence[bytes], n_before: int) -> list[str]:
        """Decode a group of lines; see ``decoded``."""
        return [decoded(line, number) for number, line in enumerate(lines, n_before + 1)]

    def outputs_of(self, texts: Sequence[str], n_before: int, advance: LinesDone) -> list[bytes]:
        """Translate decoded lines; return the same as ``__call__``."""
        found = self._translate(texts, n_before, advance)
        outputs = ["".join(map(self.format.translations, found, itertools.count(n_before + 1)))]
        if self.alignments is not None:
            outputs.append("".join(map(self.format.links, found)))
        return [output.encode() for output in outputs]

    def segments(self, segments: Sequence[Parts], n_before: int, advance: LinesDone) -> list[Translation]:
        """Translate segments, and copy their codes into the translations."""
        return [best[0] for best in self._translate(segments, n_before, advance)]

    def _translate(self, texts: Sequence[str | Parts], n_before: int, advance: LinesDone) -> list[list[Translation]]:
        prefixes = None if self.prefixes is None else self.prefixes.of_lines(n_before, len(texts))
        found = self.translator(texts, n_before, prefixes, advance, aligned=self.alignments is not None)
        self.notes.add(found, n_before)  # last: an interrupted group is translated again
        return found

    def facts(self) -> dict[str, Any]:
        """Return the settings on which the output depends, except the prefixes, and the checksum of the model."""
        return {
            **self.translator.facts(),
            "n_best": self.format.n_best,
            "alignments": self.alignments and str(self.alignments),
        }


def pharaoh(links: Links) -> str:
    """Return word links in the format of Pharaoh and Moses: "0-0 2-1", the source word's index first."""
    return " ".join(f"{source}-{target}" for source, target in links)
