"""XLIFF documents of versions 1.2 and 2: units without a translation get one, marked for review.

Source: XLIFF 1.2, OASIS 2008, and 2.1, OASIS 2018.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minitransformer.config import ConfigError
from minitransformer.data.survey import CorpusError
from minitransformer.data.units import fits
from minitransformer.extras.files.editing import checked, require_same_units
from minitransformer.extras.files.inline import parts_of, write_parts
from minitransformer.extras.files.memories import Languages
from minitransformer.extras.files.xml_text import XmlText
from minitransformer.text.codes import Parts
from minitransformer.text.sentence import UNCERTAIN
from minitransformer.text.translation import Translation

_XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_UNTRANSLATED = ("new", "needs-translation")  # states of XLIFF 1 targets without a translation
_log = logging.getLogger(__name__)


class XliffDocument:
    """An XLIFF file of version 1 or 2.  Only units without a translation are translated (see ``_is_open``)."""

    def __init__(self, path: Path, content: bytes, languages: Languages | None) -> None:
        self._path, self._original, self._file = path, content, XmlText(path, content)
        self._is_changed = False
        root = self._file.root
        if not isinstance(root.tag, str) or root.tag.rpartition("}")[2] != "xliff":
            raise CorpusError(f"{path}: the root element is <{root.tag}>; expected <xliff>: is this an XLIFF file?")
        self.is_second = root.get("version", "1.2").startswith("2")
        parts = self._parts_between(path, root, languages)
        self._kind = "{*}segment" if self.is_second else "{*}trans-unit"
        self._before = self._identities(root)
        self.units = [unit for part in parts for unit in part.iter(self._kind) if _is_open(unit)]
        self.sources = [self._sources(unit) for unit in self.units]
        self.segments = [self._parts(each) for sources in self.sources for each in sources]

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

    def _identities(self, root: Any) -> list[tuple[object, ...]]:
        """Return what identifies each unit: the ids of the unit and its parent, and the source."""
        found = list[tuple[object, ...]]()
        for unit in root.iter(self._kind):
            for name in ("source", "seg-source"):
                if (n := len(unit.findall(f"{{*}}{name}"))) > 1:
                    raise CorpusError(f"{self._path}, line {unit.sourceline}: a unit has {n} <{name}>; expected one")
            sources = map(self._file.xml, unit.findall("{*}source"))
            found.append((unit.getparent().get("id"), unit.get("id"), *sources))
        return found

    def _parts(self, source: Any) -> Parts:
        parts = parts_of(source, keeps_lines=_keeps_lines(source))
        return checked(parts, f"{self._path}, line {source.sourceline}")

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
            target.tag = f"{_namespace(unit)}target"
            targets = target.findall(".//{*}mrk[@mtype='seg']") if container is not sources[0] else [target]
            for each, element in zip(translated, targets, strict=True):
                write_parts(each.parts, element)
            self._add(unit, container, target, is_uncertain=any(each.is_uncertain for each in translated))

    def _add(self, unit: Any, source: Any, target: Any, *, is_uncertain: bool) -> None:
        """Insert ``target`` after its source, replacing the old target; set its state, and add a note if uncertain."""
        self._is_changed = True
        target.attrib.pop(_XML_LANGUAGE, None)  # the copy has the language of the source
        for old in unit.findall("{*}target"):
            target.tail = old.tail
            target.attrib.update(old.attrib)
            unit.remove(old)
        source.addnext(target)
        if self.is_second:
            unit.set("state", "translated")
            unit.set("subState", "minitransformer:mt-suggestion")
        else:
            target.set("state", "needs-review-translation")
            target.set("state-qualifier", "mt-suggestion")
        if is_uncertain:
            self._add_note(unit.getparent() if self.is_second else unit)

    def _add_note(self, unit: Any) -> None:
        """Add a note, where the schema allows it: in version 2 before, in version 1 after all else of XLIFF."""
        namespace, text = _namespace(unit), f"minitransformer: {UNCERTAIN}"
        note = unit.makeelement(f"{namespace}note")
        note.text = text
        if any(each.text == text for each in unit.iterfind("{*}note" if not self.is_second else "{*}notes/{*}note")):
            return
        own = [each for each in unit if isinstance(each.tag, str) and _namespace(each) == namespace]
        if not self.is_second:
            own[-1].addnext(note)
        elif own[0].tag == f"{namespace}notes":
            own[0].append(note)
        else:
            notes = unit.makeelement(f"{namespace}notes")
            notes.append(note)
            own[0].addprevious(notes)

    def content(self) -> bytes:
        """Return the content of the file.  Raises: CorpusError if its units are not those of the input."""
        if not self._is_changed:
            return self._original
        content = self._file.content()
        root = self._file.parsed(self._path, content).getroot()
        require_same_units(self._path, self._before, self._identities(root))
        return content


def _namespace(element: Any) -> str:
    """Return the namespace of an element, in the braces of ElementTree; "" if it has none."""
    name = str(element.tag)
    return name[: name.find("}") + 1]


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
