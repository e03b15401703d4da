"""The demonstration's corpus: English-German pairs drawn from a small grammar, without a download.

The words are in `words.toml`; the rules of each language are in `english` and `german`; `writing` adds capitals and
final marks.
"""

from dataclasses import dataclass
from random import Random

from minitransformer.extras.demo.phrases import weighted
from minitransformer.extras.demo.sentences import sentence_pair
from minitransformer.extras.demo.writing import LENGTHS, SentencePair, line

__all__ = ["SHOWCASE", "DemoCorpus", "demo_corpus", "sentence_pair"]

SHOWCASE: tuple[SentencePair, ...] = (
    ("the small dog sees three red houses", "der kleine Hund sieht drei rote Häuser"),
    ("where does your sister live?", "wo wohnt deine Schwester?"),
    (
        "I do not know whether the girl has bought the green coat",
        "ich weiß nicht, ob das Mädchen den grünen Mantel gekauft hat",
    ),
    ("Obama sees the red house", "Obama sieht das rote Haus"),
    ("the train departs at half past seven", "der Zug fährt um halb acht ab"),
    ("can you help me?", "kannst du mir helfen?"),
)
"""Sentences that are held out of every split, so that a trained model has never seen them in any form."""


@dataclass(frozen=True)
class DemoCorpus:
    """Three splits of (English, German) pairs of lines; no sentence of either language is on two lines."""

    train: list[SentencePair]
    validation: list[SentencePair]
    test: list[SentencePair]


def demo_corpus(seed: int = 1, n_train: int = 60_000, n_validation: int = 500, n_test: int = 1_000) -> DemoCorpus:
    """Draw the corpus of a seed, which is the same on every machine; ``n_train`` does not change the other splits."""
    random, seen = Random(f"{seed}"), {sentence for pair in SHOWCASE for sentence in pair}

    def unseen() -> SentencePair:
        while not seen.isdisjoint(pair := sentence_pair(random)):
            pass
        seen.update(pair)
        return pair

    def draw(count: int) -> list[SentencePair]:
        return [line(random, [unseen() for _ in range(weighted(random, LENGTHS))]) for _ in range(count)]

    test, validation = draw(n_test), draw(n_validation)
    return DemoCorpus(draw(n_train), validation, test)
