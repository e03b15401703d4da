"""Translating a file into a file: what is read, written and left alone."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from small_run import Trained, translated
from translated_files import FILES, Uppercase, lines_of, run, uppercase

from cli.translate import translate
from minitransformer.data.survey import CorpusError
from minitransformer.extras.files.output_file import ResumeError
from minitransformer.extras.files.resumable import translate_file
from minitransformer.inference.translator import Translator


def test_lines_appended_to_the_input_are_translated(translator: Translator, half_done: Path) -> None:
    with (half_done / "in").open("ab") as source:
        source.write(b"three\n")
    assert run(translator, half_done, resume=True) == run(translator, half_done, resume=False, name="straight")


@pytest.mark.parametrize("n_best", [None, 2])
def test_a_complete_output_is_left_alone(tmp_path: Path, n_best: int | None, logged: list[str]) -> None:
    (tmp_path / "in").write_bytes(lines_of(5))
    uppercase(tmp_path, resume=False, n_best=n_best)
    for name in FILES:
        os.utime(tmp_path / name, (1, 1))
    translate_file(Uppercase(n_best), tmp_path / "in", tmp_path / "out", resume=True, lines_at_once=4)
    assert [(tmp_path / name).stat().st_mtime for name in FILES] == [1, 1]
    assert logged == [f"{tmp_path / 'out'}: complete; nothing is left to do"]


def test_a_complete_output_is_begun_anew_without_resume_and_when_it_was_removed(
    translator: Translator, done: Path
) -> None:
    whole = run(translator, done, resume=False, beam=3)
    (done / "out").unlink()
    assert run(translator, done, resume=True, beam=3) == whole


def test_compressed_input_is_read(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(lines_of(5)))
    words = ["--run", str(trained.run), "--beam", "2", "--input", str(tmp_path / "in.gz")]
    assert translate([*words, "--output", str(tmp_path / "out")], None, None) == 0  # type: ignore[arg-type]
    assert (tmp_path / "out").read_bytes() == translated(trained, lines_of(5))
    assert translated(trained, b"", "--input", str(tmp_path / "in.gz")) == translated(trained, lines_of(5))


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
