"""Parallel text in files: which lines it has, which pairs are held out, and what a broken file is told by."""

import errno
import gzip
import lzma
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitransformer.config import DataConfig
from minitransformer.config.data import common_ending, has_both_sides
from minitransformer.data.corpus import FileCorpus, read_pairs
from minitransformer.data.pair_files import read_pair_file
from minitransformer.data.survey import LONGEST_LINE, CorpusError, Found, read_lines, survey
from minitransformer.extras.files.stream import groups_of_file
from minitransformer.inference.task import task_of
from minitransformer.system import file_kinds
from minitransformer.system.errors import UserError

ANY_TEXT = st.text(st.characters(exclude_characters="\n\0", codec="utf-8"), max_size=30)
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {".txt": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
COMPRESSED = [".gz", ".xz"]
if (zstd := file_kinds._zstd()) is not None:
    checked = {zstd.CompressionParameter.checksum_flag: 1}  # as the program zstd writes
    COMPRESSORS[".zst"] = lambda content: bytes(zstd.compress(content, options=checked))
    COMPRESSED.append(".zst")


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def numbered(prefix: str, n: int) -> bytes:
    return "".join(f"{prefix} {i}\n" for i in range(n)).encode()


def incompressible_lines(n: int) -> bytes:
    digits = random.Random(5)
    return b"".join(f"{digits.getrandbits(256):x}\n".encode() for _ in range(n))


ONE_FILE: dict[str, Any] = {"train_source": ("en",), "train_target": ("de",)}
VALIDATION: dict[str, Any] = {"validation_source": ("v.en",), "validation_target": ("v.de",)}


def corpus_of(folder: Path, files: dict[str, bytes | int], **fields: Any) -> FileCorpus:
    """A corpus of files with these contents or numbers of lines; without other fields, of ``en`` and ``de``."""
    for name, content in files.items():
        written(folder / name, numbered(name, content) if isinstance(content, int) else content)
    return FileCorpus.of(DataConfig(raw=folder, **ONE_FILE | fields))


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_only_a_line_feed_ends_a_line(tmp_path: Path, suffix: str) -> None:
    lines = ["grün\u2028\u2029\x0b\x0c\x1c\x85\rb", "c"]
    for name in (f"text{suffix}", f"TEXT{suffix.upper()}"):
        assert list(read_lines(written(tmp_path / name, COMPRESSORS[suffix]("\n".join(lines).encode())))) == lines


@pytest.mark.parametrize(("content", "lines"), [
    (b"one\r\ntwo\r\n", ["one", "two"]),
    (b"\none\n\n\ntwo\n\n", ["", "one", "", "", "two", ""]),
    (b"one\ntwo", ["one", "two"]), (b"  one \t\n", ["  one \t"]), (b"\n", [""]), (b"", []),
    (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
    (b"\xef\xbb\xbf", [""]), (b"one\r\r\ntwo\r", ["one\r", "two"]), (b"a\0b\n\0\n", ["a\0b", "\0"]),
    ("🙂 👩‍👩‍👧\nשלום \u202eעולם\u202c\n".encode(), ["🙂 👩‍👩‍👧", "שלום \u202eעולם\u202c"]),
    (b"x" * 100_000 + b"\n \t \ny\n", ["x" * 100_000, " \t ", "y"]),
],
    ids=["CRLF is stripped", "empty lines are kept", "last line without its end", "blanks stay", "one empty", "none",
        "a byte order mark is stripped", "nothing but a byte order mark", "one CR at most", "NUL", "emoji and Hebrew",
        "a very long line"]
)  # fmt: skip
def test_lines_of(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    assert list(read_lines(written(tmp_path / "text", content))) == lines


@pytest.mark.parametrize(("broken", "byte"), [
    (b"gr\xfcn", 3), (b"\xed\xa0\x80", 1), (b"\xc0\x80", 1), (b"\xf4\x90\x80\x80", 1), (b"\xe2\x80", 1),
], ids=["Latin-1", "surrogate", "overlong NUL", "beyond Unicode", "cut off"])  # fmt: skip
def test_broken_lines_are_counted_and_the_first_ones_named(tmp_path: Path, broken: bytes, byte: int) -> None:
    path = written(tmp_path / "mixed", b"\n".join([b"one", b"two", broken] * 10))
    place = rf"^{path}, line 3: not UTF-8 \([a-z ]+ at byte {byte} of the line\); .* iconv -f windows-1252 -t utf-8; .*"
    with pytest.raises(CorpusError, match=place) as caught:
        survey(path)
    assert str(caught.value).endswith("Lines of this kind: 10 of 30 (3, 6, 9, 12, 15 …)")
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["one", "two"]
    with pytest.raises(CorpusError, match=f"{place} take them out of this file and the same lines out of its partner$"):
        next(lines)


@pytest.mark.parametrize(("content", "odd"), [
    ("\ufeffone\r\nt\0wo\nthr\u2028ee\nfo\rur\n\tfive\n\ufeffsix", {
        "byte order mark (taken away)": Found(1, [1]), "CR LF at the end (taken away)": Found(1, [1]),
        "control characters": Found(1, [2]), "a separator that ends no line": Found(2, [3, 4]),
    }),
    ("one\t two\n\u2027 \u00e5 \u200b \u0080 \u2030\n\n🙂\n", {}),
    *(
        (f"a{separator}b\nc\n", {"a separator that ends no line": Found(1, [1])})
        for separator in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"  # all that end a line in Python
    ),
])  # fmt: skip
def test_odd_lines_are_counted_by_kind(tmp_path: Path, content: str, odd: dict[str, Found]) -> None:
    found = survey(written(tmp_path / "text", content.encode()))
    assert (found.n_lines, found.odd) == (len(content.rstrip("\n").split("\n")), odd)


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_compressed_file_that_is_cut_off_damaged_or_plain_text_is_named(tmp_path: Path, suffix: str) -> None:
    whole, path = COMPRESSORS[suffix](incompressible_lines(2_000)), tmp_path / f"text{suffix}"
    middle = len(whole) // 2
    damage = bytes(byte ^ 0xFF for byte in whole[middle : middle + 16])
    for content, message in (
        (whole[:middle], "after line [0-9]+: .*may be incomplete"),
        (whole[:middle] + damage + whole[middle + 16 :], "after line [0-9]+: "),
        (b"one\n", "after line 0: .*, or not what it is named"),
    ):
        with pytest.raises(CorpusError, match=f"{path}: cannot be read {message}"):
            list(read_lines(written(path, content)))


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_files_that_are_joined_are_read_to_the_end_or_refused(tmp_path: Path, suffix: str) -> None:
    one, other = (COMPRESSORS[suffix](lines) for lines in (b"one\n", b"two\n"))
    path = tmp_path / f"text{suffix}"
    padding = bytes(4 if suffix == ".xz" else 0)
    assert list(read_lines(written(path, one + padding + other + padding))) == ["one", "two"]
    for corrupted in (b"\1" + other[1:], other[:-1], other[:1], other + b"x"):
        with pytest.raises(CorpusError, match="cannot be read after line [12]: .*the file may be incomplete"):
            list(read_lines(written(path, one + corrupted)))


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_line_that_is_too_long_is_refused_by_number(tmp_path: Path, suffix: str) -> None:
    longest = b"x" * LONGEST_LINE
    path = tmp_path / f"text{suffix}"
    assert len(list(read_lines(written(path, COMPRESSORS[suffix](b"one\n" + longest + b"\n" + longest))))) == 3
    written(path, COMPRESSORS[suffix](b"one\n" + longest + b"x\ntwo\n"))
    with pytest.raises(CorpusError, match="line 2: has more than 1,000,000 bytes; expected one sentence per line"):
        survey(path)


@pytest.mark.parametrize(
    ("name", "fault"), [("nowhere", "not found"), ("", "is a directory"), ("secret", "may not be read by this user")]
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "secret":
        refused = Mock(side_effect=PermissionError(errno.EACCES, "Permission denied"))
        monkeypatch.setattr("minitransformer.data.survey.open_bytes", refused)
    with pytest.raises(CorpusError) as caught:
        list(read_lines(tmp_path / name))
    assert str(caught.value) == f"{tmp_path / name}: {fault}; expected a text file, plain, .gz, .xz or .zst"


@pytest.mark.skipif(zstd is None, reason="Zstandard is missing: Python 3.14, or the package backports.zstd")
def test_text_in_zstandard_is_read_by_all_readers(tmp_path: Path) -> None:
    """Several frames, and a frame that is skipped, are one text; a name in capitals is one, too."""
    frames = zstd.compress(b"one\n") + b"\x50\x2a\x4d\x18\x02\0\0\0xx" + zstd.compress(b"two\n")
    path = written(tmp_path / "train.en.ZST", frames)
    assert list(read_lines(path)) == ["one", "two"]
    with groups_of_file(path, 5) as groups:
        assert list(groups) == [[b"one", b"two"]]
    assert common_ending(["train.en.zst", "b.en"]) == "en"
    table = written(tmp_path / "a.tsv.zst", zstd.compress(b"one\teins\n"))
    assert has_both_sides(table)
    assert list(read_pair_file(table, ("en", "de"))) == [("one", "eins")]


def test_without_zstandard_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_kinds, "_zstd", lambda: None)
    with pytest.raises(UserError, match=r"a\.zst: needs Python 3\.14, or the package backports\.zstd: pip install"):
        survey(written(tmp_path / "a.zst", b"\x28\xb5\x2f\xfd"))


@pytest.mark.parametrize(("files", "fields", "message"), [
    ({"en": 1_003, "de": 1_000}, {}, "^[^ ]*/de: ends after line 1,000, but [^ ]*/en has 1,003;"),
    ({"a.en": 2, "b.en": 1, "a.de": 1, "b.de": 2},
        {"train_source": ("a.en", "b.en"), "train_target": ("a.de", "b.de")},
        r"a\.de: ends after line 1, but .*a\.en has 2;"),  # though both sides have three lines together
    ({}, {"train_source": (), "train_target": ()}, "there is no training text: set data.train_source and"),
    ({"en": 0, "de": 0}, {}, "en: the training text is empty"),
    ({"en": 3, "de": 3, "v.en": 0, "v.de": 0}, VALIDATION, r"v\.en: the validation text is empty"),
    ({"en": numbered("en", 30) + b"\xff\n", "de": 31}, {}, "en, line 31: not UTF-8"),
    ({"en": 5, "de": 5}, {}, r"en: 5 pairs are too few to hold any of them out; set data\.validation_s"),
])  # fmt: skip
def test_a_corpus_that_cannot_be_used_is_refused_before_any_pair_is(
    tmp_path: Path, files: dict[str, bytes | int], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        corpus_of(tmp_path, files, **fields)


def test_empty_lines_are_pairs_like_others_and_missing_ones_are_none(tmp_path: Path) -> None:
    """A line of spaces is empty."""
    source = written(tmp_path / "en", "a\n\u3000\n\nb\n".encode())
    target = written(tmp_path / "de", b"x\n\xc2\xa0 \ny\n\n")
    assert list(read_pairs(source, target)) == [("a", "x"), ("", ""), ("", "y"), ("b", "")]
    written(source, b"a\n\n\n")
    for files in (source, target), (target, source):
        with pytest.raises(CorpusError, match=f"^{source}: ends after line 3, but {target} goes on at line 4"):
            list(read_pairs(*files))


@pytest.mark.parametrize("link", [None, "symlink_to", "hardlink_to"])
def test_a_file_is_not_source_and_target(link: str | None, tmp_path: Path) -> None:
    source, target = written(tmp_path / "one", b"one\n" * 20), tmp_path / ("other" if link else "one")
    if link:
        getattr(target, link)(source)
    for part in ("train", "validation"):
        fields = {f"{part}_source": (source.name,), f"{part}_target": (target.name,)}
        with pytest.raises(CorpusError, match=rf"{target}: is the source and the target; .*, a copy of the file"):
            corpus_of(tmp_path, {"en": 20, "de": 20}, **fields)
    with pytest.raises(CorpusError, match="is the source and the target"):
        list(read_pairs(source, target))


def test_a_copy_as_the_target_is_read_with_a_warning(tmp_path: Path, logged: list[str]) -> None:
    assert corpus_of(tmp_path, {"en": b"one\n" * 20, "de": b"one\n" * 20})
    assert logged[:1] == [
        f"warning: {tmp_path / 'de'}: has the same content as {tmp_path / 'en'}; a model of these pairs learns to copy"
    ]


def test_several_files_are_read_in_a_row_and_beside_validation_files_none_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    names = ["a", "b", "more/a"]
    files: dict[str, bytes | int] = {f"{name}.{side}": 6 for name in [*names, "v"] for side in ("en", "de")}
    sources, targets = (tuple(f"{name}.{side}" for name in names) for side in ("en", "de"))
    corpus = corpus_of(tmp_path, files, train_source=sources, train_target=targets, **VALIDATION)
    assert list(corpus.train()) == [(f"{name}.en {i}", f"{name}.de {i}") for name in names for i in range(6)]
    assert list(corpus.validation()) == [(f"v.en {i}", f"v.de {i}") for i in range(6)]
    assert list(corpus.test()) == []
    alike = [f"{tmp_path / 'a.en'}:1", f"{tmp_path / 'a.en'}:6", "b.en:1", "b.en:6", f"{tmp_path / 'more/a.en'}:2"]
    assert [corpus.location(i) for i in (0, 5, 6, 11, 13)] == alike
    assert [corpus.file_of(i) for i in (0, 5, 6, 11, 12, 17)] == [0, 0, 1, 1, 2, 2]
    with pytest.raises(IndexError):
        corpus.location(18)


@settings(max_examples=40)
@given(
    texts=st.lists(st.tuples(ANY_TEXT, ANY_TEXT), min_size=6, max_size=40),
    with_end=st.booleans(),
    held_out=st.integers(1, 9),
)
def test_arbitrary_text_is_never_paired_wrongly(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str]], with_end: bool, held_out: int
) -> None:
    """Every line bears its number before its text: both sides of a pair must bear the same."""
    folder = tmp_path_factory.mktemp("any")
    for side, name in enumerate(("en", "de")):
        text = "\n".join(f"{i} {pair[side]}" for i, pair in enumerate(texts))
        written(folder / name, (text + "\n" * with_end).encode())
    corpus = corpus_of(folder, {}, held_out=held_out, filter=())
    train, validation = list(corpus.train()), list(corpus.validation())
    for source, target in (*train, *validation):
        number, text = source.split(" ", 1)
        assert target.split(" ", 1)[0] == number
        assert text == texts[int(number)][0].removesuffix("\r")
    numbers = [int(source.split(" ")[0]) for source, _ in (*train, *validation)]
    assert sorted(numbers) == list(range(len(texts)))
    assert 0 < len(validation) <= min(held_out, -(-len(texts) // 10))
    assert [corpus.location(i) for i in range(len(train))] == [f"en:{number + 1}" for number in numbers[: len(train)]]


def test_as_many_pairs_are_held_out_as_asked_for_and_the_same_every_time(tmp_path: Path) -> None:
    assert list(corpus_of(tmp_path, {"en": 6, "de": 6}).validation()) == [("en 5", "de 5")]
    for n in (399, 400):
        corpus = corpus_of(tmp_path, {"en": n, "de": n}, held_out=20)
        for _ in range(2):
            assert list(corpus.validation()) == [(f"en {i}", f"de {i}") for i in range(10, n, 20)]


def test_a_configuration_without_files_is_the_generated_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"train": [("a", "b")], "validation": [("c", "d")], "test": [("e", "f")]}
    monkeypatch.setattr("minitransformer.extras.demo.task.demo_corpus", lambda: SimpleNamespace(**parts))
    corpus = task_of(DataConfig()).corpus(DataConfig())
    assert [list(corpus.train()), list(corpus.validation()), list(corpus.test())] == list(parts.values())
