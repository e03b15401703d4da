"""Resumable translation of a large file: after an interruption at any moment, no complete group of lines is lost.

A group of lines is translated, appended to the output and synced.  Then the progress file, a small file beside the
output, is replaced atomically; it has the number of complete lines and bytes.  Bytes after these are from an
interrupted group; resumption removes them.  The progress file remains when the translation is complete, because only
this file records the input, the model and the search from which the output was made.  A file of word alignments is
written in the same way.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from minitransformer.extras.files.memories import Languages, MemoryTranslator, groups_of_input
from minitransformer.extras.files.output_file import OTHER_MODEL, OutputFile, ResumeError, open_output
from minitransformer.extras.files.stream import LinesDone, LineTranslator, Prefixes
from minitransformer.system.files import is_same_file, write_text
from minitransformer.system.records import read_record

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """The content of a progress file.

    It has the numbers of complete lines and bytes, and whether the translation is complete (``done``).  ``input`` and
    ``output`` are checksums; ``made_with`` has the settings.  ``alignments`` has the number of bytes and the checksum
    of the file of alignments, or is empty.
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

    ``languages`` must be given for a source that is a file of two languages.  ``advance`` is first called with the
    number of lines that were translated earlier.  The bytes of the output do not depend on the number of interruptions.
    Raises: ResumeError if two of the files are the same, if an interrupted output exists and ``resume`` is false, or if
    the output was made from another input, model or search, was changed, cannot be written, or is being written by
    another process; CorpusError if the input cannot be read; PrefixError if the number of given beginnings is not the
    number of lines.
    """
    paths = [output] if translate.alignments is None else [output, translate.alignments]
    for i, path in enumerate(paths):
        for other in (source, *paths[:i]):
            if is_same_file(path, other):
                name = "the input" if other is source else "the output"
                raise ResumeError(f"{path}: is {name}, too; choose another file")
    with (
        groups_of_input(source, lines_at_once, languages, whole_units=translate.whole_units) as groups,
        ExitStack() as stack,
    ):
        lines = itertools.chain.from_iterable(groups)
        files = [OutputFile(stack.enter_context(open_output(path)), path) for path in paths]
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


class _Run:
    """The output files of a translation (translations, then alignments), and the number and checksum of lines read."""

    def __init__(self, facts: dict[str, Any], prefixes: Prefixes | None, files: Sequence[OutputFile]) -> None:
        self.facts, self.prefixes, self.files = facts, prefixes, files
        self.output, self.path = files[0], files[0].path
        self.n_lines, self.done = 0, False
        self.read = hashlib.blake2b(digest_size=16)

    def begin_again(self) -> None:
        """Start an empty output; overwrite a complete one.  Raises: ResumeError if the output is interrupted."""
        note = progress_file(self.path)
        if note.exists() and not read_record(note, Progress).done:
            raise ResumeError(
                f"{self.path}: an interrupted translation; set resume to continue it, or remove {note} to start anew"
            )
        self._begin()

    def _begin(self) -> None:
        for file in self.files:
            file.truncate()
        self._note()

    def append(self, lines: list[bytes], texts: Sequence[bytes]) -> None:
        """Append the texts for a group of lines, one to each file, and wait until they are on disk."""
        if self.done:  # lines were appended to the input: record that the output is incomplete again
            self.done = False
            self._note()
            for file in self.files:
                file.truncate()
        for file, text in zip(self.files, texts, strict=True):
            file.append(text)
        self._count(lines)
        self._note()

    def finish(self) -> None:
        """Write the ends of the files, and record that the translation is complete.

        Remove temporary progress files that killed processes left.
        """
        for file in self.files:
            file.finish()
        for path in self.path.parent.glob(f".{glob.escape(progress_file(self.path).name)}.*.tmp"):
            path.unlink()
        self.done = True
        self._note()

    def take_up(self, lines: Iterator[bytes], source: Path) -> None:
        """Restore the state at which an earlier call ended; if the output is empty, start from the beginning.

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
        there = progress.made_with
        different = [
            {"model": OTHER_MODEL, "prefix": name}.get(name)
            or f"{name} ({there.get(name)!r}, not {made_with.get(name)!r})"
            for name in made_with | there
            if there.get(name) != made_with.get(name)
        ]
        if different:
            raise self.output.refusal(f"was begun with other settings: {', '.join(different)}")
        self._read_as_far_as(progress, lines, source)
        for file in self.files:
            file.remove_incomplete(progress.done)
        self.done = progress.done

    def _read_as_far_as(self, progress: Progress, lines: Iterator[bytes], source: Path) -> None:
        """Read the recorded lines and bytes again.  Raises: ResumeError if the input or an output has changed."""
        for _, line in zip(range(progress.n_lines), lines, strict=False):  # range first: zip reads no line too many
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
        """Return the settings and checksums on which the output for the first ``n_lines`` lines depends.

        A progress file of an earlier version lacks newer settings.  The value of such a setting that means "as before"
        must be None.
        """
        return {**self.facts, "prefix": self.prefixes and self.prefixes.checksum(n_lines)}

    def _note(self) -> None:
        alignments: dict[str, Any] = {}
        for file in self.files[1:]:
            alignments = {"n_bytes": file.n_bytes, "checksum": file.checksum}
        progress = Progress(
            self.n_lines,
            self.output.n_bytes,
            alignments,
            self.read.hexdigest(),
            self.output.checksum,
            self._made_with(self.n_lines),
            self.done,
        )
        write_text(progress_file(self.path), json.dumps(asdict(progress), indent=2) + "\n")
