"""XLIFF documents are written as they came, except for targets, states and notes, and stay valid."""

import codecs
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from lxml import etree

from minitransformer.data.survey import CorpusError
from minitransformer.extras.files import xliff
from minitransformer.extras.files.documents import read_document
from minitransformer.text.sentence import UNCERTAIN
from minitransformer.text.translation import Note
from tests.minitransformer.extras.files.test_documents import STATE, STATE_2
from tests.minitransformer.extras.files.test_po import reversed_words

DECLARATION = '<?xml version="1.0"  encoding="{}" standalone="no" ?>\n<!-- one -->\n<!DOCTYPE xliff>\n\n'
UNIT = '<trans-unit id="1">{}</trans-unit>'
FILE = (
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:o="urn:o" version="1.2">\n'
    '  <file original="a" source-language="en" target-language="de" datatype="plaintext"><body>\n{}\n</body></file>\n'
    "</xliff>"
)
FILE_2 = (
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" xmlns:o="urn:o" version="2.0" srcLang="en" trgLang="de">\n'
    '<file id="f"><unit id="u">{}</unit></file></xliff>\n'
)
DEEP = "&lt;b&gt;" * 1_200 + "one" + "&lt;/b&gt;" * 1_200
OPEN = "one <g id='1'>ä &lt; two</g>".replace("'", '"')


def translated(content: bytes, languages: tuple[str, str] | None = None) -> bytes:
    document = read_document(Path("a.xlf"), languages, content)
    document.fill(reversed_words(document.segments))
    return document.content()


ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "utf-8": str.encode,
    "UTF-8": lambda text: codecs.BOM_UTF8 + text.encode(),
    "UTF-16": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    "utf-16": lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
    "ISO-8859-1": lambda text: text.encode("latin-1"),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("after", ["", "\n", "\n<!-- two -->\n\n"])
def test_mark_declaration_comments_and_line_ends_stay(encoding: str, line_end: str, after: str) -> None:
    note = "<note><![CDATA[<b>]]>&#13;</note>"
    before = UNIT.format(f"<source>{OPEN}</source>\n{note}")
    expected = UNIT.format(f'<source>{OPEN}</source>\n<target {STATE}><g id="1">two &lt; ä</g> one</target>\n{note}')
    texts = (DECLARATION.format(encoding) + FILE.format(unit) + after for unit in (before, expected))
    content, wanted = (ENCODINGS[encoding](text.replace("\n", line_end)) for text in texts)
    assert translated(content).decode(encoding) == wanted.decode(encoding)
    assert translated(content) == wanted


def test_a_file_without_a_declaration_gets_none_and_one_in_which_nothing_is_open_is_a_copy() -> None:
    assert translated(FILE.format(UNIT.format("<source>one</source>")).encode()).startswith(b"<xliff ")
    content = FILE.replace(' target-language="de"', "").format(UNIT.format("<source>1</source >")).encode()
    done = content.replace(b"<source>1", b"<source>one").replace(b"</source >", b"</source><target>eins</target >")
    assert translated(done, ("en", "de")) == done


NOTE = f"<note>minitransformer: {UNCERTAIN}</note>"


@pytest.mark.parametrize(("template", "path", "unit", "expected"), [
    (FILE, ".//{*}trans-unit", UNIT.format("{}<note>c</note><o:a/><!-- d -->"), "source target note note a"),
    (FILE, ".//{*}trans-unit", UNIT.format("{}<o:a/>"), "source target note a"),
    (FILE, ".//{*}trans-unit", UNIT.format("{}"), "source target note"),
    (FILE_2, ".//{*}unit",
        "<o:a/><!-- d --><o:b/><originalData><data id='d'>x</data></originalData><segment>{}</segment>",
        "a b notes originalData segment"),
    (FILE_2, ".//{*}unit", "<o:a/><notes><note>c</note></notes><segment>{}</segment>", "a notes segment"),
    (FILE_2, ".//{*}unit", "<segment>{}</segment><segment>{}</segment>", "notes segment segment"),
])  # fmt: skip
def test_notes_stand_where_the_schemas_have_them(template: str, path: str, unit: str, expected: str) -> None:
    source = "<source>a<ph id='1'/>b one</source>" if template is FILE_2 else "<source>a<x id='1'/>b one</source>"
    content = template.format(unit.replace("{}", source)).encode()
    document = read_document(Path("a.xlf"), None, content)
    found = [
        dataclasses.replace(each, notes=(Note("codes", UNCERTAIN, is_uncertain=True),))
        for each in reversed_words(document.segments)
    ]
    document.fill(found)
    root = etree.fromstring(document.content())
    names = [etree.QName(each).localname for each in root.find(path) if isinstance(each.tag, str)]
    assert " ".join(names) == expected
    assert document.content().count(NOTE.encode()) == 1
    assert (STATE_2 if template is FILE_2 else STATE).encode() in document.content()


@pytest.mark.parametrize(("unit", "message"), [
    ("<source>a</source>\n<source>b</source>", "a.xlf, line 3: a unit has 2 <source>; expected one"),
    ("<source>a</source><seg-source>a</seg-source><seg-source/>", "line 3: a unit has 2 <seg-source>; expected one"),
    (f"<source>{'a b ' * 300_000}</source>", "a.xlf, line 3: a segment has more than 1,000,000 characters"),
    ("<g>" * 300 + "</g>" * 300, "a.xlf, line 3: cannot be read as XML: .*depth"),
])  # fmt: skip
def test_units_of_another_shape_are_refused_with_their_line(unit: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        translated(FILE.format(UNIT.format(unit)).encode())


def test_an_encoding_that_only_xml_readers_know_is_refused() -> None:
    content = '<?xml version="1.0" encoding="GEORGIAN-PS"?>' + FILE.format(UNIT.format("<source>one</source>"))
    with pytest.raises(CorpusError, match="a.xlf: its encoding, GEORGIAN-PS, is not known; save it as UTF-8"):
        translated(content.encode())


def test_nothing_is_written_if_another_source_would_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(parts: object, element: etree._Element) -> None:
        document._file.root.find(".//{*}source").text = "two"  # type: ignore[attr-defined]

    document = read_document(Path("a.xlf"), None, FILE.format(UNIT.format("<source>one</source>")).encode())
    monkeypatch.setattr(xliff, "write_parts", spoil)
    document.fill(reversed_words(document.segments))
    with pytest.raises(CorpusError, match="a.xlf: unit 1 of the translated file would not be that of the input"):
        document.content()


def test_a_namespace_may_be_any_text() -> None:
    content = FILE.replace("urn:oasis", "ur#n").format(UNIT.format("<source>one two</source>")).encode()
    assert b">two one</target>" in translated(content)
