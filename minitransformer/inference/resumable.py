"""Translating a large file into another, cut off at any moment and taken up again: nothing is lost or repeated.

A group of lines is translated, appended to the output and synced; only then a small file beside the output, replaced
as a whole, says how far it is.  What stands in the output behind that point was being written when the process died,
and is cut off when the work is taken up.  The file stays when all is done: by it alone an output is known to be the
translation of this input by this model and search.
"""

from __future__ import annotations

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
from minitransformer.files import read_record, try_lock, write_text
from minitransformer.inference.stream import LineTranslator, groups_of_file

_BYTES_AT_ONCE = 1 << 20


class ResumeError(UserError, RuntimeError):
    """A translation that cannot be taken up, or should not be overwritten."""


@dataclass(frozen=True)
class Progress:
    """How far a translation is: input lines, output bytes, checksums of both, what it was made with; if that is all."""

    n_lines: int
    n_bytes: int
    input: str
    output: str
    made_with: dict[str, Any]
    done: bool = False


def progress_file(output: Path) -> Path:
    """The file beside an output that says how far it is."""
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
        if resume:
            run.take_up(lines, source)
        else:
            run.begin_again()
        if run.n_lines and not run.done:
            say(f"going on after line {run.n_lines:,}")
        try:
            while group := list(itertools.islice(lines, lines_at_once)):
                run.append(group, translate(group, run.n_lines))
        except KeyboardInterrupt:
            say(f"interrupted after line {run.n_lines:,}; the same command with --resume goes on from there")
            raise
        if run.done:
            say(f"{output}: complete; nothing is left to do")
        else:
            run.finish()


@contextmanager
def _opened(output: Path) -> Iterator[BinaryIO]:
    """The output, for this process alone."""
    try:
        with output.open("a+b") as target:  # reads anywhere, writes at the end
            if not try_lock(target.fileno()):
                raise ResumeError(f"{output}: another process is writing it; wait for it, or choose another --output")
            target.seek(0)
            yield target
    except OSError as error:
        raise ResumeError(
            f"{output}: cannot be written ({error}); mend that, and give the same command with --resume"
        ) from error


class _Run:
    """An output with what has been read and written for it so far."""

    def __init__(self, made_with: dict[str, Any], target: BinaryIO, path: Path) -> None:
        self.made_with, self.target, self.path = made_with, target, path
        self.n_lines, self.n_bytes, self.done = 0, 0, False
        self.read, self.written = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)

    def begin_again(self) -> None:
        """Start from nothing, also where an earlier translation has come to its end."""
        note = progress_file(self.path)
        if note.exists() and not read_record(note, Progress).done:
            raise ResumeError(
                f"{self.path}: an interrupted translation; go on with --resume, or remove {note} to start anew"
            )
        self._begin()

    def _begin(self) -> None:
        self.target.truncate(0)
        self._note()

    def append(self, lines: list[bytes], translations: bytes) -> None:
        """Write what a group of lines has become; when this returns, it stays."""
        if self.done:  # lines were appended to the input: what is written from now on is not all until it is noted
            self.done = False
            self._note()
        self.target.write(translations)
        self.target.flush()
        os.fsync(self.target.fileno())
        self._count(lines, translations)
        self._note()

    def finish(self) -> None:
        """Remove what of notes was being written when processes died, and note that this is all."""
        for path in self.path.parent.glob(f".{glob.escape(progress_file(self.path).name)}.*.tmp"):
            path.unlink()
        self.done = True
        self._note()

    def take_up(self, lines: Iterator[bytes], source: Path) -> None:
        """Read as far as an earlier call came; begin if there is no output."""
        size = os.fstat(self.target.fileno()).st_size
        if not size:
            self._begin()
            return
        if not progress_file(self.path).exists():
            raise ResumeError(
                f"{self.path}: is there, but not {progress_file(self.path)}, which would say what it was made from"
                " and with; remove it, or choose another --output"
            )
        progress = read_record(progress_file(self.path), Progress)
        different = [name for name, value in self.made_with.items() if progress.made_with.get(name) != value]
        if different:
            raise self._refusal(f"was begun with another {', '.join(different)}")
        self._read_as_far_as(progress, lines, source)
        if progress.done and size > self.n_bytes:
            raise self._refusal(f"something was appended to the {self.n_bytes:,} bytes that were written")
        if size > self.n_bytes:  # also one of the same size would make a complete output look new
            self.target.truncate(self.n_bytes)
        self.done = progress.done

    def _read_as_far_as(self, progress: Progress, lines: Iterator[bytes], source: Path) -> None:
        """Read what of input and output is noted.  Raises: ResumeError if it is not what it was."""
        for _, line in zip(range(progress.n_lines), lines, strict=False):  # in this order: it takes no line too many
            self._count([line], b"")
        if (self.n_lines, self.read.hexdigest()) != (progress.n_lines, progress.input):
            raise self._refusal(f"{source} is not what it was when {progress.n_lines:,} of its lines were translated")
        while (left := progress.n_bytes - self.n_bytes) > 0 and (data := self.target.read(min(_BYTES_AT_ONCE, left))):
            self._count([], data)
        if (self.n_bytes, self.written.hexdigest()) != (progress.n_bytes, progress.output):
            raise self._refusal(f"its first {progress.n_bytes:,} bytes are not what was written")

    def _refusal(self, reason: str) -> ResumeError:
        return ResumeError(f"{self.path}: {reason}; choose another --output, or remove this one to start anew")

    def _count(self, lines: list[bytes], translations: bytes) -> None:
        self.n_lines += len(lines)
        self.n_bytes += len(translations)
        for line in lines:
            self.read.update(line + b"\n")
        self.written.update(translations)

    def _note(self) -> None:
        checksums = self.read.hexdigest(), self.written.hexdigest()
        progress = Progress(self.n_lines, self.n_bytes, *checksums, self.made_with, self.done)
        write_text(progress_file(self.path), json.dumps(asdict(progress), indent=2) + "\n")
