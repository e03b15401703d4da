"""Translating from end to end: a line for each line, beginnings, samples, ensembles, alignments and sentences."""

import dataclasses
import inspect
import io
import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_run import Trained, translated, written

from cli.serve import ServeOptions
from cli.translate import TranslateOptions, translate
from minitransformer.extras.files import stream
from minitransformer.extras.files.documents import KINDS
from minitransformer.extras.files.stream import PrefixError
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translator
from minitransformer.system.file_kinds import N_FIRST_BYTES

SOURCE = b"one two\n\nsix five four\nthree\n"
GREEDY = ["--beam", "1"]
SPLIT = ["--split-sentences", "en"]


@pytest.mark.slow
@settings(max_examples=8)
@given(lines=st.lists(st.binary(max_size=12) | st.text(max_size=12).map(lambda s: s.encode("utf-8", "surrogatepass"))))
@example([b"one \x0b two\x0cthree\x1cfour", b"\x85", b""])
@example(["one\u2028two\u2029three\x85four".encode()])
@example([b"\x00\x01\x02\x1b[31m\x7f", b"\t", b""])
@example(["🙂 one 👩‍👩‍👧 two".encode(), "漢字".encode()])
@example([b"one\rtwo", b"one \xff\xfe two", b"three"])
@example([b"\xed\xa0\x80", b"\xed\xb0\x80 one", b"gr\xfcn", "grün".encode()])
@example(["שלום \u202eעולם\u202c".encode(), "مرحبا".encode(), b""])
@example([b"x" * 100_000, b"one", b" " * 100_000])
def test_every_line_in_is_one_line_out(trained: Trained, lines: list[bytes]) -> None:
    source = b"\n".join([b" " * N_FIRST_BYTES, *lines])  # the first bytes might be those of another kind of file
    target = translated(trained, source, *GREEDY, "--max-extra-tokens", "9")
    assert target.count(b"\n") == source.count(b"\n") + (source[-1:] not in (b"", b"\n"))
    assert len(target.decode("utf-8").splitlines()) == target.count(b"\n")


def test_line_ends_blanks_around_lines_a_byte_order_mark_and_empty_lines_change_no_other(trained: Trained) -> None:
    expected = translated(trained, b"one two\nsix\n")
    for source in (b"one two\r\nsix\r\n", b"one two\nsix", b"  one two \n\tsix\n", b"\xef\xbb\xbfone two\nsix\n"):
        assert translated(trained, source) == expected, source
    first, last, _ = expected.split(b"\n")
    assert translated(trained, b"\none two\n \n\nsix\n").split(b"\n") == [b"", first, b"", b"", last, b""]
    assert translated(trained, b"") == b""


def test_what_is_too_long_is_cut_and_invalid_utf8_replaced_with_a_warning_each(
    trained: Trained, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitransformer.inference.translator.MAX_SOURCE_TOKENS", 20)
    target = translated(trained, b"two " * 30 + b"\n" + b"x" * 100 + b"\none\ntwo \xff\n", *GREEDY)
    assert target.count(b"\n") == 4
    assert target.split(b"\n")[2] + b"\n" == translated(trained, b"one\n", *GREEDY)
    translated(trained, b"one.\none. two. " + b"six " * 30 + b"\n", *SPLIT, *GREEDY)
    translated(trained, b"one\n", "--prefix-text", "eins " * 30, *GREEDY)
    cut = "over 20 tokens in a sentence; the rest was cut off"
    assert [line for line in logged if "over" in line or "UTF-8" in line] == [
        "warning: line 4 is not UTF-8 (invalid start byte); read with replacements",
        f"warning: 2 lines: 1, 2: {cut}",
        f"warning: line 2: {cut}",
        "warning: the beginning of the translation of line 1 has over 20 tokens; the rest is cut off",
    ]


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


def test_the_options_of_lengths_are_those_of_the_search() -> None:
    for options in (TranslateOptions, ServeOptions):
        search = options(max_length_factor=1.5, max_extra_tokens=7).search
        assert (search.max_length_factor, search.max_extra_tokens) == (1.5, 7)
        assert dataclasses.asdict(options().search) == dataclasses.asdict(SearchConfig())
    search = TranslateOptions(alpha=2.0, normalisation="length").search
    assert (search.alpha, search.normalisation) == (2.0, "length")


def test_the_help_names_each_kind_of_document() -> None:
    text = inspect.getsource(TranslateOptions)
    assert [kind.endings for kind in KINDS if kind.endings[0] not in text and kind.endings != (".txt",)] == []


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
    """Without the blank, "s" is continued; the file may have line ends of Windows."""
    for blank, is_complete in ((" ", True), (" \r", True), ("", False), ("\r", False)):
        prefixes = written(tmp_path / "pre", f"s{blank}\n" * 4)
        first = translated(trained, SOURCE, "--prefix", prefixes).decode().split()[0]
        assert (first == "s") == is_complete


@pytest.mark.parametrize(("n_given", "message"), [(3, "has 3 lines, fewer than the input"), (5, "has 5 .* more than")])
def test_beginnings_of_other_length_are_refused(trained: Trained, tmp_path: Path, n_given: int, message: str) -> None:
    """A file is refused before anything is written, a pipe as soon as the numbers of lines differ."""
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


def test_samples_are_the_same_for_one_seed_in_any_groups(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--sample", "--n-best", "3", "--temperature", "2", "--top-p", "0.99", "--seed", "5"]
    drawn = translated(trained, SOURCE, *options)
    rows = [line.split("\t") for line in drawn.decode().splitlines()]
    assert [row[0] for row in rows] == [*"111", "2", *"333", *"444"]
    assert len({row[3] for row in rows if row[0] == "3"}) > 1
    assert translated(trained, SOURCE, *options[:-1], "6") != drawn
    one = translated(trained, SOURCE, *options[:1], *options[3:]).decode().splitlines()
    assert one == [rows[i][3] for i in (0, 3, 4, 7)]  # without --n-best, a sample for each line
    monkeypatch.setattr("cli.translate.LINES_AT_ONCE", 1)
    again = [line.split("\t") for line in translated(trained, SOURCE, *options).decode().splitlines()]
    assert [row[3] for row in again] == [row[3] for row in rows]


def test_runs_are_an_ensemble(trained: Trained, tmp_path: Path) -> None:
    other = Translator.load(trained.run)
    other.model.parameters.values *= 1.1
    other.model.save(tmp_path)
    other.tokenizer.save(tmp_path)
    options = ["--n-best", "1", "--run"]  # ``translated`` gives the first one
    both, twice = (translated(trained, SOURCE, *options, str(run)) for run in (tmp_path, trained.run))
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


def test_a_paragraph_is_the_translations_of_its_sentences(trained: Trained) -> None:
    first, second, third = translated(trained, b"one two.\nsix!\nthree four.\n").decode().splitlines()
    target = translated(trained, b"one two.  six!\n\n three four. \n", *SPLIT).decode()
    assert target.splitlines() == [f"{first}  {second}", "", third]
    single = b"six four\n \none \xff\n\xef\xbb\xbfone\ntwo\xe2\x80\xa8three\nsix\r\n\0\n"
    assert translated(trained, single, *SPLIT) == translated(trained, single)


def test_blanks_of_any_kind_between_sentences_end_no_line(trained: Trained) -> None:
    blanks = " \u2028\x0b\t\r\x85\u3000"
    source = "".join(f"one.{blank}two!{blank}{blank}six。{blank}\n" for blank in blanks)
    target = translated(trained, source.encode(), *SPLIT, *GREEDY).decode()
    assert target.count("\n") == len(target.splitlines()) == len(blanks)


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


def test_who_types_gets_the_notes_on_a_line_before_the_next_line(
    trained: Trained, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_pauses", lambda source: True)
    typed = Typed([b"one\n", "two ж\n".encode(), b"six\n"], logged)
    translate(["--run", str(trained.run), "--verbose", "--skip", "loops"], typed, io.BytesIO())
    assert typed.seen == [0, 0, 1, 1]
    assert logged == ["line 2: characters that the vocabulary lacks were copied: ж"]
