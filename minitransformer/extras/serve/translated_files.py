"""Translation of files: the reader of uploaded files, and a store of translated files until clients fetch them."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence
from pathlib import Path, PurePath

from minitransformer.data.survey import CorpusError
from minitransformer.extras.files.documents import Document, read_document, readable_endings
from minitransformer.extras.serve.directions import Directions
from minitransformer.extras.serve.languages import Language
from minitransformer.system.file_kinds import refusal_by_ending
from minitransformer.text.codes import plain_text

KEPT_SECONDS = 600.0  # time in which a client can fetch a translated file
MOST_BYTES = 64 << 20  # most bytes of all translated files; the oldest files are removed before a new one is added
_NO_NAME = re.compile(r"[^\w.-]+", re.ASCII)


def read_file(
    name: str, content: bytes, sources: Sequence[Language], target: Language, directions: Directions
) -> tuple[Language, Document]:
    """Read an uploaded file as a document in one of the languages ``sources``; return its language and the document.

    Of several languages in which the file can be read, such as those of a text without marks, it is the one that is
    detected.
    Raises: CorpusError if the file cannot be read; the message does not have its name, which is private.
    """
    path = Path("file" + PurePath(name).suffix.lower())
    if path.suffix not in (endings := readable_endings()):
        reason = refusal_by_ending(path) or f"expected {', '.join(endings)}"
        raise CorpusError(f"file format not supported: {reason}")
    found: dict[Language, Document] = {}
    for source in sources:
        try:
            found[source] = read_document(path, (source.code, target.code), content)
        except CorpusError as error:
            refusal = error
    if not found:
        raise refusal
    first = next(iter(found.values()))
    text = "\n".join(map(plain_text, first.segments))
    detected = (each.language for each in directions.detect(text) if each.language in found)
    language = next(detected, next(iter(found)))
    return language, found[language]


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
