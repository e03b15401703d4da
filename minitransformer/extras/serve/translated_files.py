"""Files to translate: their formats, and the translated files until they are fetched."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import secrets
from collections.abc import Sequence
from pathlib import Path, PurePath

from minitransformer.data.survey import CorpusError
from minitransformer.extras.files.codes import Parts, TranslatedSegment
from minitransformer.extras.files.documents import GETTEXT, XLIFF, Document, read_document
from minitransformer.extras.files.memories import MemoryDocument

KEPT_SECONDS = 600.0  # for a translated file to be fetched
MOST_BYTES = 64 << 20  # of all translated files: the oldest make room for a new one
_NO_NAME = re.compile(r"[^\w.-]+", re.ASCII)


def formats() -> list[str]:
    """Return the endings of the files that are translated; some need the extra "files"."""
    found = {".txt", ".tmx"}
    found |= XLIFF if importlib.util.find_spec("lxml") else set()
    found |= GETTEXT if importlib.util.find_spec("polib") else set()
    return sorted(found)


def read_file(name: str, content: bytes, languages: tuple[str, str]) -> Document:
    """Return a file of one of the formats as a document.  Raises: CorpusError, without the name, which is private."""
    path = Path("file" + PurePath(name).suffix.lower())
    match path.suffix:
        case ".txt":
            return _PlainText(path, content)
        case ".tmx":
            return MemoryDocument.read(path, content, languages)
        case _:
            return read_document(path, languages, content)


class _PlainText:
    """A text file, whose lines are translated."""

    def __init__(self, path: Path, content: bytes) -> None:
        try:
            lines = content.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise CorpusError(f"{path}: is not UTF-8 text ({error.reason})") from error
        self.segments: list[Parts] = [[line] if line else [] for line in lines]
        self._lines = lines

    def fill(self, found: Sequence[TranslatedSegment]) -> None:
        self._lines = ["".join(map(str, segment.parts)) for segment in found]

    def content(self) -> bytes:
        return "\n".join(self._lines).encode()


class TranslatedFiles:
    """Translated files, in memory only, for KEPT_SECONDS."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}

    def add(self, name: str, target: str, content: bytes) -> str:
        """Keep a translation into ``target`` of the file ``name``; return its new name, which cannot be guessed."""
        path = PurePath(name)
        stem = _NO_NAME.sub("_", path.stem)[:100]
        key = f"{secrets.token_urlsafe(16)}.{stem}_{target}{path.suffix.lower()}"
        while self._contents and len(content) + sum(map(len, self._contents.values())) > MOST_BYTES:
            del self._contents[next(iter(self._contents))]
        self._contents[key] = content
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self._contents.pop, key, None)
        return key

    def get(self, key: str) -> tuple[str, bytes] | None:
        """Return the name and the content of a file, None if there is none."""
        content = self._contents.get(key)
        return None if content is None else (key.partition(".")[2], content)
