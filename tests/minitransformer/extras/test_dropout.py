"""BPE-dropout and word dropout: each epoch has other tokens of the same text, a pure function of seed and epoch."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
from small_sentences import sentencepiece_model

from minitransformer.data.store import Pairs, TokenStore, write_store
from minitransformer.data.token_dropout import BpeDropout, WordDropout, segment
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.symbols import UNKNOWN

WORDS = ["lower", "lowest", "newer", "newest", "wider", "widest", "slower", "slowest", "the", "a", "of", "1984"]
DRAW = np.random.default_rng(1)
LINES = [(" ".join(DRAW.choice(WORDS, 6)), " ".join(DRAW.choice(WORDS, 4))) for _ in range(200)]
ALMOST_0 = 1e-300


def store_of(folder: Path, tokenizer: Tokenizer, lines: list[tuple[str, str]]) -> TokenStore:
    sources, targets = ([line[side] for line in lines] for side in (0, 1))
    pairs = zip(tokenizer.encode_source(sources), tokenizer.encode_target(targets), strict=True)
    write_store(folder, "train", pairs, 40)
    return TokenStore(folder, "train")


def ids_of(pairs: Pairs, n: int) -> list[tuple[list[int], list[int]]]:
    return [(source.tolist(), target.tolist()) for source, target in map(pairs.pair, range(n))]


def sources(dropout: BpeDropout | WordDropout | TokenStore, epoch: int = 0) -> list[list[int]]:
    return [source for source, _ in ids_of(dropout.read([0], epoch), len(dropout))]


TOKENIZER = Tokenizer.train(LINES, vocabulary_size=45)


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return store_of(tmp_path, TOKENIZER, LINES)


def test_every_epoch_has_other_segmentations_of_the_same_text(store: TokenStore) -> None:
    dropout = BpeDropout(store, TOKENIZER, 0.2, seed=1)
    first, second = (ids_of(dropout.read([0], epoch), len(store)) for epoch in (0, 1))
    for epoch in (first, second):
        assert [tuple(TOKENIZER.decode_target(pair)) for pair in epoch] == LINES
    assert sum(a == b for a, b in zip(first, second, strict=True)) < len(store) / 2
    assert len(dropout) == len(store)


@pytest.mark.parametrize("joint", [True, False])
def test_without_dropout_the_segmentation_is_that_of_sentencepiece(tmp_path: Path, joint: bool) -> None:
    tokenizer = Tokenizer.train(LINES, vocabulary_size=38, joint=joint)
    store = store_of(tmp_path, tokenizer, LINES)
    pairs = BpeDropout(store, tokenizer, ALMOST_0, seed=1).read([0], 0)
    assert ids_of(pairs, len(store)) == ids_of(store.read(), len(store))


def test_lengths_are_those_of_segmentations_and_at_most_the_longest(store: TokenStore) -> None:
    for rate in (0.2, 0.9):
        pairs = BpeDropout(store, TOKENIZER, rate, seed=1).read([0], 0)
        assert pairs.lengths.tolist() == [list(map(len, pair)) for pair in ids_of(pairs, len(store))]
        assert pairs.lengths.sum() > store.read().lengths.sum()
        longest = store.read().lengths.max(axis=0)
        assert (pairs.lengths.max(axis=0) <= longest).all()
    assert len("▁" + LINES[0][0].replace(" ", "▁")) > longest[0]  # in characters, so the limit has been at work


@pytest.mark.parametrize("word", ["Ω", "lowΩst"])
def test_a_word_with_unknown_characters_stays_as_it_is(tmp_path: Path, word: str) -> None:
    store = store_of(tmp_path, TOKENIZER, [(word, word)] * 50 + LINES)
    assert UNKNOWN in sources(store)[0]
    assert sources(BpeDropout(store, TOKENIZER, 0.5, seed=1))[:50] == sources(store)[:50]


def test_bytes_of_a_character_stay_as_they_are(tmp_path: Path) -> None:
    lines = [side for line in LINES for side in line]
    tokenizer = Tokenizer(sentencepiece_model(lines, model_type="bpe", vocab_size=300, byte_fallback=True))
    store = store_of(tmp_path, tokenizer, [("lowest Ω newest", "slowest")] * 50 + LINES)
    omega = tokenizer.source.encode("Ω")[-2:]
    assert all(map(tokenizer.source.is_byte, omega))
    found = sources(BpeDropout(store, tokenizer, 0.5, seed=1))[:50]
    assert len(set(map(tuple, found))) > 1
    for source in found:
        assert tokenizer.source.decode(source) == "lowest Ω newest"
        assert source[source.index(omega[0]) :][:2] == omega


RANKS = {"ab": 1.0, "bc": 2.0, "abc": 3.0, "cd": 0.0}


def test_each_step_leaves_out_each_merge_with_the_rate() -> None:
    """Of "abc", nothing merges if both merges are left out; "bc" first needs "ab" left out and "bc" not."""
    rate, n = 0.3, 20_000
    random = Random(1)
    found = [segment("abc", RANKS, rate, random) for _ in range(n)]
    for pieces, probability in (
        (["a", "b", "c"], rate**2),
        (["a", "bc"], rate * (1 - rate) * rate),  # then "abc" is left out
        (["ab", "c"], (1 - rate) * rate),
        (["abc"], (1 - rate) ** 2 * (1 + rate)),
    ):
        expected, spread = n * probability, (n * probability * (1 - probability)) ** 0.5
        assert abs(found.count(pieces) - expected) < 4 * spread


SENTENCES = ["the mice ate cheese", "the cats ate mice", "the Owls slept", "an A slept", "1984 % the"] * 400
COUNTS = {"the": 1600, "mice": 800, "ate": 800, "cheese": 400, "cats": 400, "Owls": 400, "slept": 800, "an": 400}
TREES = [(line, "( XX )") for line in SENTENCES]
RARE = [("zzzz yy bitten", "( XX )")]  # its words make classes
WORD_TOKENIZER = Tokenizer.train(TREES + RARE, vocabulary_size=26, kind="word", joint=False, symbols=True)


@pytest.fixture
def word_store(tmp_path: Path) -> TokenStore:
    return store_of(tmp_path / "words", WORD_TOKENIZER, TREES)


def test_a_word_becomes_its_class_as_often_as_its_count_says(word_store: TokenStore) -> None:
    alpha = 400.0
    known, dropped = sources(word_store), sources(WordDropout(word_store, WORD_TOKENIZER, alpha, seed=1))
    name = WORD_TOKENIZER.source.id_to_piece
    pairs = [pair for lines in zip(known, dropped, strict=True) for pair in zip(*lines, strict=True)]
    for word, count in COUNTS.items():
        id_ = WORD_TOKENIZER.encode_source([word])[0][0]
        others = [name(new) for old, new in pairs if old == id_ != new]
        assert set(others) == {"<rare:capital>" if word[0].isupper() else "<rare:lower>"}
        p = alpha / (alpha + count)
        assert abs(len(others) - count * p) < 5 * np.sqrt(count * p * (1 - p))


def test_targets_lengths_and_classes_stay(word_store: TokenStore, tmp_path: Path) -> None:
    pairs, before = WordDropout(word_store, WORD_TOKENIZER, 1e5, seed=1).read([0], 3), word_store.read()
    assert np.array_equal(pairs.lengths, before.lengths)
    assert all(np.array_equal(pairs.pair(i)[1], before.pair(i)[1]) for i in range(len(word_store)))
    classes = store_of(tmp_path / "classes", WORD_TOKENIZER, [("gone 1985 Rome", "( XX )"), ("BRCA *", "( XX )")])
    assert sources(WordDropout(classes, WORD_TOKENIZER, 1e5, seed=1)) == sources(classes)


@pytest.mark.parametrize("kind", ["subwords", "words"])
def test_an_epoch_is_a_pure_function_of_seed_and_epoch(kind: str, store: TokenStore, word_store: TokenStore) -> None:
    """Epochs that were read before change nothing."""
    one, other, third = (
        BpeDropout(store, TOKENIZER, 0.2, seed)
        if kind == "subwords"
        else WordDropout(word_store, WORD_TOKENIZER, 100, seed)
        for seed in (1, 1, 2)
    )
    later = sources(one, 5)
    assert all(sources(other, epoch) != later for epoch in range(5))
    assert sources(other, 5) == later
    assert sources(third, 5) != later
