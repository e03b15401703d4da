"""Translation of XLIFF and gettext documents: units without a translation get one; all other units stay unchanged.

A document is read and written in one piece.  Translations are marked for review: "fuzzy" in gettext, with the state
"needs-review-translation" in XLIFF 1 and "translated" in XLIFF 2.

Source: XLIFF 1.2, OASIS 2008, and 2.1, OASIS 2018; GNU gettext's manual, "The Format of PO Files".
"""

from __future__ import annotations

import copy
import gettext
import io
import itertools
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from minitransformer.config import ConfigError
from minitransformer.data.survey import READ_ERRORS, CorpusError
from minitransformer.data.units import fits, without_region
from minitransformer.extras.files.inline import parts_of, write_parts
from minitransformer.extras.files.memories import Languages
from minitransformer.extras.packages import import_extra
from minitransformer.text.codes import Parts
from minitransformer.text.sentence import UNCERTAIN
from minitransformer.text.translation import Translation

_XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
XLIFF, GETTEXT = frozenset({".xlf", ".xliff"}), frozenset({".po", ".pot"})
_UNTRANSLATED = ("new", "needs-translation")  # states of XLIFF 1 targets without a translation
_log = logging.getLogger(__name__)
_PLURALS = re.compile(r"\s*nplurals\s*=\s*([1-9])\s*;\s*plural\s*=\s*([^;]+)")


def is_document(path: Path) -> bool:
    """Return whether a file is an XLIFF or gettext document, by its ending."""
    return path.suffix.lower() in XLIFF | GETTEXT


class Document(Protocol):
    """A document whose segments are translated."""

    segments: list[Parts]

    def fill(self, found: Sequence[Translation]) -> None:
        """Write the translation of each segment, in the order of ``segments``, into the document."""

    def content(self) -> bytes:
        """Return the content of the document's file."""


def read_document(path: Path, languages: Languages | None = None, content: bytes | None = None) -> Document:
    """Read a document from ``content``, or from the file ``path`` if ``content`` is None.

    If the document names no target language, the target of ``languages`` is written into the document.
    Raises: CorpusError if the document cannot be read, or has other languages; ConfigError if ``languages`` is None and
    an XLIFF 2 document names no target language; MissingExtraError if a package of the extra "files" is missing.
    """
    try:
        content = path.read_bytes() if content is None else content
        return (_Gettext if path.suffix.lower() in GETTEXT else _Xliff)(path, content, languages)
    except READ_ERRORS as error:
        raise CorpusError(f"{path}: cannot be read: {error}") from error


class _Gettext:
    """A PO file.

    The form for the number 1 is translated from the singular, all other forms from the plural.
    """

    def __init__(self, path: Path, content: bytes, languages: Languages | None) -> None:
        polib = import_extra("files", "polib")
        try:
            encoding = polib.detect_encoding(content.decode("latin-1") + "\n")
            self.file = polib.pofile(content.decode(encoding) + "\n")  # polib reads a text without \n as a file's name
        except (OSError, ValueError, LookupError) as error:  # OSError: a line that no PO file has
            raise CorpusError(f"{path}: cannot be read as a PO file: {error}") from error
        self._line_end = "\r\n" if b"\r\n" in content else "\n"
        metadata = self.file.metadata
        metadata["Content-Type"] = "text/plain; charset=UTF-8"
        named = metadata.get("Language")
        if languages and named and not fits(named, languages[1]):
            raise CorpusError(
                f"{path}: its language is {named}, not {languages[1]}; set languages to those of the file"
            )
        if languages and not named:
            metadata["Language"] = languages[1]
        if not _PLURALS.match(metadata.get("Plural-Forms", "")) and any(each.msgid_plural for each in self.file):
            metadata["Plural-Forms"] = _plural_forms(metadata.get("Language", ""))
        elif "EXPRESSION" in metadata.get("Plural-Forms", ""):
            del metadata["Plural-Forms"]
        plurals = _PLURALS.match(metadata.get("Plural-Forms", ""))
        self.n_plurals, self.singular = (
            (int(plurals[1]), _index_of_one(plurals[2], int(plurals[1]))) if plurals else (2, 0)
        )
        self.entries = [each for each in self.file if not each.obsolete and not self._is_translated(each)]
        self.segments: list[Parts] = [[text] if text else [] for entry in self.entries for text in self._texts(entry)]

    def _is_translated(self, entry: Any) -> bool:
        return bool(entry.msgstr or any(entry.msgstr_plural.values()))

    def _texts(self, entry: Any) -> list[str]:
        if not entry.msgid_plural:
            return [entry.msgid]
        texts = [entry.msgid_plural] * self.n_plurals
        if self.n_plurals > 1:
            texts[self.singular] = entry.msgid
        return texts

    def fill(self, found: Sequence[Translation]) -> None:
        remaining = iter(found)
        for entry in self.entries:
            forms = [next(remaining) for _ in self._texts(entry)]
            texts = [form.text for form in forms]
            if not any(map(str.strip, texts)):
                continue
            if entry.msgid_plural:
                entry.msgstr_plural = dict(enumerate(texts))
            else:
                entry.msgstr = texts[0]
            if "fuzzy" not in entry.flags:
                entry.flags.append("fuzzy")
            if UNCERTAIN not in entry.tcomment and any(form.is_uncertain for form in forms):
                entry.tcomment = "\n".join(filter(None, (entry.tcomment, UNCERTAIN)))

    def content(self) -> bytes:
        return f"{self.file}\n".replace("\n", self._line_end).encode()


def _plural_forms(language: str) -> str:
    """Return the rule of a language's plural forms, for a PO file's header; English's rule if it is not known."""
    rules = import_extra("files", "babel.messages.plurals").PLURALS
    code, english = language.replace("-", "_"), (2, "(n != 1)")
    n_forms, rule = rules.get(code) or rules.get(without_region(language), english)
    return f"nplurals={n_forms}; plural={rule};"


def _index_of_one(rule: str, n_forms: int) -> int:
    """Return the index of the plural form for the number 1; 0 if ``rule``, an expression in C, is wrong."""
    try:
        index = int(gettext.c2py(rule)(1))
    except (ValueError, ArithmeticError):
        return 0
    return index if index < n_forms else 0


class _Xliff:
    """An XLIFF file of version 1 or 2.  Only units without a translation are translated (see ``_is_open``)."""

    def __init__(self, path: Path, content: bytes, languages: Languages | None) -> None:
        self.etree = import_extra("files", "lxml.etree")
        parser = self.etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
        try:
            self.tree = self.etree.parse(io.BytesIO(content), parser)
        except self.etree.XMLSyntaxError as error:
            raise CorpusError(f"{path}, line {error.lineno}: cannot be read as XML: {error.msg}") from error
        document_type = self.tree.docinfo.internalDTD
        if document_type is not None and document_type.entities():
            raise CorpusError(f"{path}: declares entities, which are not read: write the text itself")
        root = self.tree.getroot()
        if self.etree.QName(root).localname != "xliff":
            raise CorpusError(f"{path}: the root element is <{root.tag}>; expected <xliff>: is this an XLIFF file?")
        self.is_second = root.get("version", "1.2").startswith("2")
        parts = self._parts_between(path, root, languages)
        kind = "{*}segment" if self.is_second else "{*}trans-unit"
        self.units = [unit for part in parts for unit in part.iter(kind) if _is_open(unit)]
        self.sources = [self._sources(unit) for unit in self.units]
        texts = itertools.chain.from_iterable(self.sources)
        self.segments = [parts_of(each, keeps_lines=_keeps_lines(each)) for each in texts]

    def _parts_between(self, path: Path, root: Any, languages: Languages | None) -> list[Any]:
        """Return the parts of the file in these languages; name the target language of parts that name none.

        A part is a <file> of version 1, or the root of version 2.
        Raises: CorpusError if all parts are in other languages; ConfigError if version 2 has no target language.
        """
        source, target = ("srcLang", "trgLang") if self.is_second else ("source-language", "target-language")
        found, others = list[Any](), list[str]()
        for part in [root] if self.is_second else root.iter("{*}file"):
            codes = part.get(source), part.get(target)
            pairs = zip(codes, languages or codes, strict=True)
            if not all(fits(code, language) for code, language in pairs if code):
                others.append(" → ".join(filter(None, codes)))
                continue
            found.append(part)
            if not codes[1] and languages:
                part.set(target, languages[1])
            elif not codes[1] and self.is_second:
                raise ConfigError(f"{path}: names no target language; set languages, for example en de")
        if others and languages:
            message = f"{path}: its languages are {others[0]}, not {' → '.join(languages)}"
            if not found:
                raise CorpusError(f"{message}; set languages to those of the file")
            _log.warning(f"{message}, in {len(others):,} of {len(others) + len(found):,} parts, which stay as they are")
        return found

    def _sources(self, unit: Any) -> list[Any]:
        """Return the elements with the source text of a unit: the segments that a tool has marked, or the <source>."""
        marked: list[Any] = unit.findall("{*}seg-source//{*}mrk[@mtype='seg']")
        return marked or list(unit.findall("{*}source"))

    def fill(self, found: Sequence[Translation]) -> None:
        remaining = iter(found)
        for unit, sources in zip(self.units, self.sources, strict=True):
            translated = [next(remaining) for _ in sources]
            if not any(each.text.strip() for each in translated):
                continue
            container = unit.find("{*}seg-source") if sources[0].get("mtype") == "seg" else sources[0]
            target = copy.deepcopy(container)
            target.tag = self.etree.QName(self.etree.QName(unit).namespace, "target")
            targets = target.findall(".//{*}mrk[@mtype='seg']") if container is not sources[0] else [target]
            for each, element in zip(translated, targets, strict=True):
                write_parts(each.parts, element)
            self._add(unit, container, target, is_uncertain=any(each.is_uncertain for each in translated))

    def _add(self, unit: Any, source: Any, target: Any, *, is_uncertain: bool) -> None:
        """Insert ``target`` after its source, replacing the old target; set its state, and add a note if uncertain."""
        target.attrib.pop(_XML_LANGUAGE, None)  # the copy has the language of the source
        for old in unit.findall("{*}target"):
            target.tail = old.tail
            target.attrib.update(old.attrib)
            unit.remove(old)
        source.addnext(target)
        namespace = self.etree.QName(unit).namespace
        if self.is_second:
            unit.set("state", "translated")
            unit.attrib.pop("subState", None)
            place = unit.getparent()
            notes = place.find("{*}notes")
            if is_uncertain and notes is None:
                notes = place.makeelement(self.etree.QName(namespace, "notes"))
                place.insert(0, notes)
        else:
            target.set("state", "needs-review-translation")
            target.set("state-qualifier", "mt-suggestion")
            notes = unit
        text = f"minitransformer: {UNCERTAIN}"
        if is_uncertain and all(note.text != text for note in notes.findall("{*}note")):
            note = notes.makeelement(self.etree.QName(namespace, "note"))
            note.text = text
            notes.append(note)

    def content(self) -> bytes:
        encoding = self.tree.docinfo.encoding or "UTF-8"
        content: bytes = self.etree.tostring(self.tree, encoding=encoding, xml_declaration=True)
        return content + b"\n" * content.startswith(b"<?xml")  # in UTF-16 a line feed has two bytes


def _keeps_lines(element: Any) -> bool:
    """Return whether line ends in an element belong to the text, not to the layout: xml:space is "preserve"."""
    marks = filter(None, (each.get(_XML_SPACE) for each in (element, *element.iterancestors())))
    return next(marks, "default") == "preserve"


def _is_open(unit: Any) -> bool:
    """Return whether a unit must be translated.

    A unit stays if it is approved, if it has a translation, or if the attribute ``translate`` is "no".  The attribute
    is that of the unit, or of the nearest element around the unit that has it.
    """
    marks = filter(None, (each.get("translate") for each in (unit, *unit.iterancestors())))
    if unit.get("approved") == "yes" or next(marks, "yes") == "no":
        return False
    targets = [target for target in unit.findall("{*}target") if target.get("state") not in _UNTRANSLATED]
    return unit.get("state") == "initial" or not any("".join(target.itertext()).strip() for target in targets)
