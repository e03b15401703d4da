"""The options of translate that change the search: beginnings, ensembles, samples, alignments."""

import dataclasses
import errno
import io
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from small_run import Trained, output_of, translated, written
from translated_files import FileOperations, Uppercase, lines_of

from cli.serve import ServeOptions
from cli.train import train
from cli.translate import TranslateOptions, translate
from minitransformer.config import ConfigError
from minitransformer.extras.files.output_file import ResumeError
from minitransformer.extras.files.resumable import translate_file
from minitransformer.extras.files.stream import PrefixError
from minitransformer.inference.beam import SearchConfig

SOURCE = b"one two\n\nsix five four\nthree\n"


@pytest.fixture(scope="module")
def other_seed(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the same text with another seed; the tokenizer is the same."""
    run = tmp_path_factory.mktemp("other") / "run"
    words = [*trained.arguments, "--run", str(run), "--training.seed", "2"]
    output_of(lambda: train(words))
    return run


def test_the_options_of_lengths_are_those_of_the_search() -> None:
    for options in (TranslateOptions, ServeOptions):
        search = options(max_length_factor=1.5, max_extra_tokens=7).search
        assert (search.max_length_factor, search.max_extra_tokens) == (1.5, 7)
        assert dataclasses.asdict(options().search) == dataclasses.asdict(SearchConfig())
    search = TranslateOptions(alpha=2.0, normalisation="length").search
    assert (search.alpha, search.normalisation) == (2.0, "length")


def test_translations_begin_as_the_file_says(trained: Trained, tmp_path: Path) -> None:
    prefixes = written(tmp_path / "pre", "sechs ei\nx\n\nvi")
    lines = translated(trained, SOURCE, "--prefix", prefixes).decode().splitlines()
    free = translated(trained, SOURCE).decode().splitlines()
    assert lines[0].startswith("sechs ei")
    assert lines[1:3] == ["", free[2]]
    assert lines[3].startswith("vi")
    lines = translated(trained, SOURCE, "--prefix-text", "drei").decode().splitlines()
    assert [line[:4] for line in lines] == ["drei", "", "drei", "drei"]


def test_a_blank_at_the_end_of_a_line_says_that_the_word_is_complete(trained: Trained, tmp_path: Path) -> None:
    """Of files with line ends of any kind; "s" would be continued."""
    for blank, is_complete in ((" ", True), (" \r", True), ("", False), ("\r", False)):
        prefixes = written(tmp_path / "pre", f"s{blank}\n" * 4)
        first = translated(trained, SOURCE, "--prefix", prefixes).decode().split()[0]
        assert (first == "s") == is_complete


@pytest.mark.parametrize(("n_given", "message"), [(3, "has 3 lines, fewer than the input"), (5, "has 5 .* more than")])
def test_beginnings_of_other_length_are_refused(trained: Trained, tmp_path: Path, n_given: int, message: str) -> None:
    """Of a file before anything is written; of a pipe as soon as it is known."""
    prefixes, source = written(tmp_path / "pre", "x\n" * n_given), tmp_path / "in"
    source.write_bytes(SOURCE)
    files = ["--input", str(source), "--output", str(tmp_path / "out")]
    with pytest.raises(PrefixError, match=message):
        translated(trained, b"", *files, "--prefix", prefixes)
    assert not (tmp_path / "out").exists()
    with pytest.raises(PrefixError, match=message):
        translated(trained, SOURCE, "--prefix", prefixes)


def test_an_input_from_a_pipe_is_read_once_also_with_a_file_of_beginnings(trained: Trained, tmp_path: Path) -> None:
    expected = translated(trained, SOURCE, "--prefix", written(tmp_path / "pre", "x\n" * 4))
    for n_given in (4, 5):
        prefixes, (end, start) = written(tmp_path / "pre", "x\n" * n_given), os.pipe()
        os.write(start, SOURCE)
        os.close(start)
        with os.fdopen(end, "rb"):
            files = ["--input", f"/dev/fd/{end}", "--output", str(tmp_path / "out"), "--prefix", prefixes]
            refused = pytest.raises(PrefixError, match="has 5 lines, more than the input")
            with nullcontext() if n_given == 4 else refused:
                translated(trained, b"", *files)
        assert (tmp_path / "out").read_bytes() == expected


def test_beginnings_that_are_too_long_are_cut_with_a_warning(
    trained: Trained, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitransformer.inference.translator.MAX_SOURCE_TOKENS", 20)
    assert translated(trained, b"one\n", "--prefix-text", "eins " * 30, "--beam", "1").count(b"\n") == 1
    beginning = "warning: the beginning of the translation of line 1 has over 20 tokens; the rest is cut off"
    assert logged[:1] == [beginning]


def test_samples_are_the_same_for_one_seed_in_any_groups(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--sample", "--n-best", "3", "--temperature", "2", "--seed", "5"]
    drawn = translated(trained, SOURCE, *options)
    rows = [line.split("\t") for line in drawn.decode().splitlines()]
    assert [row[0] for row in rows] == [*"111", "2", *"333", *"444"]
    assert len({row[3] for row in rows if row[0] == "3"}) > 1
    assert translated(trained, SOURCE, *options[:-1], "6") != drawn
    monkeypatch.setattr("cli.translate.LINES_AT_ONCE", 1)
    again = [line.split("\t") for line in translated(trained, SOURCE, *options).decode().splitlines()]
    assert [row[3] for row in again] == [row[3] for row in rows]


def test_without_n_best_there_is_one_sample_for_each_line(trained: Trained) -> None:
    one = translated(trained, SOURCE, "--sample", "--top-p", "0.9").decode().splitlines()
    three = translated(trained, SOURCE, "--sample", "--top-p", "0.9", "--n-best", "3").decode().splitlines()
    assert one == [three[i].split("\t")[3] for i in (0, 3, 4, 7)]


def test_runs_are_an_ensemble(trained: Trained, other_seed: Path) -> None:
    options = ["--n-best", "1", "--run"]  # ``translated`` gives the first one
    both, twice = (translated(trained, SOURCE, *options, str(run)) for run in (other_seed, trained.run))
    one = translated(trained, SOURCE, "--n-best", "1")
    scores = [[float(line.split("\t")[1]) for line in output.decode().splitlines()] for output in (both, twice, one)]
    assert scores[1] == pytest.approx(scores[2], abs=2e-4)
    assert scores[0] != pytest.approx(scores[2], abs=1e-2)


def test_alignments_have_a_line_for_each_line_of_the_output(trained: Trained, tmp_path: Path) -> None:
    path = tmp_path / "al"
    lines = translated(trained, SOURCE, "--alignments", str(path)).decode().splitlines()
    for source, target, links in zip(SOURCE.decode().splitlines(), lines, path.read_text().splitlines(), strict=True):
        pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
        assert [t for _, t in pairs] == list(range(len(target.split())))
        assert all(s < len(source.split()) for s, _ in pairs)
    ranked = translated(trained, SOURCE, "--alignments", str(path), "--n-best", "2").decode().splitlines()
    assert len(path.read_text().splitlines()) == len(ranked) == 7
    with pytest.raises(ConfigError, match="--alignments absent/al: cannot be written .No such file"):
        translated(trained, SOURCE, "--alignments", "absent/al")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prefix", "x", "--prefix-text", "y"], "--prefix, --prefix-text: give one of them"),
        (["--temperature", "2"], "--temperature: needs --sample"),
        (["--seed", "0"], "--seed: needs --sample"),
        (["--sample", "--top-p", "0"], "sampling.top_p: expected"),
        (["--alignments", "x", "--prefix", "x"], "x: is the file of prefixes, too"),
        (["--input", "x", "--alignments", "./x"], "--alignments x: is the input, too"),
        (["--output", "out"], "--output: needs --input"),
        (["--input", "in", "--resume"], "--resume: needs"),
        (["--input", "in", "--output", "out.gz"], "out.gz: the output is plain text; choose a name without .gz"),
        (["--n-best", "5"], "^--n-best 5 needs a beam of at least 5: give --beam 5$"),
        (["--beam", "0"], "search: expected 1,000 ≥ beam"),
        (["--sample", "--n-best", "0"], "search: expected 1,000 ≥ beam ≥ n_best ≥ 1; got beam 1, n_best 0"),
        (["--sample", "--temperature", "-1"], "sampling.temperature"),
        (["--alpha", "-1"], "alpha"),
        (["--threads", "-1"], "--threads must be at least 1"),
        (["--input", "a", "--output", "o.tmx", "--n-best", "1"], "--n-best: is for text, not for o.tmx, a translation"),
        *(
            (["--input", "a.po", "--output", "o.po", name, "1"], f"{name}: is for text, not for a.po, a document;")
            for name in ("--n-best", "--prefix", "--prefix-text", "--alignments")
        ),
    ],
)
def test_a_wrong_search_and_other_wrong_options_are_refused_before_models_are_loaded(
    tmp_path: Path, options: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        translate(["--run", str(tmp_path / "absent"), *options], io.BytesIO(), io.BytesIO())


def resumed(trained: Trained, folder: Path, *options: str) -> tuple[bytes, bytes]:
    files = ["--input", str(folder / "in"), "--output", str(folder / "out"), "--alignments", str(folder / "al")]
    words = ["--run", str(trained.run), "--beam", "2", *files, "--resume", *options]
    assert translate(words, io.BytesIO(), io.BytesIO()) == 0
    return (folder / "out").read_bytes(), (folder / "al").read_bytes()


def test_files_are_taken_up_with_all_options_and_no_others(trained: Trained, other_seed: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(SOURCE)
    prefixes = Path(written(tmp_path / "pre", "x\n" * 4))
    options = ["--run", str(other_seed), "--sample", "--seed", "3", "--prefix", str(prefixes)]
    whole = resumed(trained, tmp_path, *options)
    assert resumed(trained, tmp_path, *options) == whole
    for changed, name in ((["--seed", "4"], "sampling"), (["--run", str(other_seed)], "model")):
        with pytest.raises(ResumeError, match=f"out: was begun with another {name};"):
            resumed(trained, tmp_path, *options, *changed)
    prefixes.write_text("y\n" * 4)
    with pytest.raises(ResumeError, match="out: was begun with another prefix;"):
        resumed(trained, tmp_path, *options)


def test_an_input_that_grows_is_continued_with_its_file_of_beginnings(trained: Trained, tmp_path: Path) -> None:
    source, prefixes = tmp_path / "in", tmp_path / "pre"
    for n_lines in (2, 4):
        source.write_bytes(b"".join(SOURCE.splitlines(keepends=True)[:n_lines]))
        prefixes.write_text("x\n" * n_lines)
        target, _ = resumed(trained, tmp_path, "--prefix", str(prefixes))
    assert target == translated(trained, SOURCE, "--prefix", str(prefixes))


def uppercase(folder: Path, name: str = "out") -> tuple[bytes, bytes]:
    alignments = folder / f"{name}.al"
    translate_file(Uppercase(None, alignments), folder / "in", folder / name, resume=True, lines_at_once=4)
    return (folder / name).read_bytes(), alignments.read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(b"9-9\n" + path.read_bytes()[4:]), "al: its first .* bytes have changed"),
        (lambda path: path.unlink(), "al: its first .* bytes have changed"),
        (lambda path: path.write_bytes(path.read_bytes() + b"0-0\n"), "al: something was appended to the .* bytes"),
    ],
)
def test_alignments_that_were_changed_are_noticed(tmp_path: Path, change: Callable[[Path], Any], message: str) -> None:
    (tmp_path / "in").write_bytes(lines_of(5))
    uppercase(tmp_path)
    change(tmp_path / "out.al")
    with pytest.raises(ResumeError, match=message):
        uppercase(tmp_path)


def test_alignments_have_a_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one\n")
    for name, use in (("in", "the input"), ("out", "the output")):
        with pytest.raises(ResumeError, match=f"{name}: is {use}, too; choose another file"):
            translate_file(
                Uppercase(None, tmp_path / name), tmp_path / "in", tmp_path / "out", resume=False, lines_at_once=4
            )
    assert (tmp_path / "in").read_bytes() == b"one\n"


@pytest.mark.parametrize(("operation", "name"), [(3, "out"), (4, "out.al"), (5, "out.progress.json")])
def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: int, name: str) -> None:
    (tmp_path / "in").write_bytes(lines_of(8))
    operations = FileOperations(operation, OSError(errno.ENOSPC, "No space left on device"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", operations.counted(os.fsync))
        with pytest.raises(Exception, match=f"^{tmp_path / name}: cannot be written .*No space left"):
            uppercase(tmp_path)
    assert uppercase(tmp_path) == uppercase(tmp_path, "whole")
