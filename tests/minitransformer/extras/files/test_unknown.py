"""Characters that the tokenizer does not know are counted by line and named."""

from __future__ import annotations

import pytest

from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.files import unknown
from minitransformer.extras.files.unknown import UnknownCharacters

LETTERS = [("abc abd", "abe dea"), ("bad cab", "dab")]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(LETTERS, vocabulary_size=20)


def test_lines_are_counted_and_characters_named_once(tokenizer: Tokenizer, logged: list[str]) -> None:
    seen = UnknownCharacters()
    seen.add(tokenizer, ["abc", "ж漢 aж", "", "ab漢d"])
    seen.add(tokenizer, ["dab", "ж"])
    seen.log()
    assert logged == [
        "warning: 3 lines have characters that the tokenizer does not know: 'ж', '漢';"
        " the model reads them as unknown words"
    ]


def test_only_the_first_characters_are_named(tokenizer: Tokenizer, logged: list[str]) -> None:
    seen = UnknownCharacters()
    most = "".join(chr(0x4E00 + i) for i in range(unknown.N_NAMED))
    for lines in ([most, "abc"], [most, "\ue000x"], ["\ue000"]):
        seen.add(tokenizer, lines)
        seen.log()
    assert [line.partition(": ")[2].count("'") for line in logged] == [2 * unknown.N_NAMED, 2 * unknown.N_NAMED, 2]
    starts = ("1 line has", "2 lines have", "1 line has")
    assert [line.startswith(f"warning: {n}") for n, line in zip(starts, logged, strict=True)]
    assert ["…" in line for line in logged] == [False, True, False]


def test_known_text_and_bytes_of_a_large_vocabulary_give_no_warning(
    tokenizer: Tokenizer, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitransformer.data.tokenizer.LARGE_VOCABULARY", 270)
    seen = UnknownCharacters()
    seen.add(tokenizer, ["abc dea", " ", ""])
    seen.add(Tokenizer.train(LETTERS, vocabulary_size=270), ["ж漢"])
    seen.log()
    assert logged == []
