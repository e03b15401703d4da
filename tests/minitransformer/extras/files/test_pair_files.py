"""Files with both sides of a text, translation memories among them: what is read, and what hostile ones are told by."""

import dataclasses
import gzip
import io
import json
import logging
import lzma
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minitransformer.config import ConfigError, DataConfig
from minitransformer.data import tmx
from minitransformer.data.corpus import FileCorpus
from minitransformer.data.pair_files import (
    ILLEGAL,
    INCOMPLETE,
    languages_of,
    read_pair_file,
    require_one_direction,
    survey_pair_file,
)
from minitransformer.data.survey import LONGEST_LINE, CorpusError
from minitransformer.data.units import Unit
from minitransformer.extras.files.memories import CLOSING, opening, unit_of, units_with_text
from minitransformer.system.records import read_object
from tests.support.training import job_of, run_of


def written(folder: Path, content: str | bytes, name: str = "x.tmx") -> Path:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / name


def zipped(files: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, text in files.items():
            file.writestr(name, text)
    return content.getvalue()


ROWS = [("a house", "ein Haus"), ('"two" \u2028 cats', "zwei\u00a0Katzen")]
TABLE = "\ufeff{}\t{}\nalone\n{}\t{}\t0.9\r\n".format(*ROWS[0], *ROWS[1]).encode()
UNITS = [{"en": "a house", "de": "ein Haus"}, {"en": "alone"}, {"de": ROWS[1][1], "en": ROWS[1][0]}]
SIDES = {f"x/Text.en-de.{code}": "".join(unit.get(code, "") + "\n" for unit in UNITS) for code in ("en", "de")}
FILES = {
    "pairs.tsv": TABLE, "pairs.tsv.gz": gzip.compress(TABLE), "pairs.zip": zipped({"README": "about"} | SIDES),
    "pairs.jsonl": "".join(json.dumps({"id": 1, "translation": unit}) + "\n" for unit in UNITS).encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_pairs_are_read_in_any_direction_and_lines_without_both_texts_are_named(tmp_path: Path, name: str) -> None:
    expected = [ROWS[0], ('"two" cats', ROWS[1][1])] if "jsonl" in name else ROWS
    path, is_table = written(tmp_path, FILES[name], name), "tsv" in name  # a table names no languages
    assert list(read_pair_file(path)) == list(read_pair_file(path, ("en", "de"))) == expected
    survey = survey_pair_file(path)
    assert (survey.n_lines, survey.odd[INCOMPLETE].first) == (2, [2])
    assert languages_of(path) == (("source", "target") if is_table else ("en", "de"))
    config = DataConfig(raw=tmp_path, train_source=(name,), validation_source=(name,), languages=("de", "en"))
    assert list(FileCorpus.of(config).train()) == [pair if is_table else pair[::-1] for pair in expected]


@pytest.mark.parametrize(("name", "content", "message"), [
    ("a.jsonl", b'{"translation": {"en": "a", "de": "b"}}\n[1]\n', r'a\.jsonl, line 2: expected {"translation": {"en"'),
    ("a.jsonl", b'{"translation": {"en": 1}}\n', r"a\.jsonl, line 1: expected"),
    ("a.jsonl", b'{"translation": {"en": "a", "de": "b"}}\n{"translation": {"en": "a \\ud83d b", "de": "b"}}\n',
        r"a\.jsonl, line 2: has half of a surrogate pair, such as \\ud83d alone"),
    ("a.jsonl", b'{"translation": {"e\\ude00": "a"}}\n', r"a\.jsonl, line 1: has half of a surrogate pair"),
    ("a.tsv", b"a\tb\n\xff\tb\n", r"a\.tsv, line 2: not UTF-8"),
    ("a.tsv", b"a b\n", r"a\.tsv: no unit has text in two languages"),
    ("a.zip", b"PK", r"a\.zip: cannot be read as an archive: File is not a zip file"),
    ("a.zip", zipped({"a.de-en.de": "a\n"}),
        "expected a pair of files such as text.de-en.de and text.de-en.en; got a.de-en.de"),
    ("a.zip", zipped({"a.de-en.de": "a\n", "a.de-en.en": "a\nb\n"}),
        "a.de-en.de and a.de-en.en differ in their numbers of lines"),
])  # fmt: skip
def test_what_is_no_pair_file_is_refused_by_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        list(read_pair_file(written(tmp_path, content, name)))


LINES = [
    '<?xml version="1.0" encoding="UTF-8"?>',
    '<!DOCTYPE tmx SYSTEM "tmx14.dtd">',
    '<tmx version="1.4"><header creationtool="T" creationtoolversion="1" segtype="sentence" o-tmf="T" adminlang="en"',
    ' srclang="en-US" datatype="plaintext"><note>ignored</note></header><body>',
    '<tu tuid="1"><note>ignored</note><tuv xml:lang="en-US"><seg>One &amp; two.</seg></tuv>',
    '<tuv xml:lang="de-DE"><prop type="x">ignored</prop><seg>Eins &#38; zwei.</seg></tuv></tu>',
    '<tu><tuv xml:lang="de-DE"><seg>Rot</seg></tuv></tu>',
    '<tu><tuv xml:lang="de-DE"><seg>Hallo, <bpt i="1">&lt;b&gt;</bpt><hi type="x">Welt</hi><ept i="1">/b</ept>!',
    '   <ph>{0<sub>Fußnote</sub>}</ph><it pos="begin">x</it>Ende</seg></tuv>',
    '<tuv xml:lang="en-US"><seg>Hello, <ut>{b}</ut>world! End</seg></tuv></tu>',
    "</body></tmx>",
]
TMX = "\n".join(LINES) + "\n"
PAIRS = [("One & two.", "Eins & zwei."), ("Hello, world! End", "Hallo, Welt! Ende")]


def segments(path: Path, language: str) -> list[str]:
    return [text for _, text in units_with_text(path, (language, ""))]


def memory(*units: dict[str, str]) -> str:
    variants = ("".join(f'<tuv xml:lang="{k}"><seg>{t}</seg></tuv>' for k, t in unit.items()) for unit in units)
    body = "".join(f"<tu>{variant}</tu>\n" for variant in variants)
    return f'<tmx version="1.4">\n<header srclang="en"/><body>\n{body}</body></tmx>'


@pytest.mark.parametrize(("suffix", "packed"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_text_of_a_memory_is_read_without_codes_in_its_languages(tmp_path: Path, suffix: str, packed: Any) -> None:
    path = written(tmp_path, packed(TMX.encode()), f"x.tmx{suffix}")
    assert languages_of(path) == ("en-US", "de-DE")
    assert list(read_pair_file(path)) == PAIRS
    surveyed = survey_pair_file(path)
    assert (surveyed.n_lines, surveyed.odd[INCOMPLETE].first) == (2, [7])


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "windows-1252"])
def test_the_encoding_is_the_one_that_the_file_declares(tmp_path: Path, encoding: str) -> None:
    path = written(tmp_path, TMX.replace("UTF-8", encoding).replace("Rot", "Grün").encode(encoding))
    assert segments(path, "de")[1] == "Grün"


@pytest.mark.parametrize(("codes", "wanted", "found"), [
    (["de-DE"], "de-AT", "de-DE"), (["de"], "de-AT", "de"), (["de-DE", "de-AT"], "DE_at", "de-AT"),
    (["zh-CN"], "zh-TW", None), (["zh-Hant", "zh-CN"], "zh-TW", "zh-Hant"), (["zh-Hans"], "zh-CN", "zh-Hans"),
    (["sr-Cyrl"], "sr-Latn", None), (["nl-BE"], "de-BE", None),
])  # fmt: skip
def test_another_region_of_a_language_is_read_in_its_script(codes: list[str], wanted: str, found: str | None) -> None:
    assert Unit(1, dict.fromkeys(codes, "text")).code(wanted) == found


@pytest.mark.parametrize(("codes", "wanted", "found"), [
    (["en-US"], ("en-US", "en-GB"), ("en-US", None)), (["en-GB"], ("en", "en-GB"), (None, "en-GB")),
    (["en-GB", "en-US"], ("en", "en-GB"), ("en-US", "en-GB")), (["pt-BR", "pt"], ("pt-BR", "pt-PT"), ("pt-BR", "pt")),
    (["de", "de-AT"], ("de-DE", "de-AT"), ("de", "de-AT")),
    (["en-GB", "en", "de"], ("en", "de"), ("en", "de")),  # the one without a region is preferred
])  # fmt: skip
def test_two_regions_of_a_language_are_two_texts(tmp_path: Path, codes: list[str], wanted: Any, found: Any) -> None:
    assert Unit(1, dict.fromkeys(codes, "text")).codes(*wanted) == found
    path = written(tmp_path, memory({code: code for code in codes}))
    assert list(read_pair_file(path, wanted)) == ([] if None in found else [found])
    if None in found:
        assert f"no unit has text in both {wanted[0]} and {wanted[1]}" in refused(path, wanted)


def test_the_log_names_regions_that_are_read_as_another_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, memory({"en-US": "a", "de-AT": "b"}, *[{"en-US": "c", "de-DE": "d"}] * 2))
    with caplog.at_level(logging.INFO):
        assert survey_pair_file(path, ("en-US", "de-AT")).n_lines == len(segments(path, "de-AT")) == 3
    assert [message.split(": ")[1] for message in caplog.messages if "is read as" in message] == [
        "de-DE (2 units) is read as de-AT; to have one region alone, remove the other units"
    ] * 2


@pytest.mark.parametrize("character", ["\x0b", "&#31;", "&#x1F;", "&#x0B;", "&#xD800;"])
@pytest.mark.parametrize("chunk", [1, 1 << 20])
def test_a_unit_with_characters_that_xml_excludes_is_left_out_and_named(
    tmp_path: Path, character: str, chunk: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tmx, "_BYTES_AT_ONCE", chunk)
    path = written(tmp_path, memory({"en": "a", "de": "b&#10;b"}, {"en": f"c{character}d", "de": "e"}))
    assert list(read_pair_file(path, ("en", "de"))) == [("a", "b b")]
    (name, found), *others = survey_pair_file(path, ("en", "de")).odd.items()
    assert (name, found.first, others) == (ILLEGAL, [4], [])
    assert segments(path, "en") == ["a"]
    assert f"1 {ILLEGAL}: line 4" in caplog.text


@pytest.mark.parametrize(("segment", "text"), [
    ('First line<ph x="1">&lt;br/&gt;</ph>second line', "First line second line"),
    ('First line <ph x="1">&lt;br/&gt;</ph> second line', "First line second line"),
    ('Name<ph type="tab"/>Price', "Name Price"), ('Line<it pos="begin">&lt;p&gt;</it>Two', "Line Two"),
    ("One<ut>\\par </ut>two<ph>\\tab</ph><ph>&lt;w:tab/&gt;</ph>three<ph>&lt;br&gt;</ph>", "One two three"),
    ('<bpt i="1">&lt;b&gt;</bpt>No<ept i="1">&lt;/b&gt;</ept>te: <hi type="x">Enter</hi>.', "Note: Enter."),
    ("Text<ph>footnote <sub>A note inside.</sub></ph> goes<ph>&lt;brand&gt;</ph> on", "Text goes on"),
])  # fmt: skip
def test_codes_that_break_a_line_become_blanks(tmp_path: Path, segment: str, text: str) -> None:
    path = written(tmp_path, memory({"en": segment, "de": segment}))
    assert list(read_pair_file(path, ("en", "de"))) == [(text, text)]


def refused(path: Path, languages: tuple[str, ...] = ()) -> str:
    with pytest.raises(CorpusError) as caught:
        survey_pair_file(path, languages)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}")


BOMB = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'
EXTERNAL = '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
PARAMETER = '<!DOCTYPE tmx [<!ENTITY % a SYSTEM "http://localhost/x.dtd"> %a;]>'
DEFAULT = '<!DOCTYPE tmx [<!ATTLIST tuv xml:lang CDATA "fr">]>'  # a long one would be copied for every element
DOCTYPE = LINES[1]


@pytest.mark.parametrize(("old", "new", "message"), [
    (DOCTYPE, BOMB, ", line 2: declares the entity 'a'; entities are not read"),
    (DOCTYPE, EXTERNAL, ", line 2: declares the entity 'a'; entities are not read"),
    (DOCTYPE, PARAMETER, ", line 2: declares the entity 'a'; entities are not read"),
    ("One", "&nbsp;One", ", line 5: the entity &nbsp; is not declared; write the character itself"),
    ("tmx version", "xliff version", ", line 3: the root element is <xliff>; expected <tmx>"),
    ('tuv xml:lang="de-DE"><prop', "tuv><prop", ", line 6: a <tuv> has no language; expected"),
    (f"{DOCTYPE}\n<tmx ", f"{DEFAULT}<tmx><tu><tuv/></tu><x ", ", line 2: a <tuv> has no language; expected"),
    ("</seg></tuv></tu>\n</body>", "</seg></tuv>\n</body>", ", line 11: cannot be read as XML: mismatched tag at"),
    ("UTF-8", "UTF-7", ", line 1: cannot be read as XML: multi-byte encodings are not supported; save the file as"),
    ("UTF-8", "nonsense", ", line 1: cannot be read as XML: unknown encoding: nonsense; save the file as UTF-8"),
    ("<tu>", "<\x01tu>", ", line 7: cannot be read as XML: not well-formed"),
])  # fmt: skip
def test_hostile_and_broken_files_are_refused_by_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert TMX.count(old) >= 1
    assert refused(written(tmp_path, TMX.replace(old, new, 1))).startswith(message)


def test_a_file_that_is_cut_off_missing_or_in_another_encoding_is_refused_by_line(tmp_path: Path) -> None:
    for n_bytes in (0, 10, 500, len(TMX.encode()) - 8):
        message = refused(written(tmp_path, TMX.encode()[:n_bytes]), ("en", "de"))
        assert message.startswith(f", line {TMX[:n_bytes].count(chr(10)) + 1}: cannot be read as XML: ")
        assert "the file may be cut off" in message
    assert "cannot be read after line" in refused(written(tmp_path, gzip.compress(TMX.encode())[:-20], "x.tmx.gz"))
    assert "No such file" in refused(tmp_path / "absent.tmx")
    message = refused(written(tmp_path, TMX.encode("latin-1")))
    assert message.startswith(", line 9: cannot be read as XML: not well-formed (invalid token) at column ")
    assert "not be in the encoding that its first line names" in message


@pytest.mark.parametrize(("old", "new"), [
    ("xml:lang", "lang"),  # the older attribute of the language
    ("Hello, ", f"Hello, {'<ph><sub>' * 20}x{'</sub></ph>' * 20}"),  # text in codes within codes is left out
])  # fmt: skip
def test_other_ways_to_write_a_file_are_known(tmp_path: Path, old: str, new: str) -> None:
    assert list(read_pair_file(written(tmp_path, TMX.replace(old, new)))) == PAIRS


@pytest.mark.parametrize(("content", "message", "most"), [
    (TMX.replace("</body>", "<a>" * 300_000), ", line 11: <a> is within 100 other elements; expected text", 40 << 20),
    (gzip.compress(memory({f"x{i}": "a" * 900_000 for i in range(14)}).encode(), 1),
        ", line 3: a unit has more than 10,000,000 characters; expected a sentence in each language", 40 << 20),
    (memory({f"x{i}": "a" for i in range(9_000)}), ", line 3: a unit has more than 1,000 languages;", 40 << 20),
    (memory(*({f"{i}{'🙂' * 90}": "a"} for i in range(8_000))),
        ": no unit has text in both en and de; its languages are 0🙂", 7 << 20),
    (TMX.replace("One", "One " * (LONGEST_LINE // 3)), ", line 5: a segment has more than 1,000,000 char", 40 << 20),
    (TMX.replace("de-DE", "de" * 51, 1),
        ", line 6: the code of a language has 102 characters; expected one such as en or de-AT", 7 << 20),
    (TMX.replace("<body>", f"<body><!--{'x' * (18 << 20)}-->"), ", line 4: a tag or comment has more than", 80 << 20),
], ids=["deep", "large", "many languages", "a language for each unit", "segment", "code", "comment"])  # fmt: skip
def test_sizes_depth_and_memory_are_bounded(tmp_path: Path, content: str | bytes, message: str, most: int) -> None:
    path = written(tmp_path, content, "x.tmx.gz" if isinstance(content, bytes) else "x.tmx")
    tracemalloc.start()
    try:
        assert refused(path, ("en", "de")).startswith(message)
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("units", "wanted", "message"), [
    ([], (), ": no unit has text in two languages; set languages, for example en de (in training: set data.languages)"),
    ([{"en": "a"}], (), ": no unit has text in two languages; set languages"),
    ([{"en": "a"}, {"en": "a", "de": "b", "fr": "c"}], (),
        ", line 4: a unit has more than two languages, en, de, fr;"),
    ([{"de": "a", "fr": "b"}], (), ", line 3: a unit has de, fr, but the file's source language is en; set"),
    ([{"en": "a", "de": "b"}, {"fr": "c"}], ("en", "it"), ": no unit has text in both en and it; its languages are"
        " en, de, fr; to choose two of them, set data.languages"),
])  # fmt: skip
def test_languages_that_a_file_lacks_or_leaves_open_are_named(
    tmp_path: Path, units: Any, wanted: Any, message: str
) -> None:
    assert refused(written(tmp_path, memory(*units)), wanted).startswith(message)


LEGAL = st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"], exclude_characters="\ufffe\uffff")
PLAIN = st.text(LEGAL, max_size=20).map(str.strip)


@settings(max_examples=20)
@given(pairs=st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=4))
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> None:
    content = opening("en") + b"".join(unit_of(("en", "de"), pair) for pair in pairs) + CLOSING
    path = written(tmp_path_factory.mktemp("tmx"), content)
    assert languages_of(path) == ("en", "de")
    assert list(read_pair_file(path)) == pairs


@settings(max_examples=20)
@given(text=st.text(st.characters(codec="utf-8"), max_size=30))
@example("a\rb")
def test_any_text_is_written_as_xml(text: str) -> None:
    root = ElementTree.fromstring(opening('a"<') + unit_of(("en", 'a"<'), (text, "]]>")) + CLOSING)
    kept = [c if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff") else "\ufffd" for c in text]
    assert [segment.text or "" for segment in root.iter("seg")] == ["".join(kept), "]]>"]
    header = root.find("header")
    required = {"creationtool", "creationtoolversion", "segtype", "o-tmf", "adminlang", "srclang", "datatype"}
    assert set(header.attrib) == required
    assert (root.get("version"), header.get("srclang")) == ("1.4", 'a"<')


def test_a_corpus_mixes_memories_and_aligned_files(tmp_path: Path) -> None:
    numbered = [{"en": f"m {i}", "de": f"M {i}"} for i in range(8)]
    written(tmp_path, memory(*numbered, {"en": "alone"}))
    written(tmp_path, "a 1\na 2\n", "a.en")
    written(tmp_path, "A 1\nA 2\n", "a.de")
    written(tmp_path, memory({"en": "held", "de": "Gehalten"}), "v.tmx")
    config = DataConfig(
        raw=tmp_path, train_source=("x.tmx", "a.en"), train_target=("a.de",), validation_source=("v.tmx",)
    )
    corpus = FileCorpus.of(config)
    assert list(corpus.train()) == [(f"m {i}", f"M {i}") for i in range(8)] + [("a 1", "A 1"), ("a 2", "A 2")]
    assert list(corpus.validation()) == [("held", "Gehalten")]
    assert (corpus.location(7), corpus.location(8)) == ("x.tmx: pair 8", "a.en:1")
    assert list(corpus.surveys[tmp_path / "x.tmx"].odd) == ["unit without text in both languages (left out)"]


@pytest.mark.parametrize("parts", [(("x.tmx", "y.tmx"), ()), (("x.tmx",), ("y.tmx",))])
def test_memories_are_read_in_one_direction_which_the_log_names(tmp_path: Path, parts: Any, logged: list[str]) -> None:
    one = written(tmp_path, memory(*({"en": f"m {i}", "de": f"M {i}"} for i in range(20))))
    other = written(tmp_path, memory({"en-GB": "held", "de-AT": "Gehalten"}).replace('"en"', '"en-GB"'), "y.tmx")
    config = DataConfig(raw=tmp_path, train_source=parts[0], validation_source=parts[1])
    FileCorpus.of(config)
    assert logged[:2] == [f"{one}: en → de", f"{other}: en-GB → de-AT"]
    regions = {one: ("en-US", "en-GB"), other: ("en-GB", "en-US")}
    with pytest.raises(CorpusError, match=f"{other}: is read as en-GB → en-US, but"):
        require_one_direction(regions)
    other.write_text(other.read_text().replace('srclang="en-GB"', 'srclang="de-AT"'))
    with pytest.raises(CorpusError) as caught:
        FileCorpus.of(config)
    assert str(caught.value) == (
        f"{other}: is read as de-AT → en-GB, but {one} as en → de; to read both in one direction, set data.languages"
    )
    corpus = FileCorpus.of(dataclasses.replace(config, languages=("en", "de")))
    assert ("held", "Gehalten") in (*corpus.train(), *corpus.validation())


@pytest.mark.parametrize(("fields", "message"), [
    ({"train_source": ("x.tmx",), "train_target": ("x.tmx",)}, "x.tmx has both sides; name it in data.train_source"),
    *(({"train_source": ("a",), "train_target": (name,)}, f"{name} has both sides; name it in data.train_source alone")
        for name in FILES),
    ({"train_source": ("x.tmx.GZ",), "train_target": ("a.de",)}, "as many files in data.train_target"),
    ({"train_source": ("x.tmx",), "languages": ("en",)}, "data.languages must be the codes of source and target"),
    ({"train_source": ("x.tsv",), "languages": ("en", "en")}, "data.languages must be the codes of source and target"),
    ({"languages": ("en", "german")}, 'data.languages must be a code such as "en" or "pt-BR"; got \'german\''),
])  # fmt: skip
def test_settings_that_do_not_fit_a_memory_are_refused(fields: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DataConfig(**fields)  # type: ignore[arg-type]


def test_a_run_records_the_languages_that_a_memory_names(tmp_path: Path) -> None:
    words = [f"{a} {b} {c}" for a in "abcd" for b in "efgh" for c in "ijkl"]
    written(tmp_path, memory(*({"en-GB": text, "de": text[::-1]} for text in words)).replace('"en"', '"en-GB"'))
    data = DataConfig(raw=tmp_path, train_source=("x.tmx",), vocabulary_size=28)
    job_of(dataclasses.replace(run_of(tmp_path), data=data))
    assert read_object(tmp_path / "run" / "run.json")["languages"] == ["en-GB", "de"]
