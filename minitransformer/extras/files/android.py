"""Android's strings.xml: <string>, and <item> of <string-array> and <plurals>; translatable="false" stays as it is.

All else stays as it is, byte for byte.  The file has no place for a mark: the log names the lines to check.

Source: Android developers' guide, "String resources".
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from xml.parsers import expat
from xml.sax.saxutils import escape

from minitransformer.data.survey import CorpusError, Found
from minitransformer.data.tmx import is_break
from minitransformer.extras.files.editing import (
    Edit,
    checked,
    edited,
    log_uncertain,
    require_length,
    require_same_units,
)
from minitransformer.extras.files.memories import Languages
from minitransformer.text.codes import Code, Kind, Part, Parts, with_textual_codes
from minitransformer.text.translation import Translation

_PARENTS = {"string": ("resources",), "item": ("string-array", "plurals")}
_START_TAG = re.compile(rb"""<(?:[^<>"']|"[^"]*"|'[^']*')*>""")
_CDATA = "<![CDATA["
_MARKUP = re.compile(  # an element that protects a text; CDATA; a comment; a tag; a quotation mark that keeps blanks
    r"<(?:\w+:)?g\b[^>]*>.*?</(?:\w+:)?g>|<!\[CDATA\[|\]\]>|<!--.*?-->"
    r"""|<(?P<close>/)?(?P<name>[\w:.-]+)(?:[^<>"']|"[^"]*"|'[^']*')*?(?P<alone>/)?>|(?<!\\)\"""",
    re.DOTALL,
)
_REFERENCE = re.compile(rb"[@?][\w.:+]*/")  # to another resource, such as @string/name
_LAYOUT = re.compile(r"\s*\n\s*")
_ESCAPE = re.compile(r"\\(?:u([\da-fA-F]{4})|(['\"@?]))")
_Unit = tuple[str, tuple[tuple[str, str], ...]]


class _StringFinder:
    """A finder of the texts of a file: ``texts`` has the offsets of each in bytes, and its line."""

    def __init__(self, path: Path, content: bytes) -> None:
        self._path, self._content = path, content
        self._open = list[str]()  # names of open elements
        self._untranslated = 0  # depth of the element with translatable="false", or 0
        self._start = -1  # of the current text
        self.texts, self.units = list[tuple[int, int, int]](), list[_Unit]()
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler, self._parser.EndElementHandler = self._start_element, self._end_element
        self._parser.EntityDeclHandler = self._refuse_declaration
        self._parser.XmlDeclHandler = self._require_utf8
        try:
            self._parser.Parse(content, True)
        except expat.ExpatError as error:
            message = expat.ErrorString(error.code)
            raise CorpusError(f"{path}, line {error.lineno:,}: cannot be read as XML: {message}") from error

    def _require_utf8(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding and encoding.lower() != "utf-8":
            raise CorpusError(f"{self._path}: its encoding is {encoding}; Android reads UTF-8: save it as UTF-8")

    def _refuse_declaration(self, name: str, *_: object) -> None:
        raise CorpusError(f"{self._path}: declares the entity {name}; entities are not read: write the text itself")

    def _start_element(self, name: str, attributes: dict[str, str]) -> None:
        self._open.append(name)
        if self._open[0] != "resources":
            raise CorpusError(
                f"{self._path}: the root element is <{name:.80}>; expected <resources>, as in strings.xml of Android;"
                " of other XML files, take out the text"
            )
        if self._start < 0:
            self.units.append((name, tuple(attributes.items())))
        if attributes.get("translatable") == "false" and not self._untranslated:
            self._untranslated = len(self._open)
        is_text = len(self._open) > 1 and self._open[-2] in _PARENTS.get(name, ())
        if is_text and self._start < 0 and not self._untranslated:
            tag = _START_TAG.match(self._content, self._parser.CurrentByteIndex)
            self._start = tag.end() if tag else -1

    def _end_element(self, name: str) -> None:
        if self._untranslated == len(self._open):
            self._untranslated = 0
        self._open.pop()
        if self._start >= 0 and name in _PARENTS and name not in self._open:
            if self._start <= self._parser.CurrentByteIndex:  # not <string/>
                self.texts.append((self._start, self._parser.CurrentByteIndex, self._parser.CurrentLineNumber))
            self._start = -1


class AndroidDocument:
    """A strings.xml of Android.  Each text is a segment."""

    def __init__(self, path: Path, content: bytes, languages: Languages | None = None) -> None:
        content.decode("utf-8")  # raises, before a parser of XML gives another reason
        self._path, self._content = path, content
        finder = _StringFinder(path, content)
        self._units = finder.units
        self._texts = [each for each in finder.texts if not _REFERENCE.match(content, each[0])]
        self.segments = [self._segment(content[a:b].decode(), line) for a, b, line in self._texts]
        self._edits = list[Edit]()

    def _segment(self, text: str, line: int) -> Parts:
        require_length(len(text), where := f"{self._path}, line {line:,}")
        parts, end, is_literal, is_quoted = Parts(), 0, _CDATA in text, False
        for match in (*_MARKUP.finditer(text), None):
            piece = _LAYOUT.sub(" ", text[end : match.start() if match else None])
            found = with_textual_codes([piece if is_literal else html.unescape(piece)] if piece else [])
            parts += [_ESCAPE.sub(_unescaped, part) if isinstance(part, str) else part for part in found]
            if match:
                parts.append(_markup(match, is_quoted=is_quoted))
                is_quoted ^= match[0] == '"'
                end = match.end()
        return checked(parts, where)

    def fill(self, found: Sequence[Translation]) -> None:
        uncertain = Found()
        for (begin, end, line), source, segment in zip(self._texts, self.segments, found, strict=True):
            if segment.parts == source:
                continue
            is_literal = any(isinstance(part, Code) and part.content == _CDATA for part in source)
            text = "".join(_escaped(part, is_literal=is_literal) for part in segment.parts)
            self._edits.append((begin, end, "\\" * text.startswith(("@", "?")) + text))
            if segment.is_uncertain:
                uncertain.add(line)
        log_uncertain(self._path, uncertain)

    def content(self) -> bytes:
        """Return the content of the file.  Raises: CorpusError if its elements are not those of the input."""
        edits = [(begin, end, text.encode("utf-8").decode("latin-1")) for begin, end, text in self._edits]
        content = edited(self._content.decode("latin-1"), edits).encode("latin-1")  # offsets are those of bytes
        require_same_units(self._path, self._units, _StringFinder(self._path, content).units)
        return content


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else match[2]


def _markup(match: re.Match[str], *, is_quoted: bool) -> Code:
    """Return the code for markup in a text; ``is_quoted`` is true after an odd number of quotation marks."""
    content, name = match[0], match["name"] or match[0][:1]
    if content == '"':
        return Code(content, "end" if is_quoted else "begin", f"<{name}")
    if content in {_CDATA, "]]>"}:
        return Code(content, "begin" if content == _CDATA else "end", "<CDATA")
    is_pair = match["name"] and not match["alone"]
    kind: Kind = "alone" if not is_pair else "end" if match["close"] else "begin"
    return Code(content, kind, f"<{name}", is_break=is_break(content))


def _escaped(part: Part, *, is_literal: bool) -> str:
    """Return a part of a text as it is written: with the escapes of XML, unless it is literal, and of Android."""
    if isinstance(part, Code):
        content = str(part.content)
        return content if is_literal or part.name.startswith("<") else escape(content)
    return re.sub(r"""(['"])""", r"\\\1", part if is_literal else escape(part))
