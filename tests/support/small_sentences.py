"""Pairs of sentences, and a tokenizer of them that is trained once a process."""

from __future__ import annotations

from functools import cache

from minitransformer.data.tokenizer import Tokenizer

PAIRS = [(f"a dog sees {i} red houses", f"ein Hund sieht {i} rote Häuser") for i in range(60)]
LINES = [source for source, _ in PAIRS]


@cache
def small_tokenizer(vocabulary_size: int = 70, n_pairs: int = 60) -> Tokenizer:
    return Tokenizer.train(PAIRS[:n_pairs], vocabulary_size=vocabulary_size)
