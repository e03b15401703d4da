"""The kinds of documents that are translated.

A document is read and written in one piece: units without a translation get one; all else stays unchanged.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from minitransformer.data.survey import READ_ERRORS, CorpusError, require_text
from minitransformer.extras.files.android import AndroidDocument
from minitransformer.extras.files.json_messages import JsonDocument
from minitransformer.extras.files.memories import Languages, MemoryDocument
from minitransformer.extras.files.po import PoDocument
from minitransformer.extras.files.xliff import XliffDocument
from minitransformer.system.file_kinds import N_FIRST_BYTES, refusal_by_first_bytes
from minitransformer.text.codes import Parts
from minitransformer.text.translation import Translation


class Document(Protocol):
    """A document whose segments are translated."""

    segments: list[Parts]

    def fill(self, found: Sequence[Translation]) -> None:
        """Write the translation of each segment, in the order of ``segments``, into the document."""

    def content(self) -> bytes:
        """Return the content of the document's file."""


class PlainText:
    """A text file as a document; each line is a segment."""

    def __init__(self, path: Path, content: bytes, languages: Languages | None = None) -> None:
        require_text(path, refusal_by_first_bytes(content[:N_FIRST_BYTES]))
        lines = content.decode("utf-8-sig").split("\n")
        self.segments: list[Parts] = [[line] if line else [] for line in lines]
        self._lines = lines

    def fill(self, found: Sequence[Translation]) -> None:
        self._lines = [segment.text for segment in found]

    def content(self) -> bytes:
        return "\n".join(self._lines).encode()


class Kind(NamedTuple):
    """A kind of file that is translated: the endings of its names, and the reader of its files.

    ``read`` takes a path for messages, the content, and the languages of source and target, or None to take those of
    the file.  It may raise UnicodeDecodeError.  The document that it returns also writes the file.
    ``needs`` are packages of the extra "files".  ``has_lines`` is true for a kind that the command translates as lines,
    because such a translation can be resumed; the server translates it as a document.
    """

    endings: tuple[str, ...]
    read: Callable[[Path, bytes, Languages | None], Document]
    needs: tuple[str, ...] = ()
    has_lines: bool = False


KINDS = (
    Kind((".txt",), PlainText, has_lines=True),
    Kind((".tmx",), MemoryDocument.read, has_lines=True),
    Kind((".xlf", ".xliff"), XliffDocument, needs=("lxml",)),
    Kind((".po", ".pot"), PoDocument, needs=("babel",)),
    Kind((".xml",), AndroidDocument),
    Kind((".json",), JsonDocument),
)
"""The kinds of files that are translated.  To add a kind, write its reader in a file of its own, and add a row.  A test
fails until ``file_kinds`` refuses the endings as text."""


def kind_of(path: Path) -> Kind | None:
    """Return the kind of a file by the ending of its name; None for other files."""
    return next((kind for kind in KINDS if path.suffix.lower() in kind.endings), None)


def is_document(path: Path) -> bool:
    """Return whether a file is translated as a whole, not line by line, by its ending."""
    kind = kind_of(path)
    return kind is not None and not kind.has_lines


def output_endings(path: Path) -> set[str]:
    """Return the endings that a translated copy of a document may have: its own, or the first one of its kind."""
    kind = kind_of(path)
    return {path.suffix.lower(), *(kind.endings[:1] if kind else ())}


def readable_endings() -> list[str]:
    """Return the endings of the kinds whose packages are installed."""
    installed = (kind for kind in KINDS if all(map(importlib.util.find_spec, kind.needs)))
    return sorted(ending for kind in installed for ending in kind.endings)


def read_document(path: Path, languages: Languages | None = None, content: bytes | None = None) -> Document:
    """Read a document from ``content``, or from the file ``path`` if ``content`` is None.

    If the document names no target language, the target of ``languages`` is written into the document.
    Raises: CorpusError if the document cannot be read, is of no kind in ``KINDS``, or has other languages; ConfigError
    if ``languages`` is None and the document's kind needs them; MissingExtraError if a package is missing.
    """
    kind = kind_of(path)
    if kind is None:
        raise CorpusError(f"{path}: is of no kind that is translated as a document: {', '.join(readable_endings())}")
    try:
        return kind.read(path, path.read_bytes() if content is None else content, languages)
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: is not UTF-8 text ({error.reason}); save it as UTF-8") from error
    except READ_ERRORS as error:
        raise CorpusError(f"{path}: cannot be read: {error}") from error
