"""Subword sampling: other segmentations of the same text in every epoch, as a pure function of seed and epoch."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from minitransformer.config import TokenizerType
from minitransformer.data.sampling import SubwordSampler
from minitransformer.data.store import Pairs, TokenStore, write_store
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.symbols import UNKNOWN

WORDS = ["lower", "lowest", "newer", "newest", "wider", "widest", "slower", "slowest", "the", "a", "of"]
DRAW = np.random.default_rng(1)
LINES = [(" ".join(DRAW.choice(WORDS, 6)), " ".join(DRAW.choice(WORDS, 4))) for _ in range(200)]


def tokenizer_of(kind: TokenizerType = "bpe") -> Tokenizer:
    return Tokenizer.train(LINES, vocabulary_size=40 if kind == "bpe" else 26, kind=kind)


def store_of(folder: Path, tokenizer: Tokenizer, lines: list[tuple[str, str]]) -> TokenStore:
    sources, targets = ([line[side] for line in lines] for side in (0, 1))
    pairs = zip(tokenizer.encode_source(sources), tokenizer.encode_target(targets), strict=True)
    write_store(folder, "train", pairs, 40)
    return TokenStore(folder, "train")


def ids_of(pairs: Pairs, n: int) -> list[tuple[list[int], list[int]]]:
    return [(source.tolist(), target.tolist()) for source, target in map(pairs.pair, range(n))]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return tokenizer_of()


@pytest.fixture
def store(tmp_path: Path, tokenizer: Tokenizer) -> TokenStore:
    return store_of(tmp_path, tokenizer, LINES)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_every_epoch_has_other_segmentations_of_the_same_text(tmp_path: Path, kind: TokenizerType) -> None:
    tokenizer = tokenizer_of(kind)
    store = store_of(tmp_path, tokenizer, LINES)
    sampler = SubwordSampler(store, tokenizer, 0.2, seed=1)
    first, second = (ids_of(sampler.of_epoch(epoch), len(store)) for epoch in (0, 1))
    for epoch in (first, second):
        assert [tuple(tokenizer.decode_target(pair)) for pair in epoch] == LINES
    n_same = sum(a == b for a, b in zip(first, second, strict=True))
    assert n_same < len(store) / 2
    assert len(sampler) == len(store)


def test_an_epoch_is_a_pure_function_of_seed_and_epoch(store: TokenStore, tokenizer: Tokenizer) -> None:
    one, other, third = (SubwordSampler(store, tokenizer, 0.2, seed) for seed in (1, 1, 2))
    later = ids_of(one.of_epoch(5), len(store))
    one.of_epoch(3)
    tokenizer.source.encode("newest", enable_sampling=True, alpha=0.2, nbest_size=-1)  # draws on this thread
    assert ids_of(one.of_epoch(5), len(store)) == later == ids_of(other.of_epoch(5), len(store))
    assert ids_of(third.of_epoch(5), len(store)) != later


def test_an_epoch_is_sampled_once(store: TokenStore, tokenizer: Tokenizer) -> None:
    sampler = SubwordSampler(store, tokenizer, 0.2, seed=1)
    assert sampler.of_epoch(0) is sampler.of_epoch(0)


def test_lengths_are_those_of_the_segmentations(store: TokenStore, tokenizer: Tokenizer) -> None:
    pairs = SubwordSampler(store, tokenizer, 0.2, seed=1).of_epoch(0)
    found = [[len(source), len(target)] for source, target in ids_of(pairs, len(store))]
    assert pairs.lengths.tolist() == found
    assert pairs.lengths.sum() > store.lengths.sum()


def test_no_sentence_becomes_longer_than_the_longest(tmp_path: Path, tokenizer: Tokenizer) -> None:
    store = store_of(tmp_path, tokenizer, LINES)
    pairs = SubwordSampler(store, tokenizer, 0.9, seed=1).of_epoch(0)
    assert (pairs.lengths.max(axis=0) <= store.lengths.max(axis=0)).all()
    unlimited = tokenizer.source.encode(LINES[0][0], enable_sampling=True, alpha=0.9, nbest_size=-1)
    assert len(unlimited) > store.lengths[:, 0].max()  # so the limit has been at work


def test_a_sentence_with_unknown_characters_stays_as_it_is(tmp_path: Path, tokenizer: Tokenizer) -> None:
    lines = [("lowest Ω widest newest", "slowest widest"), *LINES]
    store = store_of(tmp_path, tokenizer, lines)
    assert UNKNOWN in store.pair(0)[0]
    for epoch in range(3):
        pairs = SubwordSampler(store, tokenizer, 0.5, seed=1).of_epoch(epoch)
        assert pairs.pair(0)[0].tolist() == store.pair(0)[0].tolist()


def test_an_error_of_the_thread_is_raised(store: TokenStore, tokenizer: Tokenizer) -> None:
    sampler = SubwordSampler(store, tokenizer, "none", seed=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        sampler.of_epoch(0)
    assert "subword-sampling" not in [thread.name for thread in threading.enumerate()]
