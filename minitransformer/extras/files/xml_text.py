"""The text of an XML document around its root: byte order mark, declaration, comments and line ends stay as they came.

Source: Extensible Markup Language (XML) 1.0, W3C, "2.8 Prolog and Document Type Declaration" and "2.11 End-of-Line
Handling".
"""

from __future__ import annotations

import codecs
import io
import re
from pathlib import Path
from typing import Any

from minitransformer.data.survey import CorpusError
from minitransformer.extras.packages import import_extra

_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_BEFORE_ROOT = re.compile(r"(?:\s++|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>)*", re.DOTALL)


class XmlText:
    """An XML document that is written as it was read, except its root element, which may change."""

    def __init__(self, path: Path, content: bytes) -> None:
        self._etree = import_extra("files", "lxml.etree")
        tree = self.parsed(path, content)
        document_type = tree.docinfo.internalDTD
        if document_type is not None and document_type.entities():
            raise CorpusError(f"{path}: declares entities, which are not read: write the text itself")
        self.root = tree.getroot()
        self._mark = next((mark for mark in _MARKS if content.startswith(mark)), b"")
        self._encoding = _MARKS.get(self._mark) or tree.docinfo.encoding or "UTF-8"
        try:
            text = content.removeprefix(self._mark).decode(self._encoding)
        except (LookupError, UnicodeError) as error:
            raise CorpusError(f"{path}: its encoding, {self._encoding}, is not known; save it as UTF-8") from error
        self._before = _BEFORE_ROOT.match(text)[0]  # type: ignore[index]
        self._after = text[len(text.rstrip()) :]
        self._line_end = "\r\n" if "\r\n" in text else "\n"

    def parsed(self, path: Path, content: bytes) -> Any:
        """Return the tree of a document.  Raises: CorpusError if it is not XML."""
        parser = self._etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, strip_cdata=False)
        try:
            return self._etree.parse(io.BytesIO(content), parser)
        except self._etree.XMLSyntaxError as error:
            raise CorpusError(f"{path}, line {error.lineno}: cannot be read as XML: {error.msg}") from error

    def content(self) -> bytes:
        """Return the document with its root element as it is now."""
        after = "".join("\n" + self.xml(each) for each in self.root.itersiblings())
        body = (self.xml(self.root) + after).replace("\n", self._line_end)
        return self._mark + (self._before + body + self._after).encode(self._encoding, "xmlcharrefreplace")

    def xml(self, element: Any) -> str:
        """Return an element as XML, without the text that follows it."""
        return str(self._etree.tostring(element, encoding="unicode", with_tail=False))
