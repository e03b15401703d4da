"""The kinds of files that users give as text: compressed text, and files that are refused by ending or first bytes.

Text may have any ending that is not in ``_REFUSED``, and may begin with any character.  JSON, for example, begins with
characters that text may begin with, too.  So a JSON file is refused by its ending alone.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from minitransformer.system.errors import UserError

N_FIRST_BYTES = 4_096  # of a file, to be compared with the marks below
_NULS = rb"(?:[^\0]*\0){8}"  # 8 NUL bytes: text has fewer at its beginning, UTF-16 and most binary files have more
_XML = rb"(?:<\?xml\s+version(?s:.)*?)?"  # what may precede the root element

_BYTES_AT_ONCE = 1 << 16  # to read from a compressed file


class _XzStreams(io.RawIOBase):
    """The concatenated content of an .xz file's streams; zeros between and after the streams are skipped.

    ``lzma.open`` would treat a corrupt second stream as padding, and end early.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._decoder = lzma.LZMADecompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next content.  Raises: EOFError or LZMAError if the file is incomplete or corrupt."""
        view, content = memoryview(buffer), b""
        while not content:
            compressed = b""
            if self._decoder.eof:
                compressed = self._start_of_next()
                if not compressed:
                    return 0
                self._decoder = lzma.LZMADecompressor()
            elif self._decoder.needs_input:
                compressed = self._file.read(_BYTES_AT_ONCE)
                if not compressed:
                    raise EOFError("the file ends within a compressed stream")
            content = self._decoder.decompress(compressed, len(view))
        view[: len(content)] = content
        return len(content)

    def _start_of_next(self) -> bytes:
        """Return bytes from the start of the next stream, without the zeros before it; b"" at the end of the file."""
        data = self._decoder.unused_data
        while not (start := data.lstrip(b"\0")):
            data = self._file.read(_BYTES_AT_ONCE)
            if not data:
                break
        return start

    def close(self) -> None:
        self._file.close()
        super().close()


def _open_xz(path: Path) -> io.BufferedReader:
    return io.BufferedReader(_XzStreams(path))


def _zstd() -> Any:
    """Return Python's module for Zstandard, or, before Python 3.14, its backport; None if there is neither."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


def _open_zst(path: Path) -> Any:
    """Open a .zst file.  Raises: UserError if this Python has no Zstandard."""
    zstd = _zstd()
    if zstd is None:
        raise UserError(
            f"{path}: needs Python 3.14, or the package backports.zstd: pip install backports.zstd; or unpack the file"
        )
    return zstd.open(path)


OPENERS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": _open_xz, ".zst": _open_zst}  # by ending
ZstdError: type[Exception] = getattr(_zstd(), "ZstdError", EOFError)  # without Zstandard, an error of other openers


_BOTH_SIDES = (".tmx", ".tsv", ".jsonl", ".zip")  # endings of files with source and target


class _Kind(NamedTuple):
    """A kind of file that is not read as text: its name and endings, a remedy, and a pattern of its first bytes."""

    name: str
    remedy: str
    endings: str = ""
    mark: bytes | None = None


_TAKE_OUT = "take out its text, a sentence a line"
_CONVERT = "convert it to .po or .xlf, for example with the Translate Toolkit, and translate that"
# The first mark that matches decides.  Endings that are also codes of languages with text, such as .ts (Tsonga), .lrc
# (Northern Luri) and .arb (Standard Arabic), are left out: such files are refused by their first bytes.
_REFUSED = (
    _Kind("UTF-32", "save it as UTF-8, or: iconv -f utf-32 -t utf-8", mark=rb"\xff\xfe\0\0|\0\0\xfe\xff"),
    _Kind("UTF-16", "save it as UTF-8, or: iconv -f utf-16 -t utf-8", mark=rb"\xff\xfe|\xfe\xff"),
    _Kind(
        "compressed", "unpack it, or name it .gz, .xz or .zst if it is of that kind",
        mark=rb"\x1f\x8b|\xfd7zXZ\0|\x28\xb5\x2f\xfd",
    ),
    _Kind(
        "compressed or an archive", "unpack it", ".bz2 .lz4 .7z",
        rb"BZh[1-9]1AY&SY|\x04\x22\x4d\x18|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07",
    ),
    _Kind(
        "a zip archive, as office documents are", "unpack an archive; save a document as plain text in UTF-8",
        ".zip .docx .xlsx .pptx .odt .ods .odp .epub", rb"PK\x03\x04",
    ),
    _Kind(
        "an office document", "save it as plain text in UTF-8", ".doc .xls .ppt .rtf",
        rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1|\{\\rtf1",
    ),
    _Kind("a PDF file", "take out its text, for example with pdftotext, a sentence a line", ".pdf", rb"%PDF-\d"),
    _Kind(
        "a translation memory", "name it .tmx to train on it or to translate it; here, plain text is needed", ".tmx",
        _XML + rb"<tmx\s+version=",
    ),
    _Kind(
        "an XLIFF file",
        "minitransformer-translate translates it, named .xlf; to train on it, export a translation memory (.tmx)",
        ".xlf .xliff .sdlxliff .mqxliff .mxliff", _XML + rb"<xliff\s[^>]*version=",
    ),
    _Kind(
        "a file of gettext",
        "minitransformer-translate translates it, named .po; to train on it, convert it, for example with po2tmx",
        ".po .pot",
        rb'(?:(?:#|msgctxt ")[^\n]*\n|\r?\n)*msgid "[^\n]*\n(?:"[^\n]*\n)*msgstr "',
    ),
    _Kind(
        "a file of a program's messages", _CONVERT,
        ".properties .strings .stringsdict .xcstrings .ftl .resx .resw .yml .yaml .toml .ini .plist .qm .mo",
        _XML + rb"<!DOCTYPE TS>|"  # Qt's .ts
        rb'\{\s*"@@\w+"\s*:|\{(?:\s*"\w+"\s*:\s*"[^"]*",)*\s*"@\w+"\s*:\s*\{|'  # Flutter's .arb
        rb'(?:/\*(?:[^*]|\*(?!/))*+\*/\s*|//[^\n]*\n\s*)*+"[^"\n]*"\s*=\s*"[^"\n]*"\s*;\s*(?:\n|\Z)|'  # .strings
        rb"\xde\x12\x04\x95|\x95\x04\x12\xde",  # gettext's .mo
    ),
    _Kind(
        "a text with markup", "convert it to .po, for example with po4a, and translate that; or take out its text",
        ".md .markdown .rst .tex .adoc .asciidoc .textile .mediawiki", rb"\\document(?:class|style)\b",
    ),
    _Kind(
        "a program", "take out its messages, for example with xgettext, and translate the .po file",
        ".php .js .mjs .jsx .tsx .py .java .c .h .cpp .css .sql", rb"<\?php\s*\n",
    ),
    _Kind("a web page", _TAKE_OUT, ".html .htm .xhtml", _XML + rb"<!(?i:doctype\s+html)[^>]*>\s*<"),
    _Kind(
        "an XML file", f"minitransformer-translate translates Android's strings.xml; else {_TAKE_OUT}", ".xml",
        rb"<\?xml\s+version\s*=[^>]*\?>\s*<",
    ),
    _Kind(
        "a file of subtitles", "take out numbers and times, and write a sentence a line",
        ".srt .vtt .ass .ssa .sub .sbv .ttml",
        rb"WEBVTT\r?\n|\d+\r?\n\d\d:\d\d:\d\d,\d{3} --> |\[(?:Script Info|INFORMATION)\]\r?\n|\{\d+\}\{\d+\}|"
        rb"\d+:\d\d:\d\d\.\d{3},\d+:\d\d:\d\d\.\d{3}\r?\n|"  # .sbv
        rb"\[(?:(?:ti|ar|al|au|by|re|ve|la|offset|length):[^]\n]*\]\r?\n|\d+:\d\d[.:]\d\d\])",  # .lrc
    ),
    _Kind("a table", "write its column of sentences to a file, for example with: cut -f 1", ".tsv"),
    _Kind("a table", "export its column of sentences as plain text", ".csv"),
    _Kind("a JSON file", f"minitransformer-translate translates messages, named .json; else {_TAKE_OUT}", ".json"),
    _Kind("a JSON file", _TAKE_OUT, ".jsonl .ndjson .ipynb"),
    _Kind(
        "UTF-16 without a byte order mark", "save it as UTF-8, or: iconv -f utf-16le -t utf-8",
        mark=rb"(?=%b)(?s:.?(?:[^\0].)*.?)\Z" % _NULS,  # every second byte is not NUL
    ),
    _Kind("binary", "give plain text", mark=_NULS),
)  # fmt: skip


def is_compressed(path: Path) -> bool:
    """Return whether a file's name ends in .gz, .xz or .zst."""
    return path.suffix.lower() in OPENERS


def ending_of(name: str | Path) -> str:
    """Return the ending of a file's name in lower case, without .gz, .xz or .zst: ".tmx" for "a.TMX.gz"."""
    path = Path(name)
    return (path.with_suffix("") if is_compressed(path) else path).suffix.lower()


def is_memory(name: str | Path) -> bool:
    """Return whether a file is a translation memory: TMX, plain, .gz, .xz or .zst."""
    return ending_of(name) == ".tmx"


def has_both_sides(name: str | Path) -> bool:
    """Return whether a file holds source and target: a translation memory, a table, JSON lines or a zip archive."""
    return ending_of(name) in _BOTH_SIDES


def refusal_by_ending(path: Path) -> str | None:
    """Return why a file with this name is not read as text, with the remedy; None if it is read."""
    ending = ending_of(path)
    for kind in _REFUSED:
        if ending in kind.endings.split():
            return f"is {kind.name}, by its ending; {kind.remedy}; if it is plain text, rename it"
    return None


def refusal_by_first_bytes(first: bytes) -> str | None:
    """Return why a file that begins with these bytes is not read as text, with the remedy; None if it is read."""
    first = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    for kind in _REFUSED:
        if kind.mark is not None and re.match(kind.mark, first):
            return f"is {kind.name}, not plain UTF-8 text; {kind.remedy}"
    return None
