"""Words as tokens, the rare ones by classes: each word has one id, and what a class says of a word."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.config import ConfigError, DataConfig
from minitransformer.data import rare_words
from minitransformer.data.lexicon import LEAST_SEEN
from minitransformer.data.survey import CorpusError
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.symbols import UNKNOWN

LINES = [
    "The mice were fed twice , and the mice slept .",
    "The cells were phosphorylated , and the cells were transfected .",
    "http://www.informatics.jax.org and http://www.informatics.jax.org were read in 2004 .",
]
VOCABULARY_SIZE = 25
WORDS = Tokenizer.train(
    [(line, "( XX )") for line in LINES], vocabulary_size=VOCABULARY_SIZE, kind="word", joint=False, symbols=True
)


def pieces(line: str) -> list[str]:
    return [WORDS.source.id_to_piece(i).removeprefix("▁") for i in WORDS.encode_source([line])[0]]


@pytest.mark.parametrize(("word", "classes"), [
    ("phosphorylated", ("<rare:lower:ed>", "<rare:lower>")),
    ("Zellig", ("<rare:capital:ig>", "<rare:capital>")), ("Ångström", ("<rare:capital:öm>", "<rare:capital>")),
    ("BRCA", ("<rare:capitals>", "<rare:capitals>")), ("A", ("<rare:capital:a>", "<rare:capital>")),
    ("12.5", ("<rare:number>", "<rare:number>")), ("C57BL/6J", ("<rare:digits>", "<rare:digits>")),
    ("±", ("<rare:signs>", "<rare:signs>")), ("self-made", ("<rare:lower:de>", "<rare:lower>")),
    ("-sided", ("<rare:lower:ed>", "<rare:lower>")),
])  # fmt: skip
def test_classes_of_rare_words(word: str, classes: tuple[str, str]) -> None:
    assert rare_words.rare_word_classes(word) == classes


@given(st.text(min_size=1).filter(lambda word: " " not in word))
def test_every_word_has_a_class_without_blanks_and_a_wider_one_by_shape(word: str) -> None:
    narrow, wide = rare_words.rare_word_classes(word)
    assert " " not in narrow
    assert wide in rare_words.SHAPE_CLASSES
    assert narrow == wide or narrow.startswith(f"{wide[:-1]}:")


def test_words_seen_once_become_classes_and_those_by_shape_only_are_left_out() -> None:
    assert list(rare_words.with_endings_of_rare_words(LINES, rare_words.count_words(LINES)))[1:] == [
        "The cells were <rare:lower:ed> , and the cells were <rare:lower:ed> .",
        "http://www.informatics.jax.org and http://www.informatics.jax.org were <rare:lower:ad> <rare:lower:in> .",
    ]
    assert rare_words.count_words(["a b a", "b a"]) == Counter(a=3, b=2)


@pytest.mark.parametrize(("line", "expected"), [
    ("The mice were http://www.informatics.jax.org .", "The mice were http://www.informatics.jax.org ."),
    ("phosphorylated unfolded", "<rare:lower:ed> <rare:lower:ed>"),
    ("immunohistochemistry 2004 GFP Mus p53 ±",
        "<rare:lower> <rare:number> <rare:capitals> <rare:capital> <rare:digits> <rare:signs>"),
])  # fmt: skip
def test_frequent_words_stand_for_themselves_rare_ones_for_a_class_or_the_wider_one(line: str, expected: str) -> None:
    assert pieces(line) == expected.split()
    assert WORDS.source_pieces("The  Zellig 10\u00a0mg") == ["▁The", "▁Zellig", "▁10\u00a0mg"]


@given(st.lists(st.text(min_size=1).filter(lambda word: " " not in word)))
def test_each_word_has_one_id_which_is_never_that_of_unknown_start_or_end(words: list[str]) -> None:
    ids = WORDS.encode_source([" ".join(words)])[0]
    assert len(ids) == len(words)
    assert all(i != UNKNOWN and 3 <= i < VOCABULARY_SIZE for i in ids)


def test_a_saved_vocabulary_of_words_is_known_for_one(tmp_path: Path) -> None:
    WORDS.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert rare_words.is_of_words(loaded.source)
    assert not rare_words.is_of_words(loaded.target)
    assert loaded.encode_source(LINES) == WORDS.encode_source(LINES)


def test_a_vocabulary_of_words_keeps_the_leaves_that_each_frequent_word_had(tmp_path: Path) -> None:
    trees = [
        *[("the dog sleeps", "(S DT NN VBZ )S")] * LEAST_SEEN,
        *[("the dogs sleep", "(S DT NNS VBP )S")] * (LEAST_SEEN - 1),
        ("dog the", "(S VB DT )S"),
        ("the dogs", "(S DT )S"),  # with a leaf less
    ]
    tokenizer = Tokenizer.train(trees, vocabulary_size=20, kind="word", joint=False, symbols=True)
    assert not tokenizer.lexicon
    sources, targets = zip(*trees, strict=True)
    ids = zip(tokenizer.encode_source(sources), tokenizer.encode_target(targets), strict=True)
    tokenizer.with_lexicon(ids).save(tmp_path)
    lexicon = Tokenizer.load(tmp_path).lexicon
    leaves = {
        tokenizer.source.id_to_piece(word): {tokenizer.target_symbols[leaf] for leaf in its_leaves}
        for word, its_leaves in lexicon.items()
    }
    assert leaves == {"▁the": {"DT"}, "▁dog": {"NN", "VB"}, "▁sleeps": {"VBZ"}}


def test_a_vocabulary_of_more_words_than_there_are_and_words_of_text_are_refused() -> None:
    with pytest.raises(CorpusError, match=r"at most \d+ are possible; give it more text, or a smaller data.vocabul"):
        Tokenizer.train([("a a", "b")], vocabulary_size=1_000, kind="word", joint=False, symbols=True)
    with pytest.raises(ConfigError, match="is for parsing: name data.train_trees"):
        DataConfig(tokenizer="word")
    trees = DataConfig(tokenizer="word", train_trees=("a.mrg",), validation_trees=("b.mrg",), joint_vocabulary=False)
    assert trees.task == "parsing"
