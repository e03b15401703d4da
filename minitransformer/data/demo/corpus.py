"""A parallel corpus of random sentence pairs, divided into disjoint splits."""

from dataclasses import dataclass
from random import Random

from minitransformer.data.demo.grammar import sentence_pair

SentencePair = tuple[str, str]

SHOWCASE: SentencePair = ("the small dog sees three red houses", "der kleine Hund sieht drei rote Häuser")
"""A pair of the demo language that is held out of every split, so that a trained model has never seen it."""


@dataclass(frozen=True)
class DemoCorpus:
    """Three splits of (English, German) sentence pairs; no sentence of either language occurs twice in them all."""

    train: list[SentencePair]
    validation: list[SentencePair]
    test: list[SentencePair]


def demo_corpus(seed: int = 1, n_train: int = 40_000, n_validation: int = 500, n_test: int = 1_000) -> DemoCorpus:
    """The corpus of a seed, the same on every machine; more training pairs leave the other splits as they are."""
    random = Random(f"{seed}")
    seen = set(SHOWCASE)
    test = _fresh_pairs(random, n_test, seen)
    validation = _fresh_pairs(random, n_validation, seen)
    return DemoCorpus(_fresh_pairs(random, n_train, seen), validation, test)


def _fresh_pairs(random: Random, count: int, seen: set[str]) -> list[SentencePair]:
    """Random pairs neither side of which has been seen before; they are added to what has been seen."""
    pairs: list[SentencePair] = []
    while len(pairs) < count:
        pair = sentence_pair(random)
        if seen.isdisjoint(pair):
            seen.update(pair)
            pairs.append(pair)
    return pairs
