"""YAML as Marian writes it."""

from __future__ import annotations

import pytest

from minitransformer.extras.convert.marian_npz import read_settings, read_vocabulary


def test_words_are_read_with_their_quotes_and_escapes() -> None:
    text = (
        '"</s>": 0\n<unk>: 1\n\'it\'\'s\': 2\n"\\"": 3\n"\\\\": 4\n"\\x85": 5\n"\\u2028\\U0001F600": 6\n'
        '":": 7\nnaïve: 8\n'
        '"a: b": 9\n? "very long"\n: 10\n\ny: 11\r\n'
    )
    words = ["</s>", "<unk>", "it's", '"', "\\", "\x85", "\u2028😀", ":", "naïve", "a: b", "very long"]
    assert read_vocabulary(text) == {w: i for i, w in enumerate([*words, "y"])}


def test_settings_have_types_and_lists() -> None:
    text = (
        '# comment\ntype: transformer\ndim-emb: 512\nlearn-rate: 3e-4\nulr: false\npre: ""\n'
        "dims:\n  - 5\n  - 6\nvocabs: [a.yml, b.yml]\nnone: []\n"
    )
    assert read_settings(text) == {
        "type": "transformer",
        "dim-emb": 512,
        "learn-rate": 3e-4,
        "ulr": False,
        "pre": "",
        "dims": [5, 6],
        "vocabs": ["a.yml", "b.yml"],
        "none": [],
    }


def test_other_text_is_refused() -> None:
    with pytest.raises(ValueError, match="not a setting: 'nothing'"):
        read_settings("nothing")
    with pytest.raises(ValueError, match="invalid literal"):
        read_vocabulary("the: x")
