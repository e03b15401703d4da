"""Resumable translation of a large file: after an interruption at any moment, nothing is lost or repeated.

A group of lines is translated, appended to the output and synced.  Only then the progress file, a small file beside the
output, is replaced atomically; it holds the number of lines and bytes that are complete.  Output after these bytes was
incomplete when the process ended; resuming removes it.  The progress file remains when the translation is complete: it
alone records the input, the model and the search from which the output was made.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from minitransformer.inference.memories import Languages, MemoryTranslator, groups_of_input
from minitransformer.inference.stream import LineTranslator
from minitransformer.system.errors import UserError
from minitransformer.system.files import read_record, try_lock, write_text

_log = logging.getLogger(__name__)
_BYTES_AT_ONCE = 1 << 20


class ResumeError(UserError, RuntimeError):
    """An error: a translation cannot be resumed, or must not be overwritten."""


@dataclass(frozen=True)
class Progress:
    """The content of a progress file.

    It has the numbers of complete lines and bytes, their checksums, the settings, and whether the translation is
    complete.
    """

    n_lines: int
    n_bytes: int
    input: str
    output: str
    made_with: dict[str, Any]
    done: bool = False


def progress_file(output: Path) -> Path:
    """Return the path of the progress file of an output."""
    return output.with_name(f"{output.name}.progress.json")


def translate_file(
    translate: LineTranslator | MemoryTranslator,
    source: Path,
    output: Path,
    *,
    resume: bool,
    lines_at_once: int,
    languages: Languages | None = None,
) -> None:
    """Translate a file; with ``resume``, continue where an earlier call was interrupted.

    ``languages`` are needed if the source is a translation memory.  The bytes of the output do not depend on the number
    of interruptions.
    Raises: ResumeError if an interrupted output exists and ``resume`` is not set; ResumeError if the output was made
        from another input, model or search, was changed, or is being written; CorpusError if the input cannot be read.
    """
    if output.exists() and source.exists() and output.samefile(source):
        raise ResumeError(f"{output}: is the input, too; choose another output")
    with groups_of_input(source, lines_at_once, languages) as groups, _opened(output) as target:
        lines = itertools.chain.from_iterable(groups)
        run = _Run(translate, target, output)
        if resume:
            run.take_up(lines, source)
        else:
            run.begin_again()
        if run.n_lines and not run.done:
            _log.info(f"going on after line {run.n_lines:,}")
        try:
            while group := list(itertools.islice(lines, lines_at_once)):
                run.append(group, translate(group, run.n_lines))
        except KeyboardInterrupt:
            _log.info(f"interrupted after line {run.n_lines:,}; to continue from there, start it again with resume set")
            raise
        if run.done:
            _log.info(f"{output}: complete; nothing is left to do")
        else:
            run.finish()


@contextmanager
def _opened(output: Path) -> Iterator[BinaryIO]:
    """Open the output with a lock, so that no other process writes it."""
    try:
        with output.open("a+b") as target:  # reads anywhere, writes at the end
            if not try_lock(target.fileno()):
                raise ResumeError(f"{output}: another process is writing it; wait for it, or choose another output")
            target.seek(0)
            yield target
    except OSError as error:
        raise ResumeError(
            f"{output}: cannot be written ({error}); correct that, then start it again with resume set"
        ) from error


class _Run:
    """An output file, with the counts and checksums of the input read and the output written so far."""

    def __init__(self, translate: LineTranslator | MemoryTranslator, target: BinaryIO, path: Path) -> None:
        self.made_with, self.target, self.path = translate.facts(), target, path
        self.opening, self.closing = translate.opening, translate.closing
        self.n_lines, self.n_bytes, self.done = 0, 0, False
        self.read, self.written = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)

    def begin_again(self) -> None:
        """Start an empty output; overwrite a complete one.  Raises: ResumeError if there is an interrupted output."""
        note = progress_file(self.path)
        if note.exists() and not read_record(note, Progress).done:
            raise ResumeError(
                f"{self.path}: an interrupted translation; set resume to continue it, or remove {note} to start anew"
            )
        self._begin()

    def _begin(self) -> None:
        self.target.truncate(0)
        self._note()

    def append(self, lines: list[bytes], translations: bytes) -> None:
        """Append the translations of a group of lines; when this returns, they are on disk."""
        if self.done:  # lines were appended to the input: record that the output is incomplete again
            self.done = False
            self._note()
            self.target.truncate(self.n_bytes)  # without the closing
        if not self.n_lines:
            translations = self.opening + translations
        self._write(translations)
        self._count(lines, translations)
        self._note()

    def _write(self, content: bytes) -> None:
        self.target.write(content)
        self.target.flush()
        os.fsync(self.target.fileno())

    @property
    def _ending(self) -> bytes:
        """What follows the translations in a complete output."""
        return self.closing if self.n_lines else self.opening + self.closing

    def finish(self) -> None:
        """Write the end, remove temporary progress files of processes that died, and record that all is complete."""
        if self._ending:
            self._write(self._ending)
        for path in self.path.parent.glob(f".{glob.escape(progress_file(self.path).name)}.*.tmp"):
            path.unlink()
        self.done = True
        self._note()

    def take_up(self, lines: Iterator[bytes], source: Path) -> None:
        """Restore the state at which an earlier call ended; if there is no output yet, start an empty one.

        Raises: ResumeError if the output cannot be continued with this input, model and search.
        """
        size = os.fstat(self.target.fileno()).st_size
        if not size:
            self._begin()
            return
        if not progress_file(self.path).exists():
            raise ResumeError(
                f"{self.path}: exists, but {progress_file(self.path)}, which would record its input and model,"
                " does not; remove the output, or choose another"
            )
        progress = read_record(progress_file(self.path), Progress)
        names = dict.fromkeys([*self.made_with, *progress.made_with])
        different = [name for name in names if progress.made_with.get(name) != self.made_with.get(name)]
        if different:
            raise self._refusal(f"was begun with another {', '.join(different)}")
        self._read_as_far_as(progress, lines, source)
        if progress.done:
            if self.target.read(len(self._ending) + 1) != self._ending:
                raise self._refusal(f"something was appended to the {self.n_bytes:,} bytes that were written")
        elif size > self.n_bytes:  # truncating to the same size would change the file's modification time
            self.target.truncate(self.n_bytes)
        self.done = progress.done

    def _read_as_far_as(self, progress: Progress, lines: Iterator[bytes], source: Path) -> None:
        """Read the recorded part of input and output.  Raises: ResumeError if either has changed."""
        for _, line in zip(range(progress.n_lines), lines, strict=False):  # range first: zip takes no line too many
            self._count([line], b"")
        if (self.n_lines, self.read.hexdigest()) != (progress.n_lines, progress.input):
            raise self._refusal(f"{source} has changed since {progress.n_lines:,} of its lines were translated")
        while (left := progress.n_bytes - self.n_bytes) > 0 and (data := self.target.read(min(_BYTES_AT_ONCE, left))):
            self._count([], data)
        if (self.n_bytes, self.written.hexdigest()) != (progress.n_bytes, progress.output):
            raise self._refusal(f"its first {progress.n_bytes:,} bytes have changed since they were written")

    def _refusal(self, reason: str) -> ResumeError:
        return ResumeError(f"{self.path}: {reason}; choose another output, or remove this one to start anew")

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
