"""The demonstration's corpus: English-German pairs drawn from a small grammar, without a download.

The words are in `words.toml`; the rules of each language are in `english` and `german`.
"""

from dataclasses import dataclass
from random import Random

from minitransformer.demo.sentences import sentence_pair

__all__ = ["SHOWCASE", "DemoCorpus", "demo_corpus", "sentence_pair"]

SentencePair = tuple[str, str]

SHOWCASE: SentencePair = ("the small dog sees three red houses", "der kleine Hund sieht drei rote Häuser")
"""A pair held out of every split, so that a trained model has never seen it."""


@dataclass(frozen=True)
class DemoCorpus:
    """Three splits of (English, German) pairs; no sentence of either language occurs twice."""

    train: list[SentencePair]
    validation: list[SentencePair]
    test: list[SentencePair]


def demo_corpus(seed: int = 1, n_train: int = 40_000, n_validation: int = 500, n_test: int = 1_000) -> DemoCorpus:
    """Draw the corpus of a seed, which is the same on every machine; ``n_train`` does not change the other splits."""
    random, seen = Random(f"{seed}"), set(SHOWCASE)

    def draw(count: int) -> list[SentencePair]:
        pairs: list[SentencePair] = []
        while len(pairs) < count:
            pair = sentence_pair(random)
            if seen.isdisjoint(pair):
                seen.update(pair)
                pairs.append(pair)
        return pairs

    test, validation = draw(n_test), draw(n_validation)
    return DemoCorpus(draw(n_train), validation, test)
