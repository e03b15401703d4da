"""Translation of a document, which is written as a whole; an interrupted translation loses at most a group of segments.

Translated segments are kept in a file beside the output, one a line, until the document is complete.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minitransformer.extras.files.documents import Document
from minitransformer.extras.files.output_file import OTHER_MODEL, ResumeError, refusals_of
from minitransformer.extras.files.stream import LINES_AT_ONCE, LinesDone, LineTranslator
from minitransformer.system.files import atomic_write
from minitransformer.text.codes import Code, Parts, plain_text
from minitransformer.text.translation import Note, Translation

_log = logging.getLogger(__name__)


def segments_file(output: Path) -> Path:
    """Return the path of the file with the translated segments of an output."""
    return output.with_name(f"{output.name}.segments.jsonl")


def translate_document(
    translate: LineTranslator,
    document: Document,
    output: Path,
    advance: LinesDone = lambda n: None,
    *,
    resume: bool = False,
    segments_at_once: int = LINES_AT_ONCE,
) -> None:
    """Translate the segments of a document, and write the document atomically to ``output``.

    With ``resume``, continue where an earlier call was interrupted.
    Raises: ResumeError if the translation was interrupted and ``resume`` is false, or if it was begun with other
    settings.
    """
    path, segments = segments_file(output), document.segments
    if path.exists() and not resume:
        raise ResumeError(
            f"{output}: an interrupted translation; set resume to continue it, or remove {path} to start anew"
        )
    facts = {**translate.facts(), "document": _checksum(segments)}
    found = list(_read(path, facts, segments)) if path.exists() else []
    if found:
        _log.info(f"going on after segment {len(found):,}")
    advance(len(found))
    try:
        while len(found) < len(segments):
            some = segments[len(found) : len(found) + segments_at_once]
            translated = translate.segments(some, len(found), advance)
            if len(found) + len(some) < len(segments):  # a short document needs no file
                _append(path, facts, zip(translated, some, strict=True))
            found += translated
    except KeyboardInterrupt:
        _log.info(f"interrupted after segment {len(found):,}; to continue from there, set resume and start it again")
        raise
    document.fill(found)
    if not found:
        _log.info(f"{output}: is a copy; each segment has a translation, or is marked as not to be translated")
    with atomic_write(output) as temporary:
        temporary.write_bytes(document.content())
    path.unlink(missing_ok=True)


def _checksum(segments: Sequence[Parts]) -> str:
    texts = ([part if isinstance(part, str) else None for part in parts] for parts in segments)
    return hashlib.blake2b(json.dumps(list(texts)).encode(), digest_size=16).hexdigest()


def _append(path: Path, facts: dict[str, Any], rows: Iterator[tuple[Translation, Parts]]) -> None:
    """Append translated segments, and wait until they are on disk; a new file begins with the settings."""
    lines = [] if path.exists() else [facts]
    lines += [_as_json(translation, segment) for translation, segment in rows]
    with refusals_of(path), path.open("ab") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        stream.flush()
        os.fsync(stream.fileno())


def _read(path: Path, facts: dict[str, Any], segments: Sequence[Parts]) -> Iterator[Translation]:
    """Yield the translated segments of a file; remove an incomplete line at its end.

    Raises: ResumeError if the file is of another translation, or corrupt.
    """
    content = path.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    if not complete:  # its first write has failed
        path.unlink()
        return
    if complete != content:
        os.truncate(path, len(complete))
    try:
        first, *rows = map(json.loads, complete.splitlines())
        if different := [name for name in facts | first if json.loads(json.dumps(facts)).get(name) != first.get(name)]:
            names = ", ".join(OTHER_MODEL if name == "model" else name for name in different)
            raise ResumeError(f"{path}: was begun with other settings: {names}; remove it, or choose another output")
        for row, segment in zip(rows, segments, strict=False):
            yield _from_json(row, segment)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ResumeError(f"{path}: is corrupt ({error}); remove it to start anew") from error


def _as_json(translation: Translation, segment: Parts) -> dict[str, Any]:
    """Return a translated segment as JSON: codes of the segment are their indices, other codes are lists of a text."""
    index = {id(part): i for i, part in enumerate(segment) if isinstance(part, Code)}
    parts = [part if isinstance(part, str) else index.get(id(part), [part.content]) for part in translation.parts]
    return {"parts": parts, "notes": [[n.kind, n.message, n.words, n.is_uncertain] for n in translation.notes]}


def _from_json(row: dict[str, Any], segment: Parts) -> Translation:
    parts: Parts = []
    for part in row["parts"]:
        parts.append(segment[part] if isinstance(part, int) else Code(part[0]) if isinstance(part, list) else part)
    return Translation(plain_text(parts), 0.0, 0.0, parts=parts, notes=tuple(Note(*note) for note in row["notes"]))
