"""Translation memories: a translated memory keeps its header; its sources are those of the input."""

from pathlib import Path

import pytest

from minitransformer.data.survey import CorpusError
from minitransformer.extras.files import memories
from minitransformer.extras.files.memories import MemoryDocument, MemoryTranslator, groups_of_input, opening
from tests.minitransformer.extras.files.test_documents import Shouting
from tests.minitransformer.extras.files.test_po import reversed_words

HEADER = (
    '<header creationtool="other" creationtoolversion="3" segtype="sentence" o-tmf="o" adminlang="fr" srclang="{}"'
    ' datatype="html" creationdate="20200101T000000Z"><note xml:lang="en">a &lt; b</note>\n<prop type="p">c</prop>'
    '<o:ude name="d"><o:map/></o:ude></header>'
)
MEMORY = (
    '<tmx xmlns:o="urn:o" version="1.4">{}<body>\n<tu tuid="1"><tuv xml:lang="{}"><seg>{}</seg></tuv></tu></body></tmx>'
)
LANGUAGES = ("en", "de")


def documents(folder: Path, header: str, text: str = "one two", language: str = "en") -> list[bytes]:
    """Return a translated memory, as the server and as the command write it."""
    path = folder / "a.tmx"
    path.write_text(MEMORY.format(header, language, text))
    document = MemoryDocument.read(path, path.read_bytes(), LANGUAGES)
    document.fill(reversed_words(document.segments))
    translator = MemoryTranslator.between(path, LANGUAGES, Shouting())
    with groups_of_input(path, 9, LANGUAGES, whole_units=True) as groups:
        units = [translator(group, 0)[0] for group in groups]
    return [document.content(), translator.opening + b"".join(units) + translator.closing]


@pytest.mark.parametrize(("language", "written"), [("en", "en"), ("en-US", "en-US"), ("*all*", "*all*"), ("fr", "en")])
def test_a_header_keeps_all_but_the_tool_and_another_language(
    tmp_path: Path, language: str, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "code_version", lambda: "1")
    expected = HEADER.format(written).replace('"other"', '"minitransformer"').replace('"3"', '"1"')
    for content in documents(tmp_path, HEADER.format(language)):
        found = content.decode().partition("<body>")[0].replace(' xmlns:o="urn:o"', "")
        assert found == f'<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n{expected}\n'
        MemoryDocument.read(Path("b.tmx"), content, LANGUAGES)  # with its namespaces


def test_a_memory_without_a_header_gets_one(tmp_path: Path) -> None:
    for content in documents(tmp_path, ""):
        assert content.startswith(opening("en"))


def test_tags_that_are_too_deep_are_refused_with_their_line(tmp_path: Path) -> None:
    deep = "&lt;b&gt;" * 1_200 + "one" + "&lt;/b&gt;" * 1_200
    with pytest.raises(CorpusError, match=r"a\.tmx, line 2: a segment has more than 100 tags within each other"):
        documents(tmp_path, "", deep)


def test_nothing_is_written_if_another_source_would_come_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(parts: object, element: object) -> None:
        document.units[0].find("tuv/seg").text = "two"  # type: ignore[union-attr]

    document = MemoryDocument.read(Path("a.tmx"), MEMORY.format("", "en", "one").encode(), LANGUAGES)
    monkeypatch.setattr(memories, "write_parts", spoil)
    document.fill(reversed_words(document.segments))
    with pytest.raises(CorpusError, match="unit 1 of the translated file would not be that of the input"):
        document.content()
