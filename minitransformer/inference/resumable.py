"""Resumable translation of a large file: after an interruption at any moment, nothing is lost or repeated.

A group of lines is translated, appended to the output and synced.  Only then the progress file, a small file beside the
output, is replaced atomically; it holds the number of lines and bytes that are complete.  Output after these bytes was
incomplete when the process ended; resuming removes it.  The progress file remains when the translation is complete: it
alone records the input, the model and the search from which the output was made.  A file of word alignments is written
in the same way.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from minitransformer.inference.memories import Languages, MemoryTranslator, groups_of_input
from minitransformer.inference.prefix import Prefixes
from minitransformer.inference.stream import LinesDone, LineTranslator
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
    complete.  ``alignments`` has the bytes and the checksum of the file of alignments, if there is one.
    """

    n_lines: int
    n_bytes: int
    alignments: dict[str, Any]
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
    advance: LinesDone = lambda n: None,
) -> None:
    """Translate a file; with ``resume``, continue where an earlier call was interrupted.

    ``languages`` are needed if the source is a translation memory.  ``advance`` is first called with the number of
    lines that were translated earlier.  The bytes of the output do not depend on the number of interruptions.
    Raises: ResumeError if an interrupted output exists and ``resume`` is not set; ResumeError if the output was made
        from another input, model or search, was changed, or is being written; CorpusError if the input cannot be read;
        PrefixError if there is not one beginning for each line.
    """
    paths = [output] if translate.alignments is None else [output, translate.alignments]
    for i, path in enumerate(paths):
        for other in (source, *paths[:i]):
            if path == other or (path.exists() and other.exists() and path.samefile(other)):
                name = "the input" if other is source else "the output"
                raise ResumeError(f"{path}: is {name}, too; choose another file")
    with groups_of_input(source, lines_at_once, languages) as groups, ExitStack() as stack:
        lines = itertools.chain.from_iterable(groups)
        files = [_Output(stack.enter_context(_opened(path)), path) for path in paths]
        files[0].opening, files[0].closing = translate.opening, translate.closing
        run = _Run(translate.facts(), translate.prefixes, files)
        if resume:
            run.take_up(lines, source)
        else:
            run.begin_again()
        if run.n_lines and not run.done:
            _log.info(f"going on after line {run.n_lines:,}")
        advance(run.n_lines)
        try:
            while group := list(itertools.islice(lines, lines_at_once)):
                run.append(group, translate(group, run.n_lines, advance))
        except KeyboardInterrupt:
            _log.info(f"interrupted after line {run.n_lines:,}; to continue from there, set resume and start it again")
            raise
        if translate.prefixes:
            translate.prefixes.require_lines(run.n_lines)
        if run.done:
            _log.info(f"{output}: complete; nothing is left to do")
        else:
            run.finish()


@contextmanager
def _opened(output: Path) -> Iterator[BinaryIO]:
    """Open an output with a lock, so that no other process writes it."""
    try:
        with output.open("a+b") as target:  # reads anywhere, writes at the end
            if not try_lock(target.fileno()):
                raise ResumeError(f"{output}: another process is writing it; wait for it, or choose another output")
            target.seek(0)
            yield target
    except OSError as error:
        raise ResumeError(
            f"{output}: cannot be written ({error}); correct that, then set resume and start it again"
        ) from error


class _Output:
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
        while (left := n_bytes - self.n_bytes) > 0 and (data := self.target.read(min(_BYTES_AT_ONCE, left))):
            self._count(data)
        if (self.n_bytes, self.checksum) != (n_bytes, checksum):
            raise self.refusal(f"its first {n_bytes:,} bytes have changed since they were written")

    def remove_incomplete(self, done: bool) -> None:
        """Remove what follows the complete bytes.

        Raises: ResumeError if the file was complete (``done``) and has another end now.
        """
        if done:
            if self.target.read(len(self._ending) + 1) != self._ending:
                raise self.refusal(f"something was appended to the {self.n_bytes:,} bytes that were written")
        elif self.size > self.n_bytes:  # truncating to the same size would change the file's modification time
            self.target.truncate(self.n_bytes)

    def remove_ending(self) -> None:
        """Make a complete file incomplete again, so that more can be appended."""
        self.target.truncate(self.n_bytes)

    def refusal(self, reason: str) -> ResumeError:
        """Return the error that this file cannot be continued."""
        return ResumeError(f"{self.path}: {reason}; choose another output, or remove this one to start anew")

    @property
    def _ending(self) -> bytes:
        return self.closing if self.n_bytes else self.opening + self.closing

    def _write(self, data: bytes) -> None:
        self.target.write(data)
        self.target.flush()
        os.fsync(self.target.fileno())

    def _count(self, data: bytes) -> None:
        self.n_bytes += len(data)
        self._checksum.update(data)


class _Run:
    """The files that are written (translations, then alignments), with counts and checksums of what was read."""

    def __init__(self, facts: dict[str, Any], prefixes: Prefixes | None, files: Sequence[_Output]) -> None:
        self.facts, self.prefixes, self.files = facts, prefixes, files
        self.output, self.path = files[0], files[0].path
        self.n_lines, self.done = 0, False
        self.read = hashlib.blake2b(digest_size=16)

    def begin_again(self) -> None:
        """Start an empty output; overwrite a complete one.  Raises: ResumeError if there is an interrupted output."""
        note = progress_file(self.path)
        if note.exists() and not read_record(note, Progress).done:
            raise ResumeError(
                f"{self.path}: an interrupted translation; set resume to continue it, or remove {note} to start anew"
            )
        self._begin()

    def _begin(self) -> None:
        for file in self.files:
            file.target.truncate(0)
        self._note()

    def append(self, lines: list[bytes], texts: Sequence[bytes]) -> None:
        """Append what was made of a group of lines to each file; when this returns, it is on disk."""
        if self.done:  # lines were appended to the input: record that the output is incomplete again
            self.done = False
            self._note()
            for file in self.files:
                file.remove_ending()
        for file, text in zip(self.files, texts, strict=True):
            file.append(text)
        self._count(lines)
        self._note()

    def finish(self) -> None:
        """Write the end, remove temporary progress files of processes that died, and record that all is complete."""
        for file in self.files:
            file.finish()
        for path in self.path.parent.glob(f".{glob.escape(progress_file(self.path).name)}.*.tmp"):
            path.unlink()
        self.done = True
        self._note()

    def take_up(self, lines: Iterator[bytes], source: Path) -> None:
        """Restore the state at which an earlier call ended; if there is no output yet, start an empty one.

        Raises: ResumeError if the output cannot be continued with this input, model and search.
        """
        if not self.output.size:
            self._begin()
            return
        if not progress_file(self.path).exists():
            raise ResumeError(
                f"{self.path}: exists, but {progress_file(self.path)}, which would record its input and model,"
                " does not; remove the output, or choose another"
            )
        progress = read_record(progress_file(self.path), Progress)
        made_with = self._made_with(progress.n_lines)
        names = dict.fromkeys([*made_with, *progress.made_with])
        different = [name for name in names if progress.made_with.get(name) != made_with.get(name)]
        if different:
            raise self.output.refusal(f"was begun with another {', '.join(different)}")
        self._read_as_far_as(progress, lines, source)
        for file in self.files:
            file.remove_incomplete(progress.done)
        self.done = progress.done

    def _read_as_far_as(self, progress: Progress, lines: Iterator[bytes], source: Path) -> None:
        """Read the recorded part of input and outputs.  Raises: ResumeError if one has changed."""
        for _, line in zip(range(progress.n_lines), lines, strict=False):  # range first: zip takes no line too many
            self._count([line])
        if (self.n_lines, self.read.hexdigest()) != (progress.n_lines, progress.input):
            raise self.output.refusal(f"{source} has changed since {progress.n_lines:,} of its lines were translated")
        self.output.read_as_far_as(progress.n_bytes, progress.output)
        for file in self.files[1:]:
            recorded = progress.alignments
            file.read_as_far_as(int(recorded.get("n_bytes", 0)), str(recorded.get("checksum")))

    def _count(self, lines: list[bytes]) -> None:
        self.n_lines += len(lines)
        for line in lines:
            self.read.update(line + b"\n")

    def _made_with(self, n_lines: int) -> dict[str, Any]:
        """Return all on which the output of the first ``n_lines`` lines depends, besides these lines."""
        return {**self.facts, "prefix": self.prefixes and self.prefixes.checksum(n_lines)}

    def _note(self) -> None:
        alignments: dict[str, Any] = {}
        for file in self.files[1:]:
            alignments = {"n_bytes": file.n_bytes, "checksum": file.checksum}
        progress = Progress(
            self.n_lines, self.output.n_bytes, alignments, self.read.hexdigest(), self.output.checksum,
            self._made_with(self.n_lines), self.done,
        )  # fmt: skip
        write_text(progress_file(self.path), json.dumps(asdict(progress), indent=2) + "\n")
