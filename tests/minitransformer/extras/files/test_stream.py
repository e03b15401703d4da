"""Lines out of a stream: grouped as they come, none lost; what is uncertain is named."""

import gzip
import io
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import small_translator

from minitransformer.data.survey import LONGEST_LINE, CorpusError
from minitransformer.extras.files import stream
from minitransformer.extras.files.notes import NoteLog
from minitransformer.extras.files.stream import LineTranslator, TextTranslator, decoded, groups_of_file, groups_of_lines
from minitransformer.inference.search import SearchConfig
from minitransformer.text.translation import Note, Translation


class Dripping(io.BytesIO):
    """A source that gives a few bytes at a time and has no descriptor."""

    def __init__(self, text: bytes, sizes: list[int]) -> None:
        super().__init__(text)
        self.sizes = sizes

    def read1(self, size: int | None = -1) -> bytes:
        return super().read1(self.sizes.pop() if self.sizes else size)


@settings(max_examples=100)
@given(
    text=st.lists(st.sampled_from([b"\n", b"\r\n", b"a", b"\0", b"\xff", "\u2028".encode()]), max_size=40),
    sizes=st.lists(st.integers(1, 5), max_size=40),
    at_once=st.integers(1, 4),
)
def test_all_lines_come_in_order_however_the_bytes_do(text: list[bytes], sizes: list[int], at_once: int) -> None:
    groups = list(groups_of_lines(Dripping(b"".join(text), sizes), at_once))
    lines = b"".join(text).split(b"\n")
    assert [line for group in groups for line in group] == (lines if lines[-1] else lines[:-1])
    assert all(len(group) == at_once for group in groups[:-1])
    assert all(groups)


def test_what_has_come_is_given_when_a_pipe_pauses_and_the_rest_later() -> None:
    end, start = os.pipe()
    with os.fdopen(end, "rb") as source, os.fdopen(start, "wb", 0) as writer:
        groups = groups_of_lines(source, 100)
        writer.write(b"one\ntwo\nthr")
        assert next(groups) == [b"one", b"two"]
        writer.write(b"ee\n")
        assert next(groups) == [b"three"]
        writer.write(b"four")
        writer.close()
        assert list(groups) == [[b"four"]]


def test_a_line_without_end_costs_no_more_than_the_longest_that_is_read() -> None:
    text = b"x" * 3_000_000
    assert list(groups_of_lines(Dripping(text + b"\ny", [100] * 20_000), 5)) == [[text[: LONGEST_LINE + 1], b"y"]]


@pytest.mark.parametrize("end", ["", "\r"])
def test_of_a_line_that_is_too_long_the_rest_is_cut_off_with_a_warning(end: str, logged: list[str]) -> None:
    longest = "ж" * (LONGEST_LINE // 2)
    assert decoded((longest + end).encode(), 1) == longest
    assert decoded(f"x{longest}".encode(), 7) == f"x{longest}"[:-1]
    assert logged == ["warning: line 7 has over 1,000,000 bytes; the rest is cut off"]


def test_uncertain_notes_are_named_by_their_lines(logged: list[str]) -> None:
    """Name only the first of many lines and words; with verbose, write a line for each note."""
    cut = "the translation was cut off at the greatest length, which max_length_factor and max_extra_tokens set"
    translator, notes = small_translator(), NoteLog()
    search = SearchConfig(beam=1, max_extra_tokens=1)
    by = TextTranslator(translator, search, translator.road(["loops"]))
    LineTranslator(by, notes=notes)([b"one", b"", b"two", b"three"], 9)
    notes.add([[Translation("", 0, 0, notes=(Note("numbers", "lost", f"{i}, {i + 1}", True),))] for i in range(12)], 0)
    notes.add([[Translation("", 0, 0, notes=(Note("unknown", "copied", "☃"),))], []], 0)
    notes.log()
    assert logged == [
        f"warning: 3 lines: 10, 12, 13: {cut}",
        "warning: 12 lines: 1, 2, 3, 4, 5 …: lost (0, 1, 2, 3, 4, 5, 6, 7, 8, 9 …)",
    ]
    verbose = NoteLog(verbose=True)
    verbose.add([[Translation("", 0, 0, notes=(Note("unknown", "copied", "☃"),))]], 7)
    for each in (notes, verbose):
        each.log()
    assert logged[2:] == ["line 8: copied: ☃"]


def test_files_and_full_pipes_never_pause_cut_ones_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end, start = os.pipe()
    with os.fdopen(end, "rb") as source, os.fdopen(start, "wb", 0) as writer:
        writer.write(b"x\n" * 10)
        writer.close()
        assert [len(group) for group in groups_of_lines(source, 4)] == [4, 4, 2]
    monkeypatch.setattr(stream, "_BYTES_AT_ONCE", 3)
    for name, content in (("text", b"one\ntwo\nthree"), ("text.gz", gzip.compress(b"one\ntwo\nthree"))):
        (tmp_path / name).write_bytes(content)
        with groups_of_file(tmp_path / name, 2) as groups:
            assert list(groups) == [[b"one", b"two"], [b"three"]]
    (tmp_path / "text.gz").write_bytes(gzip.compress(os.urandom(3_000).hex().encode())[:2_000])
    with groups_of_file(tmp_path / "text.gz", 2) as groups, pytest.raises(CorpusError, match="text.gz: cannot be read"):
        list(groups)
