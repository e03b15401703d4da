"""Translating a file, cut off and taken up again: nothing is lost or repeated."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_run import Trained, contents, translated
from translated_files import FILES, FileOperations, PowerCutError, lines_of, run, uppercase

from cli.translate import translate
from minitransformer.extras.files import resumable
from minitransformer.extras.files.resumable import progress_file, translate_file
from minitransformer.extras.files.stream import LineTranslator
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator

ROOT = Path(__file__).parents[2]


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> FileOperations:
    operations = FileOperations()
    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "write_text")):
        monkeypatch.setattr(owner, name, operations.counted(getattr(owner, name)))
    return operations


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


def killed_at(size: int, words: list[str], output: Path) -> bool:
    """Start the command, kill it as soon as its output has so many bytes; whether it was still running."""
    code = "import sys, cli.translate; cli.translate.LINES_AT_ONCE = 4; sys.exit(cli.translate.main())"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code, *words], env=environment, stderr=subprocess.PIPE) as process:
        while process.poll() is None and (not output.exists() or output.stat().st_size < size):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return process.returncode == -signal.SIGKILL


def test_a_process_killed_at_drawn_moments_is_taken_up_by_the_same_command(trained: Trained, tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(lines_of(120))
    whole = translated(trained, source.read_bytes(), "--beam", "1")
    words = ["--run", str(trained.run), "--beam", "1", "--input", str(source), "--output", str(output), "--resume"]
    draw = random.Random(7)
    for part in (0.1, 0.6):
        assert killed_at(round(len(whole) * (part + draw.random() / 10)), words, output)
        note = json.loads(progress_file(output).read_text())
        assert output.read_bytes()[: note["n_bytes"]].count(b"\n") == note["n_lines"] > 0
    assert translate(words, None, None) == 0  # type: ignore[arg-type]
    assert output.read_bytes() == whole
    assert sorted(contents(tmp_path)) == ["in", *FILES]


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


def test_a_full_disk_can_be_resumed(translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").write_bytes(lines_of(12))
    whole = run(translator, tmp_path, resume=False, name="whole")
    operations = FileOperations(9, OSError(errno.ENOSPC, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", operations.counted(os.fsync))
        with pytest.raises(Exception, match=r"/out: cannot be written .*No space left") as caught:
            run(translator, tmp_path, resume=False)
    assert "\n" not in str(caught.value)
    assert run(translator, tmp_path, resume=True) == whole


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
