"""Translating from end to end: a line for each line, also when cut off, and never mixed with another translation."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_run import Trained, contents, translated
from translated_files import FILES, FileOperations, PowerCutError, Uppercase, lines_of, run, uppercase

from cli.translate import translate
from minitransformer.data.file_kinds import N_FIRST_BYTES
from minitransformer.extras.files import resumable
from minitransformer.extras.files.memories import MemoryTranslator
from minitransformer.extras.files.output_file import ResumeError, open_output
from minitransformer.extras.files.resumable import progress_file, translate_file
from minitransformer.extras.files.stream import LineTranslator
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.system.files import CorruptFileError


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"one \x0b two\x0cthree\x1cfour\n\x85\n",
        "one\u2028two\u2029three\x85four\n".encode(),
        b"\x00\x01\x02\x1b[31m\x7f\n\t\n",
        "🙂 one 👩‍👩‍👧 two\n漢字\n".encode(),
        b"one\rtwo\n",
        b"one \xff\xfe two\nthree\n",
        b"\xed\xa0\x80\n\xed\xb0\x80 one\n",
        b"gr\xfcn\n" + "grün\n".encode(),
        "שלום \u202eעולם\u202c\nمرحبا\n".encode(),
        b"x" * 100_000 + b"\none\n",
        b" " * 100_000 + b"\n",
    ],
    ids=lambda source: repr(source[:40]),
)
def test_every_line_in_is_one_line_out(trained: Trained, source: bytes) -> None:
    n_lines = source.count(b"\n") + (not source.endswith(b"\n") and source != b"")
    target = translated(trained, source)
    assert target.count(b"\n") == n_lines
    assert target.endswith(b"\n") or n_lines == 0
    assert len(target.decode("utf-8").splitlines()) == n_lines


@settings(max_examples=8)
@given(lines=st.lists(st.binary(max_size=12) | st.text(max_size=12).map(lambda s: s.encode("utf-8", "surrogatepass"))))
def test_arbitrary_bytes_are_one_line_out_for_each_line_in(trained: Trained, lines: list[bytes]) -> None:
    source = b"\n".join([b" " * N_FIRST_BYTES, *lines])  # the first bytes might be those of another kind of file
    target = translated(trained, source, "--beam", "1", "--max-extra-tokens", "9")
    assert target.count(b"\n") == source.count(b"\n") + (source[-1:] not in (b"", b"\n"))
    assert len(target.decode("utf-8").splitlines()) == target.count(b"\n")


def test_very_long_lines_are_cut_and_invalid_utf8_is_replaced_with_a_warning_each(
    trained: Trained, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitransformer.inference.translator.MAX_SOURCE_TOKENS", 20)
    target = translated(trained, b"two " * 30 + b"\n" + b"x" * 100 + b"\none\ntwo \xff\n", "--beam", "1")
    cut = [f"warning: line {line} has over 20 tokens; the rest is cut off" for line in (1, 2)]
    assert logged[:3] == ["warning: line 4 is not UTF-8 (invalid start byte); read with replacements", *cut]
    assert target.count(b"\n") == 4
    assert target.split(b"\n")[2] + b"\n" == translated(trained, b"one\n", "--beam", "1")


def test_line_ends_blanks_around_lines_a_byte_order_mark_and_empty_lines_change_no_other(trained: Trained) -> None:
    expected = translated(trained, b"one two\nsix\n")
    for source in (b"one two\r\nsix\r\n", b"one two\nsix", b"  one two \n\tsix\n", b"\xef\xbb\xbfone two\nsix\n"):
        assert translated(trained, source) == expected, source
    first, last, _ = expected.split(b"\n")
    assert translated(trained, b"\none two\n \n\nsix\n").split(b"\n") == [b"", first, b"", b"", last, b""]


def test_translations_by_references_are_those_of_the_kernels(trained: Trained, kernels_run: list[object]) -> None:
    by_references = translated(trained, b"one two\nsix\n", "--kernels", "reference")
    assert kernels_run == []
    assert translated(trained, b"one two\nsix\n") == by_references
    assert kernels_run


def test_n_best_numbers_the_lines_and_orders_by_score(trained: Trained) -> None:
    target = translated(trained, b"one two\n\nsix\n", "--beam", "4", "--n-best", "3").decode()
    rows = [line.split("\t") for line in target.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "3", "3", "3"]
    assert all(len(row) == 4 for row in rows)
    for number in ("1", "3"):
        scores = [float(row[1]) for row in rows if row[0] == number]
        assert scores == sorted(scores, reverse=True)
        assert all(float(row[2]) <= float(row[1]) < 0 for row in rows if row[0] == number)
    assert rows[3] == ["2", "0.0000", "0.0000", ""]
    best = translated(trained, b"one two\nsix\n", "--beam", "4").decode().splitlines()
    assert [rows[0][3], rows[4][3]] == best


NOTE = "out.progress.json"
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["lines", "alignments", "memory"])
def test_a_translation_cut_off_before_any_operation_on_files_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Each time something torn is left in all outputs, and its continuation is cut off, too, before another one."""
    source, folder = tmp_path / "in", tmp_path / "folder"
    output, alignments = folder / ("out.tmx" if kind == "memory" else "out"), folder / "aligned"
    source.write_bytes(lines_of(8))
    translation = Uppercase(None, alignments if kind == "alignments" else None)
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


def test_a_process_killed_at_drawn_moments_is_taken_up_by_the_same_command(trained: Trained, tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(lines_of(60))
    whole = translated(trained, source.read_bytes(), "--beam", "1")
    words = ["--run", str(trained.run), "--beam", "1", "--input", str(source), "--output", str(output), "--resume"]
    code = "import sys, cli.translate; cli.translate.LINES_AT_ONCE = 4; sys.exit(cli.translate.main())"
    command, draw = [sys.executable, "-c", code, *words], random.Random(7)
    for part in (0.1, 0.6):
        size = round(len(whole) * (part + draw.random() / 10))
        with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE) as process:
            while process.poll() is None and (not output.exists() or output.stat().st_size < size):
                time.sleep(0.001)
            process.kill()
        assert process.returncode == -signal.SIGKILL
        note = json.loads(progress_file(output).read_text())
        assert output.read_bytes()[: note["n_bytes"]].count(b"\n") == note["n_lines"] > 0
    assert translate(words, None, None) == 0  # type: ignore[arg-type]
    assert output.read_bytes() == whole
    assert sorted(contents(tmp_path)) == ["in", *FILES]


def test_an_interrupt_says_how_to_go_on(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    (tmp_path / "in").write_bytes(lines_of(12))

    def interrupted(self: LineTranslator, lines: list[bytes], n_before: int, advance: object) -> list[bytes]:
        if n_before == 4:
            raise KeyboardInterrupt
        return [b"x\n" * len(lines)]

    monkeypatch.setattr(LineTranslator, "__call__", interrupted)
    translation = LineTranslator(translator, SearchConfig())
    with pytest.raises(KeyboardInterrupt):
        translate_file(translation, tmp_path / "in", tmp_path / "out", resume=False, lines_at_once=4)
    assert logged == ["interrupted after line 4; to continue from there, set resume and start it again"]


def noting(**changes: object) -> Callable[[bytes], bytes]:
    return lambda note: json.dumps(json.loads(note) | changes).encode()


@pytest.mark.parametrize("state", ["half_done", "done"])
@pytest.mark.parametrize(
    ("name", "change", "options", "message"),
    [
        ("out", bytes, {"beam": 3}, "out: was begun with another beam; choose another output, or remove this"),
        ("out", bytes, {"n_best": 2}, "out: was begun with another n_best"),
        ("in", lambda text: text.replace(b"one", b"two", 1), {}, "in has changed since (8|12) of its lines were"),
        ("in", lambda text: b"one\n", {}, "in has changed since"),
        ("out", lambda text: b"x" + text[1:], {}, r"its first \d+ bytes have changed since they were written"),
        ("out", lambda text: text[1:], {}, r"its first \d+ bytes have changed since they were written"),
        (NOTE, noting(n_lines=-1), {}, "has changed since -1 of its lines were translated"),
        (NOTE, noting(n_lines=2**64), {}, "has changed since 18,446,744,073,709,551,616 of its lines were"),
        (NOTE, noting(n_bytes=-1), {}, "its first -1 bytes have changed since they were written"),
        (NOTE, noting(n_lines="8"), {}, r"progress\.json: n_lines must be .*; got '8'; it is corrupt or of .*: remove"),
    ],
)
def test_another_search_and_files_that_changed_are_noticed_and_left_alone(
    translator: Translator,
    request: pytest.FixtureRequest,
    state: str,
    name: str,
    change: Callable[[bytes], bytes],
    options: dict[str, int],
    message: str,
) -> None:
    folder: Path = request.getfixturevalue(state)
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    before = contents(folder)
    with pytest.raises((ResumeError, CorruptFileError), match=message):
        run(translator, folder, resume=True, **options)  # type: ignore[arg-type]
    assert contents(folder) == before


def test_a_half_done_output_is_left_alone_without_resume_by_another_model_and_by_another_process(
    trained: Trained, translator: Translator, half_done: Path
) -> None:
    before = contents(half_done)
    with pytest.raises(ResumeError, match="an interrupted translation; set resume to continue it, or remove"):
        run(translator, half_done, resume=False)
    with open_output(half_done / "out"), pytest.raises(ResumeError, match="another process is writing it"):
        run(translator, half_done, resume=True)
    other = Translator.load(trained.run)
    assert other.fingerprint() == translator.fingerprint()
    other.model.parameters.values[0] += 1e-3
    with pytest.raises(ResumeError, match="out: was begun with another model"):
        run(other, half_done, resume=True)
    assert contents(half_done) == before


def test_an_unknown_file_is_not_taken_for_an_output(translator: Translator, tmp_path: Path) -> None:
    """Also of as many lines."""
    for name in ("in", "out"):
        (tmp_path / name).write_bytes(lines_of(5))
    with pytest.raises(ResumeError, match=r"out: exists, but .*out\.progress\.json, .*; remove the output, or choose"):
        run(translator, tmp_path, resume=True)
    assert (tmp_path / "out").read_bytes() == lines_of(5)
