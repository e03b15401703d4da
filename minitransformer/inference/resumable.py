"""Translating a large file into another, cut off at any moment and taken up again: nothing is lost or repeated.

A group of lines is translated, appended to the output and synced; only then a small file beside the output, replaced
as a whole, says how far it is.  What stands in the output behind that point was being written when the process died,
and is cut off when the work is taken up.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from minitransformer.errors import UserError
from minitransformer.files import read_record, sync, write_text
from minitransformer.inference.stream import LineTranslator, groups_of_file

_BYTES_AT_ONCE = 1 << 20


class ResumeError(UserError, RuntimeError):
    """A translation that cannot be taken up, or should not be overwritten."""


@dataclass(frozen=True)
class Progress:
    """How far a translation is: input lines, output bytes, checksums of both, and what it was made with."""

    n_lines: int
    n_bytes: int
    input: str
    output: str
    made_with: dict[str, Any]


def progress_file(output: Path) -> Path:
    """The file beside an unfinished output that says how far it is."""
    return output.with_name(f"{output.name}.progress.json")


def translate_file(
    translate: LineTranslator,
    source: Path,
    output: Path,
    *,
    resume: bool,
    lines_at_once: int,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Translate a file; with ``resume``, go on where an earlier call was cut off.

    The bytes of the output do not depend on how often that was.
    Raises: ResumeError if there is something to resume and ``resume`` is not asked for, the output is of another
        input, model or search, or was changed or is being written; CorpusError for an input that cannot be read.
    """
    if output.exists() and source.exists() and output.samefile(source):
        raise ResumeError(f"{output}: is the input, too; choose another --output")
    with groups_of_file(source, lines_at_once) as groups, _opened(output) as target:
        lines = itertools.chain.from_iterable(groups)
        run = _Run(translate.facts(), target, output)
        if not (run.take_up(lines, source) if resume else run.begin()):
            say(f"{output}: complete; nothing is left to do")
            return
        if run.n_lines:
            say(f"going on after line {run.n_lines:,}")
        try:
            while group := list(itertools.islice(lines, lines_at_once)):
                run.append(group, translate(group, run.n_lines))
        except KeyboardInterrupt:
            say(f"interrupted after line {run.n_lines:,}; the same command with --resume goes on from there")
            raise
        _remove_notes(output)


@contextmanager
def _opened(output: Path) -> Iterator[BinaryIO]:
    """The output, for this process alone."""
    try:
        with output.open("a+b") as target:  # reads anywhere, writes at the end
            fcntl.flock(target, fcntl.LOCK_EX | fcntl.LOCK_NB)
            target.seek(0)
            yield target
    except BlockingIOError as error:
        raise ResumeError(
            f"{output}: another process is writing it; wait for it, or choose another --output"
        ) from error
    except OSError as error:
        raise ResumeError(
            f"{output}: cannot be written ({error}); mend that, and give the same command with --resume"
        ) from error


def _remove_notes(output: Path) -> None:
    """Remove the note, and what of notes was being written when processes died."""
    note = progress_file(output)
    for path in (note, *output.parent.glob(f".{glob.escape(note.name)}.*.tmp")):
        path.unlink()
    sync(output.parent)


class _Run:
    """An output with what has been read and written for it so far."""

    def __init__(self, made_with: dict[str, Any], target: BinaryIO, path: Path) -> None:
        self.made_with, self.target, self.path = made_with, target, path
        self.n_lines = self.n_bytes = 0
        self.read, self.written = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)

    def begin(self) -> bool:
        """Start from nothing."""
        if progress_file(self.path).exists():
            raise ResumeError(
                f"{self.path}: an interrupted translation; go on with --resume, or remove {progress_file(self.path)}"
                " to start anew"
            )
        self.target.truncate(0)
        self._note()
        return True

    def append(self, lines: list[bytes], translations: bytes) -> None:
        """Write what a group of lines has become; when this returns, it stays."""
        self.target.write(translations)
        self.target.flush()
        os.fsync(self.target.fileno())
        self._count(lines, translations)
        self._note()

    def take_up(self, lines: Iterator[bytes], source: Path) -> bool:
        """Read as far as an earlier call came; False if that was the end."""
        if not progress_file(self.path).exists():
            return self._begin_or_end(lines, source)
        progress = read_record(progress_file(self.path), Progress)
        different = [name for name, value in self.made_with.items() if progress.made_with.get(name) != value]
        if different:
            raise self._refusal(f"was begun with another {', '.join(different)}")
        for _, line in zip(range(progress.n_lines), lines, strict=False):  # in this order: it takes no line too many
            self._count([line], b"")
        if (self.n_lines, self.read.hexdigest()) != (progress.n_lines, progress.input):
            raise self._refusal(f"{source} is not what it was when {progress.n_lines:,} of its lines were translated")
        while (left := progress.n_bytes - self.n_bytes) > 0 and (data := self.target.read(min(_BYTES_AT_ONCE, left))):
            self._count([], data)
        if (self.n_bytes, self.written.hexdigest()) != (progress.n_bytes, progress.output):
            raise self._refusal(f"its first {progress.n_bytes:,} bytes are not what was written")
        self.target.truncate(self.n_bytes)
        return True

    def _begin_or_end(self, lines: Iterator[bytes], source: Path) -> bool:
        """There is no note: nothing was begun, or all was done."""
        if not os.fstat(self.target.fileno()).st_size:
            return self.begin()
        last = 0
        for line in self.target:
            last = _number_of(line) if self.made_with["n_best"] else last + 1
        n_lines = sum(1 for line in lines)
        if last != n_lines:
            raise ResumeError(
                f"{self.path}: is there, with {last:,} lines for the {n_lines:,} of {source}, and nothing says"
                " what it was made with; remove it, or choose another --output"
            )
        return False

    def _refusal(self, reason: str) -> ResumeError:
        return ResumeError(
            f"{self.path}: {reason}; choose another --output, or remove {progress_file(self.path)} to start anew"
        )

    def _count(self, lines: list[bytes], translations: bytes) -> None:
        self.n_lines += len(lines)
        self.n_bytes += len(translations)
        for line in lines:
            self.read.update(line + b"\n")
        self.written.update(translations)

    def _note(self) -> None:
        progress = Progress(self.n_lines, self.n_bytes, self.read.hexdigest(), self.written.hexdigest(), self.made_with)
        write_text(progress_file(self.path), json.dumps(asdict(progress), indent=2) + "\n")


def _number_of(line: bytes) -> int:
    """The number that a line of n-best lists begins with; 0 if it is another line."""
    first = line.partition(b"\t")[0]
    return int(first) if first.isdigit() and len(first) < 20 else 0
