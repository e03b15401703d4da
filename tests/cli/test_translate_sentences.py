"""Lines of several sentences, translated sentence by sentence: one line out for each line in."""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_run import Trained, translated
from translated_files import lines_of

from cli.translate import translate
from minitransformer.config import ConfigError
from minitransformer.extras.files import stream
from minitransformer.extras.files.output_file import ResumeError

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


@settings(max_examples=8)
@given(lines=st.lists(st.text(st.sampled_from(list("aone. !?\u2028\x0b\t\r\x85\u3000。")), max_size=12)))
def test_every_line_in_is_one_line_out(trained: Trained, lines: list[str]) -> None:
    source = "".join(line + "\n" for line in lines)
    target = translated(trained, source.encode(), *SPLIT, "--beam", "1").decode()
    assert target.count("\n") == len(target.splitlines()) == len(lines)


def test_a_sentence_that_is_too_long_is_named_by_its_line(trained: Trained, logged: list[str]) -> None:
    translated(trained, b"one.\none. two. " + b"six " * 2_000 + b"\n", *SPLIT, "--beam", "1")
    assert [re.sub(r"over .*", "", line) for line in logged if "a sentence" in line] == [
        "warning: a sentence of line 2 has "
    ]


def test_files_are_resumed_with_the_same_splitting_only(trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"one two. six!\n" * 3)
    words = ["--run", str(trained.run), "--beam", "2"]
    words += ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    assert translate([*words, *SPLIT], None, None) == 0  # type: ignore[arg-type]
    whole = (tmp_path / "out").read_bytes()
    assert whole == translated(trained, b"one two. six!\n" * 3, *SPLIT)
    for other in ([], ["--split-sentences", "de"]):
        with pytest.raises(ResumeError, match="out: was begun with another split_sentences"):
            translate([*words, *other, "--resume"], None, None)  # type: ignore[arg-type]
    with (tmp_path / "in").open("ab") as source:
        source.write(b"two. two.\n")
    assert translate([*words, *SPLIT, "--resume"], None, None) == 0  # type: ignore[arg-type]
    assert (tmp_path / "out").read_bytes() == whole + translated(trained, b"two. two.\n", *SPLIT)


def test_a_line_is_translated_before_the_next_one_comes(trained: Trained) -> None:
    expected = translated(trained, b"one. two.\n", *SPLIT)
    (from_us, to_command), (from_command, to_us) = os.pipe(), os.pipe()
    with os.fdopen(from_us, "rb") as source, os.fdopen(to_us, "wb") as target, os.fdopen(from_command, "rb") as answers:
        words = ["--run", str(trained.run), "--beam", "2", *SPLIT]
        command = threading.Thread(target=translate, args=(words, source, target))
        command.start()
        os.write(to_command, b"one. two.\n")
        assert answers.readline() == expected
        os.close(to_command)
        command.join()


@pytest.mark.parametrize(
    "option",
    [("--n-best", "1"), ("--prefix", "file"), ("--prefix-text", ""), ("--sample",), ("--alignments", "file")],
    ids=lambda option: option[0],
)
def test_what_belongs_to_lines_of_one_sentence_is_refused(trained: Trained, option: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=f"{option[0]}: does not go with --split-sentences"):
        translated(trained, b"one\n", *SPLIT, *option)
    with pytest.raises(ConfigError, match="language '': expected a code"):
        translated(trained, b"one. two.\n", "--split-sentences", "")


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
