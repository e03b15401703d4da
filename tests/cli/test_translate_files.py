"""Translating a file into a file: nothing is lost or repeated when it is cut off, or mixed with another translation."""

import errno
import gzip
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from number_words import NUMBERS
from small_run import Trained, changed, contents, translated, written

from cli.translate import languages_of_model
from minitransformer.config import ConfigError
from minitransformer.data.pair_files import read_pair_file
from minitransformer.data.profile import TextProfile
from minitransformer.data.survey import LONGEST_LINE, CorpusError
from minitransformer.extras.files import resumable
from minitransformer.extras.files.memories import CLOSING, MemoryTranslator, opening, unit_of
from minitransformer.extras.files.output_file import ResumeError, open_output
from minitransformer.extras.files.resumable import progress_file, translate_file
from minitransformer.extras.files.stream import LineFormat, LinesDone, LineTranslator
from minitransformer.system.files import CorruptFileError

NOTE = "out.progress.json"
FILES = ["out", NOTE]
ODD = [b"", b" ", b"one \xff", b"\xef\xbb\xbfone", "two\u2028three".encode(), b"six\r", b"\0"]
SOURCE = b"one two\n\nsix five four\nthree\n"


def lines_of(n: int) -> bytes:
    draw = random.Random(3)
    lines = [" ".join(draw.choices(list(NUMBERS), k=draw.randint(1, 4))).encode() for _ in range(n)]
    return b"".join(line + b"\n" for line in (*lines[: n // 2], *ODD, *lines[n // 2 :]))


class PowerCutError(BaseException):
    """The process is gone."""


class FileOperations:
    """Counts what is done to files, and fails at the operation with a given number."""

    def __init__(self, last: int | None = None, error: BaseException | None = None) -> None:
        self.n, self.last, self.error = 0, last, error or PowerCutError()

    def counted(self, function: Any) -> Any:
        def operation(*arguments: Any, **keywords: Any) -> Any:
            self.n += 1
            if self.n == self.last:
                raise self.error
            return function(*arguments, **keywords)

        return operation


class Uppercase(LineTranslator):
    """Returns a line in capitals, and its number as its alignment; in the group after 8 lines it may fail."""

    error: BaseException | None

    def __init__(self, alignments: Path | None = None, error: BaseException | None = None) -> None:
        object.__setattr__(self, "format", LineFormat(alignments=alignments))
        object.__setattr__(self, "error", error)

    def __call__(self, lines: Sequence[bytes], n_before: int, advance: LinesDone = lambda n: None) -> list[bytes]:
        if n_before == 8 and self.error:
            raise self.error
        output = b"".join(line.upper() + b"\n" for line in lines)
        numbers = "".join(f"{n}-{n}\n" for n in range(n_before, n_before + len(lines)))
        return [output] if self.alignments is None else [output, numbers.encode()]

    def outputs_of(self, texts: Sequence[str], n_before: int, advance: LinesDone) -> list[bytes]:
        return self([text.encode() for text in texts], n_before)

    def facts(self) -> dict[str, Any]:
        return {"alignments": self.alignments and str(self.alignments)}


def uppercase(folder: Path, *, resume: bool, name: str = "out", **translation: Any) -> bytes:
    translate_file(Uppercase(**translation), folder / "in", folder / name, resume=resume, lines_at_once=4)
    return (folder / name).read_bytes()


def aligned(folder: Path, name: str = "out", **translation: Any) -> tuple[bytes, bytes]:
    alignments = folder / f"{name}.al"
    return uppercase(folder, resume=True, name=name, alignments=alignments, **translation), alignments.read_bytes()


@pytest.fixture
def half_done(tmp_path: Path) -> Path:
    """A folder in which the third of several groups was being translated when the process died."""
    (tmp_path / "in").write_bytes(lines_of(12))
    with pytest.raises(PowerCutError):
        aligned(tmp_path, error=PowerCutError())
    return tmp_path


@pytest.fixture
def done(tmp_path: Path) -> Path:
    (tmp_path / "in").write_bytes(lines_of(5))
    aligned(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", ["lines", "alignments", "memory"])
def test_a_translation_cut_off_before_any_operation_on_files_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Each time something torn is left in all outputs, and its continuation is cut off, too, before another one."""
    source, folder = tmp_path / "in", tmp_path / "folder"
    output, alignments = folder / ("out.tmx" if kind == "memory" else "out"), folder / "aligned"
    source.write_bytes(lines_of(8))
    translation = Uppercase(alignments if kind == "alignments" else None)
    translate: LineTranslator | MemoryTranslator = translation
    if kind == "memory":
        translate = MemoryTranslator(translation, ("en", "de"))
    monkeypatch.setattr("minitransformer.extras.files.memories.code_version", lambda: "1")  # asks git
    operations = FileOperations()
    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "write_text")):
        monkeypatch.setattr(owner, name, operations.counted(getattr(owner, name)))

    def files_of_translation() -> dict[str, bytes]:
        translate_file(translate, source, output, resume=True, lines_at_once=4, languages=("en", "de"))
        return contents(folder)

    folder.mkdir()
    whole = files_of_translation()
    assert len(whole) == (3 if kind == "alignments" else 2)
    n_operations, cut = operations.n, 0
    for cut in range(1, n_operations + 1):
        shutil.rmtree(folder)
        folder.mkdir()
        operations.n, operations.last = 0, cut
        with pytest.raises(PowerCutError):
            files_of_translation()
        for again in (1 + cut % 11, None):
            assert whole[output.name].startswith(output.read_bytes())
            if output.read_bytes() and b'"done": false' in progress_file(output).read_bytes():
                for path in {output, alignments} & set(folder.iterdir()):
                    path.write_bytes(path.read_bytes() + b"to\nrn")
            operations.n, operations.last = 0, again
            with suppress(PowerCutError):
                found = files_of_translation()
        assert found == whole
    assert cut > 20


def test_what_the_note_says_is_on_the_disk_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut loses what was written and not synced; a note that was being written is removed."""
    (tmp_path / "in").write_bytes(lines_of(8))
    (tmp_path / ".out.progress.json.123.tmp").write_text("{")
    fsync, write_text, synced = os.fsync, resumable.write_text, {0}
    noted: list[int] = []

    def noting_size(descriptor: int) -> None:
        fsync(descriptor)
        if os.fstat(descriptor).st_ino == (tmp_path / "out").stat().st_ino:
            synced.add(os.fstat(descriptor).st_size)

    def checking(path: Path, text: str) -> None:
        noted.append(json.loads(text)["n_bytes"])
        assert noted[-1] in synced
        write_text(path, text)

    monkeypatch.setattr(os, "fsync", noting_size)
    monkeypatch.setattr(resumable, "write_text", checking)
    assert len(uppercase(tmp_path, resume=False)) == noted[-1] > 0
    assert sorted(contents(tmp_path)) == ["in", *FILES]


def test_an_interrupt_says_how_to_go_on(tmp_path: Path, logged: list[str]) -> None:
    (tmp_path / "in").write_bytes(lines_of(12))
    with pytest.raises(KeyboardInterrupt):
        uppercase(tmp_path, resume=False, error=KeyboardInterrupt())
    assert logged == ["interrupted after line 8; to continue from there, set resume and start it again"]


def noting(**changes: object) -> Callable[[bytes], bytes]:
    return lambda note: json.dumps(json.loads(note) | changes).encode()


@pytest.mark.parametrize("state", ["half_done", "done"])
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("in", lambda text: text.replace(b"one", b"two", 1), "in has changed since (8|12) of its lines were"),
        ("in", lambda text: b"one\n", "in has changed since"),
        ("out", lambda text: b"x" + text[1:], r"its first \d+ bytes have changed since they were written"),
        ("out", lambda text: text[1:], r"its first \d+ bytes have changed since they were written"),
        ("out.al", lambda text: b"9-9\n" + text[4:], r"al: its first \d+ bytes have changed"),
        ("out.al", lambda text: b"", r"al: its first \d+ bytes have changed"),
        (NOTE, noting(n_lines=-1), "has changed since -1 of its lines were translated"),
        (NOTE, noting(n_lines=2**64), "has changed since 18,446,744,073,709,551,616 of its lines were"),
        (NOTE, noting(n_bytes=-1), "its first -1 bytes have changed since they were written"),
        (NOTE, noting(n_lines="8"), r"progress\.json: n_lines must be .*; got '8'; it is corrupt or of .*: remove"),
    ],
)
def test_files_that_changed_are_noticed_and_left_alone(
    request: pytest.FixtureRequest, state: str, name: str, change: Callable[[bytes], bytes], message: str
) -> None:
    folder: Path = request.getfixturevalue(state)
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    before = contents(folder)
    with pytest.raises((ResumeError, CorruptFileError), match=message):
        aligned(folder)
    assert contents(folder) == before


def test_a_half_done_output_is_left_alone_without_resume_and_by_another_process(half_done: Path) -> None:
    before = contents(half_done)
    with pytest.raises(ResumeError, match="an interrupted translation; set resume to continue it, or remove"):
        uppercase(half_done, resume=False)
    with open_output(half_done / "out"), pytest.raises(ResumeError, match="another process is writing it"):
        aligned(half_done)
    assert contents(half_done) == before


def test_an_unknown_file_is_not_taken_for_an_output(tmp_path: Path) -> None:
    """Also of as many lines."""
    for name in ("in", "out"):
        (tmp_path / name).write_bytes(lines_of(5))
    with pytest.raises(ResumeError, match=r"out: exists, but .*out\.progress\.json, .*; remove the output, or choose"):
        uppercase(tmp_path, resume=True)
    assert (tmp_path / "out").read_bytes() == lines_of(5)


def test_a_complete_output_is_left_alone(done: Path, logged: list[str]) -> None:
    for name in (*FILES, "out.al"):
        os.utime(done / name, (1, 1))
    aligned(done)
    assert {(done / name).stat().st_mtime for name in (*FILES, "out.al")} == {1}
    assert logged == [f"{done / 'out'}: complete; nothing is left to do"]


def test_a_complete_output_is_begun_anew_without_resume_and_if_removed(done: Path) -> None:
    whole = (done / "out").read_bytes()
    assert uppercase(done, resume=False) == whole  # without alignments
    (done / "out").unlink()
    assert uppercase(done, resume=True) == whole


def test_compressed_input_is_read(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(lines_of(5)))
    source, expected = ["--input", str(tmp_path / "in.gz")], translated(trained, lines_of(5))
    assert translated(trained, b"", *source, "--output", str(tmp_path / "out")) == b""
    assert translated(trained, b"", *source) == (tmp_path / "out").read_bytes() == expected


def test_a_missing_input_or_one_that_is_an_output_leaves_it_alone(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"precious\n")
    with pytest.raises(CorpusError, match="in: cannot be read: .*No such file.*; the input must be"):
        uppercase(tmp_path, resume=False)
    (tmp_path / "in").write_bytes(b"precious\n")
    with pytest.raises(ResumeError, match="in: is the input, too"):
        uppercase(tmp_path, resume=False, name="in")
    for name, use in (("in", "the input"), ("out", "the output")):
        with pytest.raises(ResumeError, match=f"{name}: is {use}, too; choose another file"):
            uppercase(tmp_path, resume=False, alignments=tmp_path / name)
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


def written_memory(path: Path, sources: list[str]) -> Path:
    units = b"".join(unit_of(("en-US", "de-AT"), (source, "…")) for source in sources)
    path.write_bytes(opening("en-US") + units + unit_of(("fr", "it"), ("rien", "nulla")) + CLOSING)
    return path


def shouted(folder: Path, *, resume: bool, name: str = "out.tmx") -> bytes:
    shouting = MemoryTranslator(Uppercase(), ("en", "de"))
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


@pytest.mark.parametrize(("resume_file", "name"), [(uppercase, "out"), (shouted, "out.tmx")])
def test_lines_appended_to_the_input_of_a_complete_output_come_before_its_end(
    resume_file: Callable[..., bytes], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the process dies between output and note; an output whose end was changed is left alone."""
    (tmp_path / "in").write_text("one\n")
    resume_file(tmp_path, resume=False, name=name)
    (tmp_path / "in").write_text("one\ntwo\n")
    with monkeypatch.context() as patch:
        patch.setattr(resumable._Run, "_note", FileOperations(2).counted(resumable._Run._note))
        with pytest.raises(PowerCutError):
            resume_file(tmp_path, resume=True, name=name)
    straight = resume_file(tmp_path, resume=False, name=f"straight-{name}")
    assert resume_file(tmp_path, resume=True, name=name) == straight
    for other in (straight + b"<!-- mine -->", straight[:-3]):
        (tmp_path / name).write_bytes(other)
        with pytest.raises(ResumeError, match="something was appended to the .* bytes|have changed"):
            resume_file(tmp_path, resume=True, name=name)
        assert (tmp_path / name).read_bytes() == other


def test_alignments_appended_to_are_noticed(done: Path) -> None:
    (done / "out.al").write_bytes((done / "out.al").read_bytes() + b"0-0\n")
    with pytest.raises(ResumeError, match="al: something was appended to the .* bytes"):
        aligned(done)


def test_a_memory_is_translated_into_a_memory(trained: Trained, tmp_path: Path, logged: list[str]) -> None:
    source = written_memory(tmp_path / "in.tmx", ["one two", "six", "five"])
    files = ["--input", str(source), "--output", str(tmp_path / "out.tmx")]
    translated(trained, b"", *files)
    found = translated(trained, b"one two\nsix\nfive\n").decode().splitlines()
    pairs = zip(["one two", "six", "five"], (text or "…" for text in found), strict=True)  # an empty one replaces none
    assert list(read_pair_file(tmp_path / "out.tmx", ("en-US", "de-AT"))) == list(pairs)
    assert logged == [f"warning: {source}: 1 units have no text in en-US, and are left out"]
    before = contents(tmp_path)
    with pytest.raises(ResumeError, match="was begun with other settings: languages"):
        translated(trained, b"", *files, "--languages", "en", "de", "--resume")
    with pytest.raises(CorpusError, match="no unit has text in es; its languages are"):
        translated(trained, b"", *files[:3], str(tmp_path / "other.tmx"), "--languages", "es", "en")
    assert contents(tmp_path) == before


def xliff(target: str) -> str:
    unit = '<trans-unit id="1"><source>one two</source></trans-unit>'
    return f'<xliff version="1.2"><file source-language="en" {target}><body>{unit}</body></file></xliff>'


def test_files_are_translated_between_the_languages_of_the_model(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of other languages gets no German text under another language's name, and is not read backwards."""
    expected = translated(trained, b"one two\n").decode()

    def into(name: str, content: str, *options: str) -> str:
        output = tmp_path / f"out-{name}"
        translated(trained, b"", "--input", written(tmp_path / name, content), "--output", str(output), *options)
        return output.read_text()

    assert into("a.jsonl", '{"translation": {"de": "zwei drei", "en": "one two"}}\n') == expected
    assert into("a.jsonl", '{"translation": {"de": "zwei drei", "en": "one two", "fr": "deux"}}\n') == expected
    for name, content in (("h.txt", "one two\n"), ("h.tsv", "one two\tzwei\n")):
        translated(trained, b"", "--input", written(tmp_path / name, content), "--output", f"{tmp_path}/{name}.tmx")
        assert list(read_pair_file(tmp_path / f"{name}.tmx", ("en", "de"))) == [("one two", expected.strip())], name
    for names in (("de", "en"), ("en", "fr")):
        (tmp_path / "b.tmx").write_bytes(opening(names[0]) + unit_of(names, ("one two", "one two")) + CLOSING)
        translated(trained, b"", "--input", f"{tmp_path}/b.tmx", "--output", f"{tmp_path}/c.tmx")
        assert list(read_pair_file(tmp_path / "c.tmx", ("en", "de"))) == [("one two", expected.strip())], names
    for name, content, refusal in (
        ("d.xlf", xliff('target-language="fr"'), "languages are en → fr, not en → de; set languages to those of"),
        ("e.po", 'msgid ""\nmsgstr "Language: fr\\n"\n\nmsgid "a"\nmsgstr ""\n', "its language is fr, not de; set"),
    ):
        with pytest.raises(CorpusError, match=refusal):
            into(name, content)
        assert "--languages" not in capsys.readouterr().err
        into(name, content, "--languages", "en", "fr")
        assert "warning: --languages en fr: the model translates from en to de" in capsys.readouterr().err
    assert 'target-language="de-AT"' in into("f.xlf", xliff('target-language="de-AT"'))
    assert 'target-language="de"' in into("f.xlf", xliff(""))
    assert "Language: de" in into("g.po", 'msgid "one"\nmsgstr ""\n')
    assert "--languages" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("profile", "codes", "to_language", "expected"),
    [
        (TextProfile("en", "pt_BR"), (), None, ("en", "pt_BR")), (TextProfile("en", None), (), None, None),
        (TextProfile("en", targets=("de", "fr")), ("de", "fr"), "fr", ("en", "fr")),
        (TextProfile("roa", "en"), (), None, None),  # a group of languages, of a converted model
        (TextProfile("en", "mul"), ("deu", "fra"), "fra", None),
    ],
)  # fmt: skip
def test_the_languages_of_a_model_decide_only_if_both_are_known(
    profile: TextProfile, codes: tuple[str, ...], to_language: str | None, expected: tuple[str, str] | None
) -> None:
    translator: Any = SimpleNamespace(profile=profile, tokenizer=SimpleNamespace(languages=codes))
    assert languages_of_model(translator, to_language) == expected


def test_terms_are_read_in_the_direction_of_the_model(trained: Trained, tmp_path: Path) -> None:
    rows = {
        "a.tsv": "two\tZWO\n",
        "b.jsonl": '{"translation": {"de": "ZWO", "en": "two"}}\n',
        "c.jsonl": '{"translation": {"en": "two", "fr": "ZWO"}}\n',
        "d.txt": "two\tZWO\n",
    }
    first, second, french, text = (written(tmp_path / name, content) for name, content in rows.items())
    for path in (first, second):
        assert b"ZWO" in translated(trained, b"one two\n", "--terms", path), path
    with pytest.raises(ConfigError, match=r"--terms .*c\.jsonl: has no term from en to de$"):
        translated(trained, b"one two\n", "--terms", french)
    with pytest.raises(ConfigError, match=r"--terms .*d\.txt: name it \.tsv if each line has a source term, a tab"):
        translated(trained, b"one two\n", "--terms", text)


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


def test_codes_of_a_memory_carry_over(trained: Trained, tmp_path: Path, logged: list[str]) -> None:
    segment = 'one ☃ <bpt i="1">[</bpt>two<ept i="1">]</ept> {0}<ph x="2">br</ph>'
    unit = f'<tu><tuv xml:lang="en-US"><seg>{segment}</seg></tuv></tu>'
    memory, output = tmp_path / "in.tmx", tmp_path / "out.tmx"
    memory.write_bytes(opening("en-US") + unit.encode() + CLOSING)
    translated(trained, b"", "--input", str(memory), "--output", str(output), "--languages", "en", "de")
    source, target = ElementTree.parse(output).findall("body/tu/tuv/seg")
    assert ElementTree.tostring(source, encoding="unicode") in unit
    assert [code.tag for code in target if code.tag != "ph"] == ["bpt", "ept"]
    assert [code.text for code in target.iter("ph")] == ["br"]
    assert "".join(target.itertext()).count("{0}") == 1
    assert source.text is not None
    assert "".join(target.itertext()).count("☃") == 1


def test_the_sources_of_a_memory_and_the_first_column_of_a_table_are_lines(
    trained: Trained, tmp_path: Path, logged: list[str]
) -> None:
    written_memory(tmp_path / "in.tmx", ["one two", "six"])
    written(tmp_path / "in.tsv", "one two\teins zwei\nsix\tsechs\n")
    first, second = translated(trained, b"one two\nsix\n").splitlines(keepends=True)
    for name in ("in.tmx", "in.tsv"):
        files = ["--input", str(tmp_path / name), "--languages", "en", "de"]
        assert translated(trained, b"", *files[:2]) == translated(trained, b"", *files) == first + second, name
    translated(trained, b"", *files, "--output", str(tmp_path / "out.tmx"))
    targets = [line.decode().strip() for line in (first, second)]
    assert list(read_pair_file(tmp_path / "out.tmx")) == list(zip(["one two", "six"], targets, strict=True))
    written(tmp_path / "in.tsv", "six\tsechs\n\teins\n\u3000\tzwei\n\nsix\n")
    written(tmp_path / "in.txt", "six\n\n\u3000\n\xa0\nsix\n")
    for kind in ("tsv", "txt"):
        assert translated(trained, b"", "--input", str(tmp_path / f"in.{kind}")) == (b"\n" * 3).join([second] * 2), kind
    assert any("3 units have no text in en, and have an empty line as translation" in line for line in logged)


def resumed(trained: Trained, folder: Path, *options: str) -> tuple[bytes, bytes]:
    files = ["--input", str(folder / "in"), "--output", str(folder / "out"), "--alignments", str(folder / "al")]
    translated(trained, b"", *files, "--resume", *options)
    return (folder / "out").read_bytes(), (folder / "al").read_bytes()


def test_files_are_taken_up_with_all_options_and_no_others(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(SOURCE)
    prefixes, again = Path(written(tmp_path / "pre", "x\n" * 4)), ["--run", str(trained.run)]
    options = [*again, "--sample", "--seed", "3", "--prefix", str(prefixes)]
    whole = resumed(trained, tmp_path, *options)
    assert resumed(trained, tmp_path, *options) == whole
    its_model = 'model or weights ("float32" continues what a GPU began without TF32); choose another output'
    others = (["--seed", "4"], "sampling ("), ([*again, *again], its_model), (["--n-best", "1"], "n_best (")
    for other, name in (*others, (["--weights", "int8"], its_model)):
        with pytest.raises(ResumeError, match=f"out: was begun with other settings: {re.escape(name)}"):
            resumed(trained, tmp_path, *changed(options, *other))
    prefixes.write_text("y\n" * 4)
    with pytest.raises(ResumeError, match="out: was begun with other settings: prefix; choose another output, or"):
        resumed(trained, tmp_path, *options)
    assert (tmp_path / "out").read_bytes() == whole[0]


def test_files_are_taken_up_with_the_same_search_and_splitting_only(trained: Trained, tmp_path: Path) -> None:
    split = ["--split-sentences", "de"]
    (tmp_path / "in").write_bytes(b"one two. six!\n" * 3)
    files = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--resume"]
    translated(trained, b"", *files, *split)
    polish, wider = ["--split-sentences", "pl"], [*split, "--beam", "3"]
    for other, name in (([], "split_sentences"), (polish, "split_sentences"), (wider, "beam")):
        with pytest.raises(ResumeError, match=rf"out: was begun with other settings: {name}\b"):
            translated(trained, b"", *files, *other)
    with (tmp_path / "in").open("ab") as source:
        source.write(b"two. two.\n")
    translated(trained, b"", *files, *split)
    assert (tmp_path / "out").read_bytes() == translated(trained, (tmp_path / "in").read_bytes(), *split)


def test_an_input_that_grows_is_continued_with_its_file_of_beginnings(trained: Trained, tmp_path: Path) -> None:
    source, prefixes = tmp_path / "in", tmp_path / "pre"
    for n_lines in (2, 4):
        source.write_bytes(b"".join(SOURCE.splitlines(keepends=True)[:n_lines]))
        prefixes.write_text("x\n" * n_lines)
        target, _ = resumed(trained, tmp_path, "--prefix", str(prefixes))
    assert target == translated(trained, SOURCE, "--prefix", str(prefixes))


@pytest.mark.parametrize(("operation", "name"), [(3, "out"), (4, "out.al"), (5, "out.progress.json")])
def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: int, name: str) -> None:
    (tmp_path / "in").write_bytes(lines_of(8))
    operations = FileOperations(operation, OSError(errno.ENOSPC, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", operations.counted(os.fsync))
        with pytest.raises(Exception, match=f"^{tmp_path / name}: cannot be written .*No space left"):
            aligned(tmp_path)
    assert aligned(tmp_path) == aligned(tmp_path, "whole")
