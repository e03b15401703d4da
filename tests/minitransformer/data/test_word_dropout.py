"""Word dropout: words become their classes with probability α / (α + count), as a pure function of seed and epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minitransformer.data.store import TokenStore, write_store
from minitransformer.data.token_dropout import WordDropout
from minitransformer.data.tokenizer import Tokenizer

LINES = ["the mice ate cheese", "the cats ate mice", "the Owls slept", "an A slept", "1984 % the"] * 400
COUNTS = {"the": 1600, "mice": 800, "ate": 800, "cheese": 400, "cats": 400, "Owls": 400, "slept": 800, "an": 400}
TOKENIZER = Tokenizer.train(
    [*((line, "( XX )") for line in LINES), ("zzzz yy bitten", "( XX )")],  # its words are rare and make classes
    vocabulary_size=26,
    kind="word",
    joint=False,
    symbols=True,
)


def store_of(folder: Path, lines: list[str]) -> TokenStore:
    pairs = zip(TOKENIZER.encode_source(lines), TOKENIZER.encode_target(["( XX )"] * len(lines)), strict=True)
    write_store(folder, "train", pairs, 100)
    return TokenStore(folder, "train")


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return store_of(tmp_path, LINES)


def sources(dropout: WordDropout | TokenStore, epoch: int) -> list[list[int]]:
    pairs = dropout.of_epoch(epoch)
    return [pairs.pair(i)[0].tolist() for i in range(len(dropout))]


def test_a_word_becomes_its_class_as_often_as_its_count_says(store: TokenStore) -> None:
    alpha = 400.0
    known, dropped = sources(store, 0), sources(WordDropout(store, TOKENIZER, alpha, seed=1), 0)
    name = TOKENIZER.source.id_to_piece
    for word, count in COUNTS.items():
        id_ = TOKENIZER.encode_source([word])[0][0]
        became = [
            name(b)
            for line, new in zip(known, dropped, strict=True)
            for a, b in zip(line, new, strict=True)
            if a == id_
        ]
        others = {piece for piece in became if piece != "▁" + word}
        assert others == {"<rare:capital>" if word[0].isupper() else "<rare:lower>"}
        p = alpha / (alpha + count)
        n_dropped = sum(piece in others for piece in became)
        assert abs(n_dropped - count * p) < 5 * np.sqrt(count * p * (1 - p))


def test_targets_and_lengths_stay(store: TokenStore) -> None:
    pairs = WordDropout(store, TOKENIZER, 1e5, seed=1).of_epoch(3)
    assert np.array_equal(pairs.lengths, store.lengths)
    assert all(np.array_equal(pairs.pair(i)[1], store.pair(i)[1]) for i in range(len(store)))


def test_classes_stay(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["gone 1985 Rome", "BRCA *"])
    assert sources(WordDropout(store, TOKENIZER, 1e5, seed=1), 0) == sources(store, 0)


def test_an_epoch_is_a_pure_function_of_seed_and_epoch(store: TokenStore) -> None:
    one, other, third = (WordDropout(store, TOKENIZER, 100, seed) for seed in (1, 1, 2))
    later = sources(one, 2)
    assert sources(other, 0) != later
    assert sources(other, 2) == later
    assert sources(third, 2) != later
    assert one.of_epoch(2) is one.of_epoch(2)
