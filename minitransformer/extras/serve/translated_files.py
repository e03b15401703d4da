"""Translation of files: readers of their formats, and a store of translated files until clients fetch them."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import secrets
from collections.abc import Sequence
from pathlib import Path, PurePath

from minitransformer.data.survey import CorpusError
from minitransformer.extras.files.documents import GETTEXT, XLIFF, Document, read_document
from minitransformer.extras.files.memories import MemoryDocument
from minitransformer.text.codes import Parts
from minitransformer.text.translation import Translation

KEPT_SECONDS = 600.0  # time in which a client can fetch a translated file
MOST_BYTES = 64 << 20  # most bytes of all translated files; the oldest files are removed before a new one is added
_NO_NAME = re.compile(r"[^\w.-]+", re.ASCII)


def formats() -> list[str]:
    """Return the endings of files that can be translated here; some endings need the extra "files"."""
    found = {".txt", ".tmx"}
    found |= XLIFF if importlib.util.find_spec("lxml") else set()
    found |= GETTEXT if importlib.util.find_spec("polib") else set()
    return sorted(found)


def read_file(name: str, content: bytes, languages: tuple[str, str]) -> Document:
    """Read an uploaded file as a document.

    Raises: CorpusError if the file cannot be read; the message does not have its name, which is private.
    """
    path = Path("file" + PurePath(name).suffix.lower())
    match path.suffix:
        case ".txt":
            return _PlainText(path, content)
        case ".tmx":
            return MemoryDocument.read(path, content, languages)
        case _:
            return read_document(path, languages, content)


class _PlainText:
    """A text file as a document; each line is a segment."""

    def __init__(self, path: Path, content: bytes) -> None:
        try:
            lines = content.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise CorpusError(f"{path}: is not UTF-8 text ({error.reason})") from error
        self.segments: list[Parts] = [[line] if line else [] for line in lines]
        self._lines = lines

    def fill(self, found: Sequence[Translation]) -> None:
        self._lines = [segment.text for segment in found]

    def content(self) -> bytes:
        return "\n".join(self._lines).encode()


class TranslatedFiles:
    """A store of translated files, in memory only; it removes a file after KEPT_SECONDS."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def add(self, name: str, target: str, content: bytes) -> str:
        """Store the translation of the file ``name`` into ``target``; return a key that nobody can guess."""
        path = PurePath(name)
        stem = _NO_NAME.sub("_", path.stem)[:100]
        key = f"{secrets.token_urlsafe(16)}.{stem}_{target}{path.suffix.lower()}"
        while self._contents and len(content) + sum(map(len, self._contents.values())) > MOST_BYTES:
            del self._contents[next(iter(self._contents))]
        self._contents[key] = content
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self._contents.pop, key, None)
        return key

    def get(self, key: str) -> tuple[str, bytes] | None:
        """Return the name and the content of the file with a key, or None if there is no such file."""
        content = self._contents.get(key)
        return None if content is None else (key.partition(".")[2], content)
