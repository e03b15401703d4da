"""Lines out of a stream: grouped as they come, none lost; characters that the tokenizer does not know are named."""

import dataclasses
import gzip
import io
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import small_translator

from minitransformer.data.survey import LONGEST_LINE, CorpusError
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.files import stream, unknown
from minitransformer.extras.files.codes import with_textual_codes
from minitransformer.extras.files.sentences import SentenceSplitter
from minitransformer.extras.files.stream import LineTranslator, decoded, groups_of_file, groups_of_lines
from minitransformer.extras.files.unknown import UnknownCharacters
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import Translation


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


def test_translations_that_are_cut_are_named_by_their_lines(logged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LINES_NAMED", 2)
    cut = "the translation was cut off at the greatest length, which max_length_factor and max_extra_tokens set"
    whole = LineTranslator(small_translator(), SearchConfig(beam=1, max_extra_tokens=1))
    whole([b"one", b"", b"two", b"three"], 9)
    dataclasses.replace(whole, splitter=lambda text: text.split("."))([b"one.two"], 0)
    assert logged == [f"warning: lines 10, 12 and 1 more: {cut}", f"warning: line 1: {cut}"]


def test_sentences_of_segments_with_codes_are_translated_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def n_best(self: LineTranslator, texts: list[str], *_: Any, numbers: list[int], **__: Any) -> list[Any]:
        seen.extend(zip(numbers, texts, strict=True))
        links = [tuple((i, i) for i in range(len(text.split()))) for text in texts]
        return [[Translation(text.upper(), 0, 0, its)] for text, its in zip(texts, links, strict=True)]

    seen = list[tuple[int, str]]()
    monkeypatch.setattr(LineTranslator, "n_best_of", n_best)
    split = LineTranslator(small_translator(), SearchConfig(beam=1), splitter=SentenceSplitter("en"))
    segments = ["plain. Two.", "<b>One.</b> It is {0}. 3 <i>four</i>.", "", "犬。", ">>de<< One. Two."]
    found = split.segments([with_textual_codes([text]) for text in segments], 4, lambda n: None)
    texts = ["".join(part if isinstance(part, str) else part.content for part in one.parts) for one in found]
    assert texts == ["PLAIN. TWO.", "<b>ONE.</b> IT IS {0}. 3 <i>FOUR</i>.", "", "犬。", ">>DE<< ONE. >>DE<< TWO."]
    assert [number for number, text in seen if text] == [5, 5, 6, 6, 6, 8, 9, 9]


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


LETTERS = [("abc abd", "abe dea"), ("bad cab", "dab")]


def test_only_the_first_characters_are_named_and_known_text_gives_no_warning(
    logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, seen = Tokenizer.train(LETTERS, vocabulary_size=20), UnknownCharacters()
    most = "".join(chr(0x4E00 + i) for i in range(unknown.N_NAMED))
    for lines in ([f"ab {most}a{most[0]}", "abc"], [most, "\ue000x"], ["\ue000", "dea", " ", ""], ["abc dea"]):
        seen.add(tokenizer, lines)
        seen.log()
    monkeypatch.setattr("minitransformer.data.tokenizer.LARGE_VOCABULARY", 270)
    seen.add(Tokenizer.train(LETTERS, vocabulary_size=270), ["ж漢"])  # as bytes
    seen.log()
    assert [line.partition(": ")[2].count("'") for line in logged] == [2 * unknown.N_NAMED, 2 * unknown.N_NAMED, 2]
    numbers = [line.partition(" characters")[0] for line in logged]
    assert numbers == [f"warning: {text}" for text in ("1 line has", "2 lines have", "1 line has")]
    assert ["…" in line for line in logged] == [False, True, False]
