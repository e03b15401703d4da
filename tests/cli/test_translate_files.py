"""Translating a file into a file, cut off and taken up again: nothing is lost, repeated or mixed."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_run import NUMBERS, Trained, contents, translated

from cli.translate import translate
from minitransformer.config import ConfigError
from minitransformer.data.survey import CorpusError
from minitransformer.inference import resumable
from minitransformer.inference.beam import SearchConfig
from minitransformer.inference.resumable import ResumeError, progress_file, translate_file
from minitransformer.inference.stream import LineTranslator
from minitransformer.inference.translator import Translator
from minitransformer.system.files import DamagedError

ROOT = Path(__file__).parents[2]
FILES = ["out", "out.progress.json"]
ODD = [b"", b" ", b"one \xff", b"\xef\xbb\xbfone", "two\u2028three".encode(), b"six\r", b"\0"]


def lines_of(n: int, seed: int = 3) -> bytes:
    draw = random.Random(seed)
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
    """What is written for a line, without searching for it."""

    def __init__(self, n_best: int | None) -> None:
        object.__setattr__(self, "n_best", n_best)

    def __call__(self, lines: Sequence[bytes], n_before: int) -> bytes:
        if self.n_best is None:
            return b"".join(line.upper() + b"\n" for line in lines)
        return b"".join(f"{n}\t{line!r}\n".encode() * self.n_best for n, line in enumerate(lines, n_before + 1))

    def facts(self) -> dict[str, Any]:
        return {"n_best": self.n_best}


def uppercase(folder: Path, *, resume: bool, n_best: int | None = None, name: str = "out") -> bytes:
    translate_file(Uppercase(n_best), folder / "in", folder / name, resume=resume, lines_at_once=4)
    return (folder / name).read_bytes()


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> FileOperations:
    operations = FileOperations()
    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "write_text")):
        monkeypatch.setattr(owner, name, operations.counted(getattr(owner, name)))
    return operations


@pytest.fixture(scope="module")
def translator(trained: Trained) -> Translator:
    return Translator.load(trained.run)


def run(
    translator: Translator, folder: Path, *, resume: bool, n_best: int | None = None, beam: int = 2, name: str = "out"
) -> bytes:
    search = SearchConfig(beam=beam, n_best=n_best or 1)
    translation = LineTranslator(translator, search, n_best, n_threads=1)
    translate_file(translation, folder / "in", folder / name, resume=resume, lines_at_once=4)
    return (folder / name).read_bytes()


@pytest.mark.parametrize("n_best", [None, 2])
def test_a_translation_cut_off_before_any_operation_on_files_loses_and_repeats_nothing(
    tmp_path: Path, counting: FileOperations, n_best: int | None
) -> None:
    (tmp_path / "in").write_bytes(lines_of(8))
    whole = uppercase(tmp_path, resume=False, n_best=n_best, name="whole")
    n_operations, cut = counting.n, 0
    for cut in range(1, n_operations + 1):
        counting.n, counting.last = 0, cut
        with pytest.raises(PowerCutError):
            uppercase(tmp_path, resume=True, n_best=n_best)
        counting.last = None
        assert whole.startswith((tmp_path / "out").read_bytes())
        assert uppercase(tmp_path, resume=True, n_best=n_best) == whole
        assert sorted(contents(tmp_path)) == ["in", *FILES, "whole", "whole.progress.json"]
        (tmp_path / "out").unlink()
    assert cut > 20


@settings(max_examples=25)
@given(cuts=st.lists(st.tuples(st.integers(1, 30), st.binary(max_size=20)), min_size=1, max_size=6))
def test_a_translation_cut_off_again_and_again_and_torn_within_a_write_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[tuple[int, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    (folder / "in").write_bytes(lines_of(12))
    for cut, torn in cuts:
        operations = FileOperations(cut)
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
                patch.setattr(owner, name, operations.counted(getattr(owner, name)))
            try:
                uppercase(folder, resume=True)
            except PowerCutError:
                if (note := progress_file(folder / "out")).exists() and not json.loads(note.read_text())["done"]:
                    with (folder / "out").open("ab") as output:
                        output.write(torn)
    assert uppercase(folder, resume=True) == uppercase(folder, resume=False, name="straight")


def test_what_the_note_says_is_on_the_disk_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut loses what was written and not synced."""
    (tmp_path / "in").write_bytes(lines_of(8))
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


def test_notes_that_were_being_written_when_processes_died_are_removed(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(lines_of(8))
    (tmp_path / ".out.progress.json.123.tmp").write_text("{")
    uppercase(tmp_path, resume=True)
    assert sorted(contents(tmp_path)) == ["in", *FILES]


def killed_at(size: int, words: list[str], output: Path) -> bool:
    """Start the command, kill it as soon as its output has so many bytes; whether it was still running."""
    code = "import sys, cli.translate; cli.translate.LINES_AT_ONCE = 4; sys.exit(cli.translate.main())"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code, *words], env=environment, stderr=subprocess.PIPE) as process:
        while process.poll() is None and (not output.exists() or output.stat().st_size < size):
            os.sched_yield()
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return process.returncode == -signal.SIGKILL


def test_a_process_that_is_killed_at_drawn_moments_is_taken_up_by_the_same_command(
    trained: Trained, tmp_path: Path
) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(lines_of(300))
    whole = translated(trained, source.read_bytes(), "--beam", "1")
    words = ["--run", str(trained.run), "--beam", "1", "--input", str(source), "--output", str(output), "--resume"]
    draw = random.Random(7)
    for part in (0.1, 0.4, 0.8):
        assert killed_at(round(len(whole) * (part + draw.random() / 10)), words, output)
        note = json.loads(progress_file(output).read_text())
        assert output.read_bytes()[: note["n_bytes"]].count(b"\n") == note["n_lines"] > 0
    assert translate(words, None, None) == 0  # type: ignore[arg-type]
    assert output.read_bytes() == whole
    assert sorted(contents(tmp_path)) == ["in", *FILES]


@pytest.fixture
def half_done(translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the second of several groups was being translated when the process died."""
    (tmp_path / "in").write_bytes(lines_of(12))
    append = resumable._Run.append

    def cut_off(self: Any, lines: list[bytes], translations: bytes) -> None:
        if self.n_lines == 8:
            raise PowerCutError
        append(self, lines, translations)

    with monkeypatch.context() as patch:
        patch.setattr(resumable._Run, "append", cut_off)
        with pytest.raises(PowerCutError):
            run(translator, tmp_path, resume=False)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "named"), [({"beam": 3}, "beam"), ({"n_best": 2}, "n_best, n_best"), ({"beam": 1, "n_best": 1}, "beam")]
)
def test_another_search_is_not_mixed_into_the_output(
    translator: Translator, half_done: Path, options: dict[str, int], named: str
) -> None:
    before = contents(half_done)
    with pytest.raises(
        ResumeError, match=f"out: was begun with another {named.split(',', maxsplit=1)[0]}.*choose another output"
    ):
        run(translator, half_done, resume=True, **options)  # type: ignore[arg-type]
    assert contents(half_done) == before


def test_another_model_is_not_mixed_into_the_output(trained: Trained, translator: Translator, half_done: Path) -> None:
    other = Translator.load(trained.run)
    assert other.fingerprint() == translator.fingerprint()
    other.model.parameters.values[0] += 1e-3
    with pytest.raises(ResumeError, match="out: was begun with another model"):
        run(other, half_done, resume=True)


@pytest.mark.parametrize("change", [(b"one", b"two"), (b"\n", b"")], ids=["a word", "a line"])
def test_an_input_that_changed_where_it_was_translated_is_noticed(
    translator: Translator, half_done: Path, change: tuple[bytes, bytes]
) -> None:
    source = half_done / "in"
    source.write_bytes(source.read_bytes().replace(*change, 1))
    with pytest.raises(ResumeError, match="in has changed since 8 of its lines were translated"):
        run(translator, half_done, resume=True)


def test_an_input_that_became_shorter_is_noticed(translator: Translator, half_done: Path) -> None:
    (half_done / "in").write_bytes(b"one\n")
    with pytest.raises(ResumeError, match="has changed since"):
        run(translator, half_done, resume=True)


def test_lines_appended_to_the_input_are_translated(translator: Translator, half_done: Path) -> None:
    with (half_done / "in").open("ab") as source:
        source.write(b"three\n")
    assert run(translator, half_done, resume=True) == run(translator, half_done, resume=False, name="straight")


@pytest.mark.parametrize("damage", [b"x", b""], ids=["another byte", "shorter"])
def test_an_output_that_was_changed_is_noticed(translator: Translator, half_done: Path, damage: bytes) -> None:
    text = (half_done / "out").read_bytes()
    (half_done / "out").write_bytes(damage + text[1:])
    with pytest.raises(ResumeError, match=f"its first {len(text)} bytes have changed since they were written"):
        run(translator, half_done, resume=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_lines": -1}, "has changed since -1 of its lines were translated"),
        ({"n_lines": 2**64}, "has changed since 18,446,744,073,709,551,616 of its lines were translated"),
        ({"n_bytes": -1}, "its first -1 bytes have changed since they were written"),
        (
            {"n_lines": "8"},
            r"progress\.json: is damaged, or of another kind: expected an object with n_lines \(int\), ",
        ),
        ({"n_lines": True}, "expected an object with"),
        ({"made_with": None}, r"output \(str\), made_with \(dict\), done \(bool\); remove it"),
        ({"more": 1}, "expected an object with"),
    ],
)
def test_a_note_that_is_damaged_is_refused_and_changes_nothing(
    translator: Translator, half_done: Path, changes: dict[str, Any], message: str
) -> None:
    note = progress_file(half_done / "out")
    note.write_text(json.dumps(json.loads(note.read_text()) | changes))
    before = contents(half_done)
    with pytest.raises((ResumeError, DamagedError), match=message):
        run(translator, half_done, resume=True)
    assert contents(half_done) == before


def test_an_interrupted_output_is_not_overwritten_by_mistake(translator: Translator, half_done: Path) -> None:
    before = contents(half_done)
    with pytest.raises(ResumeError, match="an interrupted translation; set resume to continue it, or remove"):
        run(translator, half_done, resume=False)
    assert contents(half_done) == before


@pytest.fixture
def done(translator: Translator, tmp_path: Path) -> Path:
    """A folder with a finished translation."""
    (tmp_path / "in").write_bytes(lines_of(5))
    run(translator, tmp_path, resume=False)
    return tmp_path


@pytest.mark.parametrize("n_best", [None, 2])
def test_a_complete_output_is_left_alone(tmp_path: Path, n_best: int | None, logged: list[str]) -> None:
    (tmp_path / "in").write_bytes(lines_of(5))
    uppercase(tmp_path, resume=False, n_best=n_best)
    before = [(tmp_path / name).stat().st_mtime_ns for name in FILES]
    time.sleep(0.05)  # longer than the clock of file systems takes for a step
    files = tmp_path / "in", tmp_path / "out"
    translate_file(Uppercase(n_best), *files, resume=True, lines_at_once=4)
    assert [(tmp_path / name).stat().st_mtime_ns for name in FILES] == before
    assert logged == [f"{tmp_path / 'out'}: complete; nothing is left to do"]


def test_a_complete_output_of_another_search_is_not_taken_for_ones_own(translator: Translator, done: Path) -> None:
    before = contents(done)
    with pytest.raises(ResumeError, match="out: was begun with another beam; choose another output, or remove this"):
        run(translator, done, resume=True, beam=3)
    assert contents(done) == before


def test_a_complete_output_of_another_input_is_not_taken_for_ones_own(translator: Translator, done: Path) -> None:
    (done / "in").write_bytes(lines_of(5, seed=4))
    with pytest.raises(ResumeError, match="in has changed since 12 of its lines were translated"):
        run(translator, done, resume=True)


@pytest.mark.parametrize("change", [lambda text: text + b"more\n", lambda text: b"x" + text[1:]])
def test_a_complete_output_that_was_changed_is_noticed_and_left_alone(
    translator: Translator, done: Path, change: Callable[[bytes], bytes]
) -> None:
    (done / "out").write_bytes(changed := change((done / "out").read_bytes()))
    with pytest.raises(ResumeError, match="something was appended to|have changed since they were written"):
        run(translator, done, resume=True)
    assert (done / "out").read_bytes() == changed


def test_lines_appended_to_the_input_of_a_complete_output_are_translated(tmp_path: Path) -> None:
    """Also when the process dies between output and note."""
    (tmp_path / "in").write_bytes(lines_of(5))
    uppercase(tmp_path, resume=False)
    with (tmp_path / "in").open("ab") as source:
        source.write(b"three\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resumable._Run, "_note", FileOperations(2).counted(resumable._Run._note))
        with pytest.raises(PowerCutError):
            uppercase(tmp_path, resume=True)
    assert uppercase(tmp_path, resume=True) == uppercase(tmp_path, resume=False, name="straight")


def test_a_complete_output_is_begun_anew_without_resume_and_when_it_was_removed(
    translator: Translator, done: Path
) -> None:
    whole = run(translator, done, resume=False, beam=3)
    (done / "out").unlink()
    assert run(translator, done, resume=True, beam=3) == whole


@pytest.mark.parametrize("text", [b"my diary\n", lines_of(5)], ids=["fewer lines", "as many lines"])
def test_a_file_that_is_not_known_is_not_taken_for_an_output(
    translator: Translator, tmp_path: Path, text: bytes
) -> None:
    (tmp_path / "in").write_bytes(lines_of(5))
    (tmp_path / "out").write_bytes(text)
    with pytest.raises(ResumeError, match=r"out: exists, but .*out\.progress\.json, .*; remove the output, or choose"):
        run(translator, tmp_path, resume=True)
    assert (tmp_path / "out").read_bytes() == text


def test_two_processes_do_not_write_one_output(translator: Translator, half_done: Path) -> None:
    with resumable._opened(half_done / "out"), pytest.raises(ResumeError, match="another process is writing it"):
        run(translator, half_done, resume=True)


def test_a_full_disk_is_one_line_and_the_work_can_be_taken_up(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").write_bytes(lines_of(12))
    whole = run(translator, tmp_path, resume=False, name="whole")
    operations = FileOperations(9, OSError(errno.ENOSPC, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", operations.counted(os.fsync))
        with pytest.raises(Exception, match=r"cannot be written .*No space left") as caught:
            run(translator, tmp_path, resume=False)
    assert "\n" not in str(caught.value)
    assert run(translator, tmp_path, resume=True) == whole


def test_an_interrupt_says_how_to_go_on(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    (tmp_path / "in").write_bytes(lines_of(12))

    def interrupted(self: LineTranslator, lines: list[bytes], n_before: int) -> bytes:
        if n_before == 4:
            raise KeyboardInterrupt
        return b"x\n" * len(lines)

    monkeypatch.setattr(LineTranslator, "__call__", interrupted)
    translation = LineTranslator(translator, SearchConfig())
    with pytest.raises(KeyboardInterrupt):
        translate_file(translation, tmp_path / "in", tmp_path / "out", resume=False, lines_at_once=4)
    assert logged == ["interrupted after line 4; to continue from there, start it again with resume set"]


def test_compressed_input_is_read(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(lines_of(5)))
    words = ["--run", str(trained.run), "--beam", "2", "--input", str(tmp_path / "in.gz")]
    assert translate([*words, "--output", str(tmp_path / "out")], None, None) == 0  # type: ignore[arg-type]
    assert (tmp_path / "out").read_bytes() == translated(trained, lines_of(5))
    assert translated(trained, b"", "--input", str(tmp_path / "in.gz")) == translated(trained, lines_of(5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "out"], "--output: needs --input"),
        (["--input", "in", "--resume"], "--resume: needs"),
        (
            ["--input", "in", "--output", "out.gz"],
            "--output out.gz: the output is plain text; choose a name without .gz",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(trained: Trained, options: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated(trained, b"", *options)


def test_a_missing_input_leaves_the_output_alone(translator: Translator, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"precious\n")
    with pytest.raises(CorpusError, match="in: cannot be read: .*No such file.*; the input must be"):
        run(translator, tmp_path, resume=False)
    assert (tmp_path / "out").read_bytes() == b"precious\n"


def test_the_input_is_never_its_own_output(translator: Translator, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one\n")
    with pytest.raises(ResumeError, match="in: is the input, too"):
        run(translator, tmp_path, resume=False, name="in")
    assert (tmp_path / "in").read_bytes() == b"one\n"
