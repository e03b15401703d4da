"""Translation memories (TMX files) as the input or the output of a translation."""

from __future__ import annotations

import io
import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from minitransformer.config import ConfigError
from minitransformer.data.pair_files import COLUMNS, ILLEGAL, languages_of, listing, log_other_regions, read_units
from minitransformer.data.survey import N_NAMED, CorpusError, Found, groups_of
from minitransformer.data.tmx import language_of_variant, read_header, read_tmx
from minitransformer.data.units import Unit, fits
from minitransformer.extras.files.editing import coded, require_same_units
from minitransformer.extras.files.inline import parts_of, write_parts
from minitransformer.extras.files.stream import LinesDone, LineTranslator, Prefixes, groups_of_file, pharaoh
from minitransformer.system.file_kinds import has_both_sides, is_memory
from minitransformer.system.provenance import code_version
from minitransformer.text.sentence import UNCERTAIN
from minitransformer.text.translation import Translation

CLOSING = b"</body>\n</tmx>\n"
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML 1.0 excludes
_REPLACEMENT = "\ufffd"
_MARK = "x-minitransformer"  # the type of the <prop> that marks an uncertain translation
Languages = tuple[str, str]
_log = logging.getLogger(__name__)


def languages_between(
    source: Path, output: Path | None, named: Languages | None, model_languages: Languages | None
) -> Languages | None:
    """Return the languages of a translation: ``named``, or else those of the model, or else those of ``source``.

    Those of the model have the regions that ``source`` names.  The result is None if the languages have no name, and
    ``source`` is a text file.
    Raises: ConfigError if ``output`` is a translation memory, but no languages are found; CorpusError as
    ``languages_of`` does.
    """
    if found := named or model_languages:
        return found if named else languages_of_file(source, found)
    found = languages_of(source) if has_both_sides(source) else None
    if output is None or not is_memory(output):
        return found
    if found in (None, COLUMNS):
        raise ConfigError(f"{output}: a translation memory names its languages; set languages, for example en de")
    return found


def languages_of_file(path: Path, model_languages: Languages) -> Languages:
    """Return the languages of a model, with the regions that a file of two languages names."""
    with suppress(CorpusError):  # the file names one language, or more than two
        if has_both_sides(path) and all(map(fits, named := languages_of(path), model_languages)):
            return named
    return model_languages


def groups_of_input(
    path: Path, size: int, languages: Languages | None, *, whole_units: bool = False
) -> AbstractContextManager[Iterator[list[bytes]]]:
    """Open a file as groups of ``size`` lines: lines of a text file, or source texts of a file of two languages.

    A unit without source text is left out of a translation memory; for other files, it is an empty line.  With
    ``whole_units``, a line is a unit of a translation memory as XML, not only its source text.
    Raises: CorpusError if the file cannot be read.
    """
    if languages is None or not has_both_sides(path):
        return groups_of_file(path, size)
    units = units_with_text(path, languages, with_elements=whole_units, every=not is_memory(path))
    lines = (text.encode() if unit.element is None else _xml(unit.element) for unit, text in units)
    return _groups_of(lines, size)


def units_with_text(
    path: Path,
    languages: Languages,
    content: BinaryIO | None = None,
    *,
    with_elements: bool = False,
    every: bool = False,
) -> Iterator[tuple[Unit, str]]:
    """Yield the units that have text in the source language, each with this text; the log counts other units.

    With ``every``, units without text in the source language are yielded, too, with an empty text.  Units with illegal
    characters are left out.
    With ``with_elements``, the file is a translation memory; its units have their XML elements, and are read from
    ``content`` if it is given.
    Raises: CorpusError as ``read_units`` does, and if no unit has text in the source language.
    """
    n_found, n_without, codes, illegal, chosen = 0, 0, dict[str, None](), Found(), Counter[str]()
    language = languages[0]
    for _, unit in read_tmx(path, content, with_elements=True) if with_elements else read_units(path, languages):
        code, _ = unit.codes(*languages)
        if unit.is_illegal:
            illegal.add(unit.line)
        elif code is None:
            n_without += 1
            codes |= dict.fromkeys(unit.texts) if len(codes) <= N_NAMED else {}
            if every:
                yield unit, ""
        else:
            n_found += 1
            chosen[code] += 1
            if with_elements:
                coded(unit.texts[code], f"{path}, line {unit.line:,}")
            yield unit, unit.texts[code]
    if not n_found:
        raise CorpusError(
            f"{path}: no unit has text in {language}; its languages are {listing(codes) or 'missing'}: set languages,"
            " first the source's, then the target's"
        )
    if n_without:
        result = "have an empty line as translation" if every else "are left out"
        _log.warning(f"{path}: {n_without:,} units have no text in {language}, and {result}")
    if illegal.count:
        _log.warning(f"{path}: {illegal.count:,} {ILLEGAL}: line {illegal.locations}")
    log_other_regions(path, language, chosen)


@contextmanager
def _groups_of(lines: Iterator[bytes], size: int) -> Iterator[Iterator[list[bytes]]]:
    groups = groups_of(lines, size)
    first = list(itertools.islice(groups, 1))  # errors of the input occur before an output is opened
    yield itertools.chain(first, groups)


@dataclass(frozen=True)
class MemoryTranslator:
    """A translation of groups of lines into units of a translation memory; a unit has a line and its translation.

    With ``whole_units``, lines are units of a memory as XML.  The translation in the target language is added to the
    unit, or replaces its old translation.  All else in the unit stays: codes, notes and properties.  Codes of the
    source are copied into the translation (see ``codes``).  ``header`` is the header of this memory, if it has one.
    The output begins with ``opening`` and ends with ``closing``.
    """

    translate: LineTranslator
    languages: Languages
    whole_units: bool = False
    header: ElementTree.Element | None = None
    closing: bytes = CLOSING

    @classmethod
    def between(cls, path: Path, languages: Languages, translate: LineTranslator) -> MemoryTranslator:
        """Return the translator of the file ``path``; a memory keeps its units and its header."""
        whole_units = is_memory(path)
        return cls(translate, languages, whole_units, read_header(path) if whole_units else None)

    @property
    def opening(self) -> bytes:
        """The beginning of the output."""
        return opening(self.languages[0], self.header)

    @property
    def alignments(self) -> Path | None:
        """The path of the file for word alignments, or None."""
        return self.translate.alignments

    @property
    def prefixes(self) -> Prefixes | None:
        """The given beginnings of translations, or None."""
        return self.translate.prefixes

    def __call__(self, lines: Sequence[bytes], n_before: int, advance: LinesDone = lambda n: None) -> list[bytes]:
        """Translate a group of lines; ``n_before`` lines of the input come before it.  Empty lines give no unit.

        Returns: a list with the bytes of the units and, if there is a file for alignments, the alignments of all lines.
        """
        if self.whole_units:
            return self._units(lines, n_before, advance)
        texts = self.translate.texts_of(lines, n_before)
        translated, *alignments = self.translate.outputs_of(texts, n_before, advance)
        pairs = zip(texts, translated.decode().split("\n"), strict=False)  # after the last line feed comes ""
        return [b"".join(unit_of(self.languages, pair) for pair in pairs if pair[0]), *alignments]

    def _units(self, lines: Sequence[bytes], n_before: int, advance: LinesDone) -> list[bytes]:
        content = io.BytesIO(self.opening + b"".join(lines) + CLOSING)
        units = [unit.element for _, unit in read_tmx(Path("units"), content, with_elements=True)]
        memory = MemoryDocument([unit for unit in units if unit is not None], self.languages)
        found = self.translate.segments(memory.segments, n_before, advance)
        memory.fill(found)
        outputs = [memory.units_as_xml()]
        if self.alignments is not None:
            outputs.append("".join(f"{pharaoh(each.alignment)}\n" for each in found).encode())
        return outputs

    def facts(self) -> dict[str, Any]:
        """Return the settings on which the output depends, and the checksum of the model."""
        return {**self.translate.facts(), "languages": list(self.languages)}


class MemoryDocument:
    """A translation memory, or some of its units, as a document (see ``documents``)."""

    def __init__(
        self, units: Sequence[ElementTree.Element], languages: Languages, header: ElementTree.Element | None = None
    ) -> None:
        self.units, self.languages = units, languages
        self._opening, self._before = opening(languages[0], header), self._identities(units)
        sources = [_variants(unit, languages)[0] for unit in units]
        self.segments = [[] if source is None else parts_of(_segment(source)) for source in sources]

    @classmethod
    def read(cls, path: Path, content: bytes, languages: Languages | None) -> MemoryDocument:
        """Return the units of a memory that have text in the source language.

        Raises: CorpusError if the memory cannot be read, or has no such unit; ConfigError without languages.
        """
        if languages is None:
            raise ConfigError(f"{path}: may have several languages; set languages, for example en de")
        found = units_with_text(path, languages, io.BytesIO(content), with_elements=True)
        units = [unit.element for unit, _ in found if unit.element is not None]
        return cls(units, languages, read_header(path, io.BytesIO(content)))

    def _identities(self, units: Sequence[ElementTree.Element]) -> list[tuple[dict[str, str], bytes]]:
        """Return what a translation must not change in each unit: its attributes, and its source."""
        sources = ((unit, _variants(unit, self.languages)[0]) for unit in units)
        return [(unit.attrib, b"" if one is None else _xml(_segment(one))) for unit, one in sources]

    def fill(self, found: Sequence[Translation]) -> None:
        """Add the translation of each unit, or replace the translation that the unit has."""
        for unit, segment in zip(self.units, found, strict=True):
            if segment.text.strip():
                _add_target(unit, self.languages, segment)

    def units_as_xml(self) -> bytes:
        """Return the units as XML, one a line.  Raises: CorpusError if their sources are not those of the input."""
        content = b"".join(map(_xml, self.units))
        found = read_tmx(Path("units"), io.BytesIO(self._opening + content + CLOSING), with_elements=True)
        units = [unit.element for _, unit in found if unit.element is not None]
        require_same_units("translation memory", self._before, self._identities(units))
        return content

    def content(self) -> bytes:
        """Return the content of a TMX file with these units."""
        return self._opening + self.units_as_xml() + CLOSING


def opening(source_language: str, header: ElementTree.Element | None = None) -> bytes:
    """Return the beginning of a TMX file of version 1.4, up to its first unit.

    Attributes, notes and properties of ``header``, that of the input, are kept; only the tool that wrote the file, and
    a source language that is not ``source_language``, are replaced.
    """
    given = {} if header is None else dict(header.attrib)
    language = given.get("srclang", "")
    is_kept = language == "*all*" or (language != "" and fits(language, source_language))
    written = ElementTree.Element(
        "header",
        {"creationtool": "", "creationtoolversion": "", "segtype": "block", "o-tmf": "minitransformer"}
        | {"adminlang": "en", "srclang": source_language, "datatype": "plaintext"}
        | given
        | {"creationtool": "minitransformer", "creationtoolversion": code_version()}
        | ({} if is_kept else {"srclang": source_language}),
    )
    written.extend([] if header is None else header)
    written.text = None if header is None else header.text
    xml = ElementTree.tostring(written, encoding="unicode").replace(" />", "/>")
    return _encode(f'<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n{xml}\n<body>\n')


def unit_of(languages: tuple[str, str], texts: tuple[str, str]) -> bytes:
    """Return a unit as XML; characters that XML excludes become U+FFFD."""
    variants = (
        f"<tuv xml:lang={quoteattr(language)}><seg>{escape(_ILLEGAL.sub(_REPLACEMENT, text))}</seg></tuv>"
        for language, text in zip(languages, texts, strict=True)
    )
    return _encode(f"<tu>{''.join(variants)}</tu>\n")


def _variants(unit: ElementTree.Element, languages: Languages) -> list[ElementTree.Element | None]:
    """Return the variants of a unit in the source and the target language; None for a missing variant."""
    variants = dict[str, ElementTree.Element]()
    for each in unit.findall("tuv"):
        variants.setdefault(language_of_variant(each.attrib) or "", each)
    codes = Unit(0, dict.fromkeys(variants, "")).codes(*languages)
    return [None if code is None else variants[code] for code in codes]


def _segment(variant: ElementTree.Element) -> ElementTree.Element:
    segment = variant.find("seg")
    return ElementTree.SubElement(variant, "seg") if segment is None else segment


def _add_target(unit: ElementTree.Element, languages: Languages, segment: Translation) -> None:
    _, variant = _variants(unit, languages)
    if variant is None:
        variant = ElementTree.SubElement(unit, "tuv", {"xml:lang": languages[1]})
    for mark in variant.findall(f"prop[@type='{_MARK}']"):
        variant.remove(mark)
    if segment.is_uncertain:
        mark = ElementTree.Element("prop", {"type": _MARK})
        mark.text = UNCERTAIN
        variant.insert(0, mark)
    write_parts(segment.parts, _segment(variant))


def _xml(unit: ElementTree.Element) -> bytes:
    unit.tail = None
    return _encode(ElementTree.tostring(unit, encoding="unicode") + "\n")


def _encode(xml: str) -> bytes:
    """Return XML as bytes; escape carriage returns, which a parser would otherwise read as line feeds."""
    return xml.replace("\r", "&#13;").encode()
