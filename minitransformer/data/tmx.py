"""A reader of translation memories, TMX files, as a stream.

Expat parses the XML.  It opens no other file, not even a DTD that the file names.  Declarations of entities are
refused, so that no text can expand.  The memory is bounded, because depth, units and codes of languages have limits.

Source: TMX 1.4b Specification, Localisation Industry Standards Association, 2005.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NoReturn
from xml.etree import ElementTree
from xml.parsers import expat

from minitransformer.data.survey import LONGEST_LINE, READ_ERRORS, CorpusError, open_bytes
from minitransformer.data.units import Unit

CODES = ("bpt", "ept", "it", "ph", "ut")  # inline elements that hold codes of another format, not text
_log = logging.getLogger(__name__)
_BYTES_AT_ONCE = 1 << 20  # large: expat before 2.6 reads an incomplete token again with every piece
_LONGEST_TOKEN = 16 << 20  # bytes of a tag or a comment: no real file has such a long one
_DEEPEST = 100  # elements within each other; text is at depth 6, in codes within codes a little deeper
_MOST_LANGUAGES, _LARGEST_UNIT = 1_000, 10 * LONGEST_LINE  # most languages, and most characters in total, of a unit
_LONGEST_CODE = 100  # characters of a language's code
# Expat stops with an error at a character that XML excludes; so these characters are replaced by this noncharacter.
_MARK = "\ufdd0"
_ILLEGAL_BYTES = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|&#(?:0*(?:[0-8]|1[124-9]|2\d|3[01])|x0*(?:[0-8bcef]|1[\da-f]|d[89a-f]..|fff[ef]));",
    re.IGNORECASE,
)
_LONGEST_REFERENCE = 16  # bytes of a reference to a character, &#x1F;
_BREAK_TYPES = {"lb", "pb", "cb", "tab", "br"}  # types of codes for breaks of lines, pages and columns, and for tabs
_BREAK_CODE = re.compile(
    r"\s*(?:<\s*(?:br|tab|/?(?:p|div|li|t[dhr]|h\d)|w:(?:br|cr|tab|p))\b|\\(?:line|par|tab|[nrt])\b|[\n\r\t])",
    re.IGNORECASE,
)  # codes for such breaks and tabs in HTML, office documents, RTF and programs
_REMEDY = "the file may be cut off, or not be in the encoding that its first line names (UTF-8 if it names none)"


class _Collector:
    """The handlers of an XML parser, which collect units."""

    def __init__(self, path: Path, *, with_elements: bool = False) -> None:
        self.path, self.parser = path, expat.ParserCreate()
        self._with_elements = with_elements
        self._builder: ElementTree.TreeBuilder | None = None  # of the current unit
        self.units: list[Unit] = []
        self.header: ElementTree.Element | None = None  # if elements are collected
        self.source_language: str | None = None
        self._namespaces = dict[str, str]()  # the prefixes that the root declares: a unit alone needs them, too
        self._language: str | None = None
        self._line, self._texts = 0, dict[str, str]()
        self._text: list[str] | None = None  # of the current segment
        self._size, self._unit_size = 0, 0  # characters of the current segment, and of the unit
        self._depth, self._code_depth = 0, 0
        self._code, self._is_break = "", False  # the beginning of the current code, and whether its type is a break
        self._is_illegal = False  # the current unit
        self.parser.buffer_text = True
        self.parser.specified_attributes = True  # ignore defaults in a DTD, which may be of any size
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._refuse_declaration
        self.parser.SkippedEntityHandler = self._refuse_undeclared

    def refuse(self, problem: str) -> NoReturn:
        """Raise CorpusError; the message begins with the file and the current line."""
        raise CorpusError(f"{self.path}, line {self.parser.CurrentLineNumber}: {problem}")

    def _refuse_declaration(self, name: str, *_: object) -> None:
        self.refuse(f"declares the entity {name!r}; entities are not read: write the text itself, and no declaration")

    def _refuse_undeclared(self, name: str, *_: object) -> None:
        self.refuse(f"the entity &{name}; is not declared; write the character itself")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            self.refuse(f"<{name:.80}> is within {_DEEPEST} other elements; expected text in <tmx><body><tu><tuv><seg>")
        if self._depth == 1:
            self._start_root(name, attributes)
        elif self._text is not None:
            self._start_within_text(name, attributes)
        elif name == "header":
            self.source_language = self._language_code(attributes.get("srclang"))
            attributes = self._start_element(attributes)
        elif name == "tu":
            self._line, self._texts = self.parser.CurrentLineNumber, {}
            self._is_illegal = False
            attributes = self._start_element(attributes)
        elif name == "tuv":
            self._language = self._language_code(language_of_variant(attributes))
            if not self._language:
                self.refuse('a <tuv> has no language; expected, for example, <tuv xml:lang="en">')
        elif name == "seg":
            self._text, self._size = [], 0
        if self._builder:
            self._count(len(name) + sum(len(key) + len(value) for key, value in attributes.items()))
            self._builder.start(name, attributes)

    def _start_root(self, name: str, attributes: dict[str, str]) -> None:
        if name != "tmx":
            self.refuse(f"the root element is <{name}>; expected <tmx>: is this a TMX file?")
        self._namespaces = {key: value for key, value in attributes.items() if key.startswith("xmlns:")}

    def _start_element(self, attributes: dict[str, str]) -> dict[str, str]:
        """Begin the XML element of a unit or of the header; return its attributes."""
        self._unit_size = 0
        self._builder = ElementTree.TreeBuilder() if self._with_elements else None
        return self._namespaces | attributes

    def _count(self, n_characters: int) -> None:
        """Add to the size of the current unit.  Raises: CorpusError if the unit is too large."""
        self._unit_size += n_characters
        if self._unit_size > _LARGEST_UNIT:
            self.refuse(f"a unit has more than {_LARGEST_UNIT:,} characters; expected a sentence in each language")

    def _start_within_text(self, name: str, attributes: dict[str, str]) -> None:
        if not self._code_depth:
            self._code, self._is_break = "", is_break("", attributes.get("type"))
        self._code_depth += name in CODES or self._code_depth > 0

    def _language_code(self, code: str | None) -> str | None:
        """Return ``code``.  Raises: CorpusError if it is too long for the code of a language."""
        if code is not None and len(code) > _LONGEST_CODE:
            self.refuse(f"the code of a language has {len(code):,} characters; expected one such as en or de-AT")
        return code

    def _characters(self, text: str) -> None:
        if self._builder:
            self._count(len(text))
            self._builder.data(text.replace(_MARK, "\ufffd"))
        if self._text is None:
            return
        if self._code_depth:
            self._code += text[: _LONGEST_CODE - len(self._code)]
            return
        self._is_illegal |= _MARK in text
        self._size += len(text)
        if self._size > LONGEST_LINE:
            self.refuse(f"a segment has more than {LONGEST_LINE:,} characters; expected a sentence or a paragraph")
        self._count(len(text))
        self._text.append(text)

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._builder:
            self._builder.end(name)
        if self._code_depth:
            self._code_depth -= 1
            if not self._code_depth and self._text is not None and (self._is_break or is_break(self._code)):
                self._text.append("\n")
        elif name == "seg" and self._text is not None:
            if self._language is not None:
                self._texts.setdefault(self._language, _one_line("".join(self._text)))
                if len(self._texts) > _MOST_LANGUAGES:
                    self.refuse(f"a unit has more than {_MOST_LANGUAGES:,} languages; expected one <tuv> for each")
            self._text = None
        elif name == "tuv":
            self._language = None
        elif name == "header" and self._builder:
            self.header, self._builder = self._builder.close(), None
        elif name == "tu":
            texts = {} if self._is_illegal else self._texts
            element = self._builder.close() if self._builder else None
            self.units.append(Unit(self._line, texts, self._is_illegal, element))
            self._texts, self._builder = {}, None


def is_break(code: str, kind: str | None = None) -> bool:
    """Return whether an inline code with the content ``code`` and the type ``kind`` stands for a break or a tab."""
    return (kind or "").removeprefix("x-") in _BREAK_TYPES or _BREAK_CODE.match(code) is not None


def _one_line(text: str) -> str:
    return " ".join(filter(None, map(str.strip, text.splitlines())))


def _replace_illegal(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of an XML file with ``_MARK`` in place of each character that XML excludes.

    UTF-16 does not change: there, bytes such as 0 are parts of legal characters.
    """
    rest = stream.read(4)
    pattern = None if b"\0" in rest or rest[:2] in (b"\xff\xfe", b"\xfe\xff") else _ILLEGAL_BYTES
    mark = f"&#x{ord(_MARK):x};".encode()
    while data := stream.read(_BYTES_AT_ONCE):
        data = rest + data
        cut = data.rfind(b"&", -_LONGEST_REFERENCE)
        cut = len(data) if cut < 0 or b";" in data[cut:] else cut
        yield pattern.sub(mark, data[:cut]) if pattern else data[:cut]
        rest = data[cut:]
    yield pattern.sub(mark, rest) if pattern else rest


def read_tmx(
    path: Path, content: BinaryIO | None = None, *, with_elements: bool = False
) -> Iterator[tuple[str | None, Unit]]:
    """Yield the units of a TMX file, also compressed, each with the source language that the header names, or None.

    Read ``content`` instead of the file if it is given.  With ``with_elements``, units have their XML elements.
    In the texts of a unit, inline codes are left out, or become a blank if they break a line; highlighted text stays.
    Each text is one line.
    Raises: CorpusError naming file and line, if the file is not XML, not TMX, incomplete, or declares entities.
    """
    for collector in _parsed(path, content, with_elements=with_elements):
        yield from ((collector.source_language, unit) for unit in collector.units)


def read_header(path: Path, content: BinaryIO | None = None) -> ElementTree.Element | None:
    """Return the header of a TMX file, or None if there is none before the first unit.  Raises: as ``read_tmx``."""
    for collector in _parsed(path, content, with_elements=True):
        if collector.header is not None or collector.units:
            return collector.header
    return None


def _parsed(path: Path, content: BinaryIO | None, *, with_elements: bool) -> Iterator[_Collector]:
    """Yield the collector of a file's units after each piece of the file; then the units are removed."""
    collector, n_bytes = _Collector(path, with_elements=with_elements), 0
    try:
        with content or open_bytes(path) as stream:
            for data in _replace_illegal(stream):
                n_bytes += len(data)
                collector.parser.Parse(data, False)
                if n_bytes - collector.parser.CurrentByteIndex > _LONGEST_TOKEN:
                    collector.refuse(f"a tag or comment has more than {_LONGEST_TOKEN:,} bytes; expected text")
                yield collector
                collector.units.clear()
            collector.parser.Parse(b"", True)
    except READ_ERRORS as error:
        line = collector.parser.CurrentLineNumber
        raise CorpusError(f"{path}: cannot be read after line {line}: {error}; expected a TMX file") from error
    except expat.ExpatError as error:
        reason = f"{expat.ErrorString(error.code)} at column {error.offset + 1}"
        raise CorpusError(f"{path}, line {error.lineno}: cannot be read as XML: {reason}; {_REMEDY}") from error
    except (LookupError, ValueError) as error:  # an encoding that expat cannot read
        if isinstance(error, CorpusError):
            raise
        raise CorpusError(f"{path}, line 1: cannot be read as XML: {error}; save the file as UTF-8") from error


def language_of_variant(attributes: Mapping[str, str]) -> str | None:
    """Return the language's code in the attributes of a <tuv>, or None; versions before TMX 1.4 have "lang"."""
    return attributes.get("xml:lang") or attributes.get("lang")
