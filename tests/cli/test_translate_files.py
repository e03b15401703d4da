"""Translating a file into a file: lines, lines of several sentences, and translation memories."""

import gzip
import io
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from small_run import Trained, contents, translated, written
from translated_files import FILES, FileOperations, PowerCutError, Uppercase, lines_of, run, uppercase

from cli.translate import translate
from minitransformer.config import ConfigError
from minitransformer.data.survey import LONGEST_LINE, CorpusError
from minitransformer.extras.files import resumable, stream
from minitransformer.extras.files.memories import CLOSING, MemoryTranslator, opening, unit_of
from minitransformer.extras.files.output_file import ResumeError
from minitransformer.extras.files.pair_files import read_pair_file
from minitransformer.extras.files.resumable import translate_file
from minitransformer.inference.translator import Translator


def test_a_complete_output_is_left_alone(tmp_path: Path, logged: list[str]) -> None:
    (tmp_path / "in").write_bytes(lines_of(5))
    uppercase(tmp_path, resume=False)
    for name in FILES:
        os.utime(tmp_path / name, (1, 1))
    uppercase(tmp_path, resume=True)
    assert [(tmp_path / name).stat().st_mtime for name in FILES] == [1, 1]
    assert logged == [f"{tmp_path / 'out'}: complete; nothing is left to do"]


def test_a_complete_output_is_begun_anew_without_resume_and_if_removed(translator: Translator, done: Path) -> None:
    whole = run(translator, done, resume=False, beam=3)
    (done / "out").unlink()
    assert run(translator, done, resume=True, beam=3) == whole


def test_compressed_input_is_read(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(lines_of(5)))
    source, expected = ["--input", str(tmp_path / "in.gz")], translated(trained, lines_of(5))
    assert translated(trained, b"", *source, "--output", str(tmp_path / "out")) == b""
    assert translated(trained, b"", *source) == (tmp_path / "out").read_bytes() == expected


def test_a_missing_input_or_one_that_is_the_output_leaves_it_alone(translator: Translator, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"precious\n")
    with pytest.raises(CorpusError, match="in: cannot be read: .*No such file.*; the input must be"):
        run(translator, tmp_path, resume=False)
    (tmp_path / "in").write_bytes(b"precious\n")
    with pytest.raises(ResumeError, match="in: is the input, too"):
        run(translator, tmp_path, resume=False, name="in")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes() == b"precious\n"


def test_files_of_another_kind_are_refused_and_the_output_left_alone(trained: Trained, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out"
    source.write_bytes("The dog sleeps.\n".encode("utf-16"))
    target.write_bytes(b"precious\n")
    remedy = "is UTF-16, not plain UTF-8 text; save it as UTF-8, or: iconv -f utf-16 -t utf-8"
    for options in ([], ["--output", str(target)], ["--output", str(target), "--resume"]):
        with pytest.raises(CorpusError, match=f"in.txt: {remedy}"):
            translated(trained, b"", "--input", str(source), *options)
    with pytest.raises(CorpusError, match=f"standard input: {remedy}"):
        translated(trained, source.read_bytes())
    assert target.read_bytes() == b"precious\n"


SPLIT = ["--split-sentences", "en"]


def test_a_paragraph_is_the_translations_of_its_sentences(trained: Trained) -> None:
    alone = translated(trained, b"one two.\nsix!\nthree four.\n").decode().splitlines()
    assert translated(trained, b"one two.  six!\n\n three four. \n", *SPLIT).decode().splitlines() == [
        f"{alone[0]}  {alone[1]}",
        "",
        alone[2],
    ]


def test_lines_of_one_sentence_are_translated_as_without(trained: Trained) -> None:
    assert translated(trained, lines_of(5), *SPLIT) == translated(trained, lines_of(5))


def test_blanks_of_any_kind_between_sentences_end_no_line(trained: Trained) -> None:
    blanks = " \u2028\x0b\t\r\x85\u3000"
    source = "".join(f"one.{blank}two!{blank}{blank}six。{blank}\n" for blank in blanks)
    target = translated(trained, source.encode(), *SPLIT, "--beam", "1").decode()
    assert target.count("\n") == len(target.splitlines()) == len(blanks)


def test_a_sentence_that_is_too_long_is_named_by_its_line(
    trained: Trained, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitransformer.inference.translator.MAX_SOURCE_TOKENS", 20)
    translated(trained, b"one.\none. two. " + b"six " * 30 + b"\n", *SPLIT, "--beam", "1")
    assert "warning: a sentence of line 2 has over 20 tokens; the rest is cut off" in logged


def test_files_are_resumed_with_the_same_splitting_only(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one two. six!\n" * 3)
    files = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--resume"]
    translated(trained, b"", *files, *SPLIT)
    for other in ([], ["--split-sentences", "de"]):
        with pytest.raises(ResumeError, match="out: was begun with another split_sentences"):
            translated(trained, b"", *files, *other)
    with (tmp_path / "in").open("ab") as source:
        source.write(b"two. two.\n")
    translated(trained, b"", *files, *SPLIT)
    assert (tmp_path / "out").read_bytes() == translated(trained, (tmp_path / "in").read_bytes(), *SPLIT)


@pytest.mark.parametrize(
    "option",
    [("--n-best", "1"), ("--prefix", "file"), ("--prefix-text", ""), ("--sample",), ("--alignments", "file")],
    ids=lambda option: option[0],
)
def test_what_belongs_to_lines_of_one_sentence_is_refused(trained: Trained, option: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=f"{option[0]}: does not go with --split-sentences"):
        translated(trained, b"one\n", *SPLIT, *option)


def test_unknown_characters_are_named_once_at_the_end(trained: Trained, logged: list[str]) -> None:
    target = translated(trained, "one ж\ntwo\nж 漢. six\n".encode())
    assert target.count(b"\n") == 3
    assert logged == [
        "warning: 2 lines have characters that the tokenizer does not know: 'ж', '漢', '.';"
        " the model reads them as unknown words"
    ]


class Typed(io.BytesIO):
    """A terminal on which one line is typed at a time; it keeps what had been logged before each."""

    def __init__(self, lines: Sequence[bytes], logged: list[str]) -> None:
        super().__init__()
        self.lines, self.logged, self.seen = list(lines), logged, list[int]()

    def isatty(self) -> bool:
        return True

    def read1(self, size: int | None = -1, /) -> bytes:
        self.seen.append(len(self.logged))
        return self.lines.pop(0) if self.lines else b""


def test_who_types_is_warned_of_unknown_characters_before_the_next_line(
    trained: Trained, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_pauses", lambda source: True)
    typed = Typed([b"one\n", "two ж\n".encode(), b"six\n"], logged)
    translate(["--run", str(trained.run)], typed, io.BytesIO())
    assert typed.seen == [0, 0, 1, 1]
    assert "1 line has characters that the tokenizer does not know: 'ж'" in logged[0]


def written_memory(path: Path, sources: list[str]) -> Path:
    units = b"".join(unit_of(("en-US", "fr"), (source, "…")) for source in sources)
    path.write_bytes(opening("en-US") + units + unit_of(("fr", "it"), ("rien", "nulla")) + CLOSING)
    return path


def shouted(folder: Path, *, resume: bool, name: str = "out.tmx") -> bytes:
    shouting = MemoryTranslator(Uppercase(None), ("en", "de"))
    translate_file(shouting, folder / "in", folder / name, resume=resume, lines_at_once=2, languages=("en", "de"))
    return (folder / name).read_bytes()


def test_a_text_becomes_a_memory(tmp_path: Path) -> None:
    """Its units have the text that was translated, without what was cut off."""
    sources = ["one two", "six & <five>", "two\ufffd", "a" * LONGEST_LINE]
    (tmp_path / "in").write_text("one two\n\nsix & <five>\ntwo\x01\n" + "a" * (LONGEST_LINE + 10) + "\n")
    shouted(tmp_path, resume=False)
    assert list(read_pair_file(tmp_path / "out.tmx")) == [(source, source.upper()) for source in sources]


def test_an_empty_text_becomes_an_empty_memory(tmp_path: Path) -> None:
    (tmp_path / "in").touch()
    whole = shouted(tmp_path, resume=False)
    assert whole == opening("en") + CLOSING == shouted(tmp_path, resume=True)
    (tmp_path / "in").write_text("one\n")
    assert shouted(tmp_path, resume=True) == opening("en") + unit_of(("en", "de"), ("one", "ONE")) + CLOSING


Resume = Callable[..., bytes]


@pytest.mark.parametrize(("resume_file", "name"), [(uppercase, "out"), (shouted, "out.tmx")])
def test_lines_appended_to_the_input_of_a_complete_output_come_before_its_end(
    resume_file: Resume, name: str, tmp_path: Path
) -> None:
    """Also when the process dies between output and note; an output whose end was changed is left alone."""
    (tmp_path / "in").write_text("one\n")
    resume_file(tmp_path, resume=False, name=name)
    (tmp_path / "in").write_text("one\ntwo\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resumable._Run, "_note", FileOperations(2).counted(resumable._Run._note))
        with pytest.raises(PowerCutError):
            resume_file(tmp_path, resume=True, name=name)
    straight = resume_file(tmp_path, resume=False, name=f"straight-{name}")
    assert resume_file(tmp_path, resume=True, name=name) == straight
    for changed in (straight + b"<!-- mine -->", straight[:-3]):
        (tmp_path / name).write_bytes(changed)
        with pytest.raises(ResumeError, match="something was appended to|have changed"):
            resume_file(tmp_path, resume=True, name=name)
        assert (tmp_path / name).read_bytes() == changed


def test_a_memory_is_translated_into_a_memory(trained: Trained, tmp_path: Path, logged: list[str]) -> None:
    source = written_memory(tmp_path / "in.tmx", ["one two", "six", "five"])
    files = ["--input", str(source), "--output", str(tmp_path / "out.tmx")]
    translated(trained, b"", *files)
    pairs = zip(
        ["one two", "six", "five"], translated(trained, b"one two\nsix\nfive\n").decode().splitlines(), strict=True
    )
    assert list(read_pair_file(tmp_path / "out.tmx", ("en-US", "fr"))) == list(pairs)
    assert logged == [f"warning: {source}: 1 units have no text in en-US, and are left out"]
    before = contents(tmp_path)
    with pytest.raises(ResumeError, match="was begun with another languages"):
        translated(trained, b"", *files, "--languages", "en", "de", "--resume")
    assert contents(tmp_path) == before


def test_a_memory_has_alignments_of_its_segments(trained: Trained, tmp_path: Path) -> None:
    memory = written_memory(tmp_path / "in.tmx", ["one two", "six"])
    files = ["--input", str(memory), "--output", str(tmp_path / "out.tmx"), "--alignments", str(tmp_path / "aligned")]
    translated(trained, b"", *files, "--prefix", written(tmp_path / "prefixes", "eins \nsechs \n"))
    targets = [target for _, target in read_pair_file(tmp_path / "out.tmx")]
    assert [target.split()[0] for target in targets] == ["eins", "sechs"]
    aligned = (tmp_path / "aligned").read_text().splitlines()
    assert len(aligned) == 2
    for line, target in zip(aligned, targets, strict=True):
        assert all(int(pair.partition("-")[2]) < len(target.split()) for pair in line.split())


def test_units_keep_what_they_have_and_codes_carry_over(trained: Trained, tmp_path: Path, logged: list[str]) -> None:
    unit = (
        '<tu tuid="7"><note>n</note><prop type="p">v</prop><tuv xml:lang="en-US" creationid="me"><seg>'
        'one ☃ <bpt i="1">[</bpt>two<ept i="1">]</ept> {0}<ph x="2">br</ph></seg></tuv>'
        '<tuv xml:lang="de-AT"><note>m</note><seg>alt</seg></tuv></tu>'
    )
    memory, output = tmp_path / "in.tmx", tmp_path / "out.tmx"
    memory.write_bytes(opening("en-US") + unit.encode() + CLOSING)
    translated(trained, b"", "--input", str(memory), "--output", str(output), "--languages", "en", "de")
    (read,) = ElementTree.parse(output).findall("body/tu")
    source, target = read.findall("tuv")
    assert (read.attrib, read.findtext("note"), read.findtext("prop")) == ({"tuid": "7"}, "n", "v")
    assert ElementTree.tostring(source, encoding="unicode") in unit
    assert (target.findtext("note"), source.get("creationid")) == ("m", "me")
    (segment,) = target.findall("seg")
    assert [code.tag for code in segment if code.tag != "ph"] == ["bpt", "ept"]
    assert [code.text for code in segment.iter("ph")] == ["br"]
    assert "".join(segment.itertext()).count("{0}") == 1
    assert "alt" not in "".join(segment.itertext())
    assert any("characters that the tokenizer does not know: '☃'" in line for line in logged)


def test_the_sources_of_a_memory_and_the_first_column_of_a_table_are_lines(trained: Trained, tmp_path: Path) -> None:
    written(tmp_path / "in.tsv", "one two\teins zwei\nsix\tsechs\n")
    written_memory(tmp_path / "in.tmx", ["one two", "six"])
    expected = translated(trained, b"one two\nsix\n")
    for name in ("in.tmx", "in.tsv"):
        files = ["--input", str(tmp_path / name), "--languages", "en", "de"]
        assert translated(trained, b"", *files[:2]) == translated(trained, b"", *files) == expected, name
    translated(trained, b"", *files, "--output", str(tmp_path / "out.tmx"))
    pairs = zip(["one two", "six"], expected.decode().splitlines(), strict=True)
    assert list(read_pair_file(tmp_path / "out.tmx")) == list(pairs)


def test_a_table_has_a_line_for_each_line(trained: Trained, tmp_path: Path, logged: list[str]) -> None:
    written(tmp_path / "in.tsv", "six\tsechs\n\teins\n\u3000\tzwei\n\nsix\n")
    written(tmp_path / "in.txt", "six\n\n\u3000\n\xa0\nsix\n")
    expected = (b"\n" * 3).join([translated(trained, b"six\n")] * 2)
    assert [translated(trained, b"", "--input", str(tmp_path / f"in.{kind}")) for kind in ("tsv", "txt")] == [
        expected
    ] * 2
    assert any("3 units have no text in source, and have an empty line as translation" in line for line in logged)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["--input", "t", "--output", "o.tmx"], ConfigError, "names its languages; set languages, for example en"),
        (["--languages", "en", "de"], ConfigError, "--languages: are those of a .tmx, .xlf or .po file; name one"),
        (["--input", "in.tmx", "--languages", "de", "en"], CorpusError, "no unit has text in de; its languages are"),
        (["--input", "t", "--output", "o.tmx.gz"], ConfigError, "the output is plain text; choose a name without .gz"),
        (["--input", "p.tsv", "--output", "o.tmx"], ConfigError, "o.tmx: a translation memory names its languages"),
        (["--input", "t", "--output", "o.po"], ConfigError, "o.po: is written only for an input of its kind"),
        (["--input", "a.xlf"], ConfigError, "a.xlf: give --output FILE with the same ending"),
        (["--input", "a.po", "--output", "b.po", "--resume"], ConfigError, "b.po is written as a whole; leave the opt"),
        (["--input", "a.po", "--output", "a.po"], ConfigError, "a.po: is the input, too"),
        (["--input", "a.po", "--output", "b.po"], CorpusError, "a.po: cannot be read"),
        (["--input", "a.pot", "--output", "b.po"], CorpusError, "a.pot: cannot be read"),
        (["--input", "a.po", "--output", "b.pot"], ConfigError, "a.po: give --output FILE with the same ending"),
        (["--input", "absent.tmx"], CorpusError, "absent.tmx: cannot be read after line 1: .*No such file"),
    ],
)
def test_what_does_not_go_together_is_refused_before_an_output_is_opened(
    trained: Trained, here: Path, options: list[str], error: type[Exception], message: str
) -> None:
    written_memory(here / "in.tmx", ["one"])
    (here / "t").write_text("one\n")
    (here / "p.tsv").write_text("one\teins\n")
    before = contents(here)
    with pytest.raises(error) as caught:
        translated(trained, b"", *options)
    assert re.search(message, str(caught.value))
    assert contents(here) == before
