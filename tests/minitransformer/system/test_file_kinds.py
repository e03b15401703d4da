"""Files that are not text: refused by name wherever text is read, by their endings and by their first bytes."""

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from minitransformer.config import DataConfig
from minitransformer.data.survey import CorpusError, read_lines, survey
from minitransformer.extras.convert.certificate import read_sentences
from minitransformer.extras.files.documents import KINDS
from minitransformer.extras.files.memories import opening
from minitransformer.extras.files.stream import groups_of_file, groups_of_standard_input, read_prefixes
from minitransformer.extras.parsing.treebank import TreebankCorpus
from minitransformer.system.errors import UserError
from tests.minitransformer.data.test_corpus import written

XLIFF = b'<?xml version="1.0" encoding="UTF-8"?>\n<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">'
PO = b'# Copyright\n#, fuzzy\nmsgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
LINES = "The dog sleeps.\nWhere does your sister live?\n"


ZIP = io.BytesIO()
with zipfile.ZipFile(ZIP, "w") as archive:
    archive.writestr("word/document.xml", "One.")
# First bytes, the name of the kind, a part of the remedy.
MARKED = {
    "XLIFF": (XLIFF, "an XLIFF file", "minitransformer-translate translates it, named .xlf"),
    "XLIFF after a mark": (b"\xef\xbb\xbf" + XLIFF, "an XLIFF file", "export a translation memory (.tmx)"),
    "gettext": (PO, "a file of gettext", "minitransformer-translate translates it, named .po"),
    "gettext with a context": (b'msgctxt "menu"\nmsgid "One"\nmsgstr "Eins"\n', "a file of gettext", "po2tmx"),
    "TMX": (opening("en"), "a translation memory", "name it .tmx"),
    "XML": (b'<?xml version="1.0"?>\n<doc><p>One.</p></doc>\n', "an XML file", "take out its text"),
    "HTML": (b"\n<!DOCTYPE html>\n<html><body>One.</body></html>\n", "a web page", "take out its text"),
    "subtitles": (b"1\n00:00:01,000 --> 00:00:02,500\nOne.\n", "a file of subtitles", "take out numbers and times"),
    "WebVTT": (b"WEBVTT\n\n00:01.000 --> 00:02.000\nOne.\n", "a file of subtitles", "a sentence a line"),
    "Substation": (b"[Script Info]\r\nTitle: x\r\n", "a file of subtitles", "a sentence a line"),
    "MicroDVD": (b"{0}{25}One.\n", "a file of subtitles", "a sentence a line"),
    "SubViewer": (b"[INFORMATION]\n[TITLE]\n", "a file of subtitles", "a sentence a line"),
    "SubViewer of YouTube": (b"0:00:01.000,0:00:02.500\nOne.\n", "a file of subtitles", "a sentence a line"),
    "lyrics": (b"[ar:One]\n[00:12.00]Two\n", "a file of subtitles", "a sentence a line"),
    "lyrics without a head": (b"[00:12.00]One\n", "a file of subtitles", "a sentence a line"),
    "Qt": (b'<?xml version="1.0"?>\n<!DOCTYPE TS>\n<TS version="2.1">', "a file of a program's messages", ".xlf"),
    "Flutter": (b'{\n  "@@locale": "en",\n  "a": "One"\n}\n', "a file of a program's messages", "Translate Toolkit"),
    "Flutter without a head": (b'{\n "a": "One", "b": "2",\n "@b": {}\n}\n', "a file of a program's messages", ".po"),
    "Apple": (b'/* A\n comment */\n"a" = "One.";\n', "a file of a program's messages", "Translate Toolkit"),
    "LaTeX": (b"\\documentclass{article}\n", "a text with markup", "po4a"),
    "PHP": (b"<?php\nreturn ['a' => 'One'];\n", "a program", "xgettext"),
    "PDF": (b"%PDF-1.7\n%\xe2\xe3\n1 0 obj\n", "a PDF file", "pdftotext"),
    "RTF": (rb"{\rtf1\ansi One.}", "an office document", "save it as plain text in UTF-8"),
    "Word 97": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100), "an office document", "plain text"),
    "zip": (ZIP.getvalue(), "a zip archive", "save a document as plain text in UTF-8"),
    "gzip": (gzip.compress(b"One.\n"), "compressed", "unpack it, or name it .gz, .xz or .zst"),
    "xz": (lzma.compress(b"One.\n"), "compressed", "unpack it, or name it .gz, .xz or .zst"),
    "bzip2": (bz2.compress(b"One.\n"), "compressed or an archive", "unpack it"),
    "Zstandard": (b"\x28\xb5\x2f\xfd\x04\x58\n\0", "compressed", "name it .gz, .xz or .zst"),
    "UTF-16": (LINES.encode("utf-16"), "UTF-16", "iconv -f utf-16 -t utf-8"),
    "UTF-16, big-endian": (b"\xfe\xff" + LINES.encode("utf-16-be"), "UTF-16", "iconv -f utf-16 -t utf-8"),
    "UTF-16 without a mark": (LINES.encode("utf-16-le"), "UTF-16 without", "iconv -f utf-16le -t utf-8"),
    "UTF-16 without a mark, big-endian": (LINES.encode("utf-16-be"), "UTF-16 without", "save it as UTF-8"),
    "Russian UTF-16 without a mark": ("Где сестра?\r\nОна спит.\r\n".encode("utf-16-le"), "UTF-16 without", "utf-16le"),
    "UTF-32": (LINES.encode("utf-32"), "UTF-32", "iconv -f utf-32 -t utf-8"),
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\1\0\b\6\0\0\0", "binary, not", "give plain text"),
    "a program": (b"\x7fELF\2\1\1" + bytes(9) + b"\3\0>\0\1\0\0\0", "binary, not", "give plain text"),
}
ENDINGS = {
    "a.xlf": "an XLIFF file", "a.xliff": "an XLIFF file", "a.sdlxliff": "an XLIFF file", "a.PO": "a file of gettext",
    "a.pot": "a file of gettext", "a.po.gz": "a file of gettext", "a.tsv": "cut -f 1", "a.tsv.xz": "cut -f 1",
    "a.csv": "export its column", "a.json": "a JSON file", "a.jsonl": "a JSON file", "a.html": "a web page",
    "a.xml": "an XML file", "a.srt": "a file of subtitles", "a.pdf": "a PDF file", "a.docx": "office documents",
    "a.odt": "office documents", "a.xlsx": "office documents", "a.pptx": "office documents", "a.zip": "a zip archive",
    "a.doc": "an office document", "a.rtf": "an office document", "a.bz2": "compressed",
    "a.tmx": "a translation memory", "a.po.zst": "a file of gettext",
    "a.ass": "a file of subtitles", "a.ssa": "a file of subtitles",
    "a.sub": "a file of subtitles", "a.sbv": "a file of subtitles", "a.ttml": "a file of subtitles",
    **dict.fromkeys(
        ["a.properties", "a.strings", "a.stringsdict", "a.ftl", "en.yml", "en.yaml", "a.toml", "a.ini", "a.resx"],
        "a file of a program's messages, .*; convert it to .po or .xlf",
    ),
    **dict.fromkeys(["a.md", "a.rst", "a.tex", "a.adoc"], "a text with markup"),
    **dict.fromkeys(["a.php", "a.js", "a.py"], "a program"), "a.ipynb": "a JSON file",
    **dict.fromkeys((f"a{ending}" for kind in KINDS for ending in kind.endings if ending != ".txt"), ""),
}  # fmt: skip
READERS: dict[str, Callable[[Path], object]] = {
    "sentences of a certificate": read_sentences,
    "lines": lambda path: list(read_lines(path)), "survey": survey,
    "groups": lambda path: list(groups_of_file(path, 9).__enter__()),
    "prefixes": read_prefixes,
    "treebank": lambda path: TreebankCorpus.of(DataConfig(train_trees=(str(path),), validation_trees=(str(path),),
        joint_vocabulary=False)),
}  # fmt: skip


@pytest.mark.parametrize("kind", MARKED)
def test_a_file_of_another_name_and_standard_input_are_refused_by_first_bytes(kind: str, tmp_path: Path) -> None:
    content, named, remedy = MARKED[kind]
    read: dict[str, Callable[[], object]] = {
        str(path): partial(lambda path: list(read_lines(path)), path)
        for name in ("text.en", "text")
        for path in (
            written(tmp_path / name, content),
            written(tmp_path / f"{name}.gz", gzip.compress(content)),
            written(tmp_path / f"{name}.xz", lzma.compress(content)),
        )
    }
    read["standard input"] = lambda: list(groups_of_standard_input(io.BytesIO(content), 1))  # a mark may have lines
    for name, reader in read.items():
        with pytest.raises(CorpusError) as caught:
            reader()
        assert str(caught.value).startswith(f"{name}: is {named}")
        assert remedy in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ENDINGS)
def test_a_file_is_refused_by_its_ending(name: str, tmp_path: Path) -> None:
    message = f"^{tmp_path / name}: is .*{ENDINGS[name]}.*; if it is plain text, rename it$"
    with pytest.raises(CorpusError, match=message):
        list(read_lines(written(tmp_path / name, b"One.\tEins.\n")))


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_of_text_refuses_both(reader: str, tmp_path: Path) -> None:
    for name, content in (("a.po", b"One.\n"), ("a.en", LINES.encode("utf-16"))):
        with pytest.raises(UserError, match=f"{name}: is (a file of gettext|UTF-16)"):
            READERS[reader](written(tmp_path / name, content))


PLAIN = [
    "<b>Warning:</b> one\n", "<xliff> is an element of XML.\n", "<html> begins a page.\n", "<tmx\n",
    "<!DOCTYPE html>\n", '<?xml version="1.0"?> begins a file of XML.\n', '{"one"} is a set.\n', '{"a": 1}\n',
    "[1] One.\n", "{\\rtf is RTF\n",
    "# Heading\n\none\n", 'msgid "One" is a key\none\n', "1\none\n", "1\n00:00:01 one\n", "WEBVTT is a format.\n",
    "[00] one\n", "{0} {1} one\n", "[ar] one\n", '"one" = "two"\n', "<?php one\n",
    "\\document\n", '{"@one"}\n', "//" * 50 + "\n", "/**/" * 50,
    "PK is a code.\n", "%PDF is a format.\n", "BZh is no word.\n", "one\ttwo\n", "one,two\n", "a\0b\0c\n\0\n",
    "þÿ one\n", "\ufeffone\n", " \n\none\n", "\n", "",
]  # fmt: skip


@pytest.mark.parametrize("text", PLAIN, ids=ascii)
def test_text_may_have_any_other_ending_and_begin_with_any_character(text: str, tmp_path: Path) -> None:
    content = text.encode()
    expected = text.removeprefix("\ufeff").removesuffix("\n").split("\n") if text else []
    for name in (
        "text",
        "text.txt",
        "text.en",
        "text.wmt",
        "text.ts",
        "text.arb",
        "text.lrc",
        "text.cs",
        "news.2013.de",
        "TEXT.EN.GZ",
    ):
        path = written(tmp_path / name, gzip.compress(content) if name.endswith("GZ") else content)
        assert list(read_lines(path)) == expected
    groups = list(groups_of_standard_input(io.BytesIO(content), 1))
    assert [line for group in groups for line in group] == content.removesuffix(b"\n").split(b"\n")[: len(expected)]


def test_single_nul_bytes_and_marks_after_the_beginning_are_text(tmp_path: Path) -> None:
    lines = ["one\0two", *["three"] * 900, "\0" * 50, 'msgid "One"', 'msgstr "Eins"']
    assert list(read_lines(written(tmp_path / "text", "\n".join(lines).encode()))) == lines
