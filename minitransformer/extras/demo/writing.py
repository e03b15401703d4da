"""Written forms of the grammar's sentences: capitals, final marks, short forms, two sentences on a line."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from minitransformer.extras.demo.phrases import weighted

SentencePair = tuple[str, str]


@dataclass(frozen=True)
class Form:
    """The way in which the sentences of a line begin and end."""

    capital: bool
    mark: str
    """The mark at the end of a statement; a question has a question mark unless this is empty."""


FORMS = {
    Form(capital=True, mark="."): 13,
    Form(capital=True, mark="!"): 1,
    Form(capital=True, mark=""): 1,
    Form(capital=False, mark="."): 2,
    Form(capital=False, mark=""): 5,
}
"""The forms and how often they are drawn."""
LENGTHS = {1: 9, 2: 1}
"""The numbers of sentences on a line and how often they are drawn."""

_SHORT = (
    (r"\b(do|does|did|is|are|was|were|has|have|should) not\b", r"\1n't"),
    (r"\bwill not\b", "won't"),
    (r"\bcannot\b", "can't"),
    (r"^I am\b", "I'm"),
    (r"^(he|she|it) is\b", r"\1's"),
    (r"^(we|they|you) are\b", r"\1're"),
    (r"^(I|he|she|it|we|they|you) will\b", r"\1'll"),
)


def line(random: Random, pairs: Sequence[SentencePair]) -> SentencePair:
    """Write sentences on one line, in a form that is drawn, the same in both languages."""
    form = weighted(random, FORMS)
    english = [shortened(pair[0]) if random.random() < 0.5 else pair[0] for pair in pairs]
    return write_sentences(english, form), write_sentences([german for _, german in pairs], form)


def write_sentences(sentences: Sequence[str], form: Form) -> str:
    """Write sentences of a language, which the grammar leaves without capitals and full stops, in a form.

    A mark separates two sentences in any form.
    """
    *first, last = [sentence[0].upper() + sentence[1:] if form.capital else sentence for sentence in sentences]
    return " ".join([*(_ended(sentence, form.mark or ".") for sentence in first), _ended(last, form.mark)])


def shortened(english: str) -> str:
    """Write "do not" as "don't", and "I am" at the beginning of a sentence as "I'm"."""
    for long, short in _SHORT:
        english = re.sub(long, short, english)
    return english


def _ended(sentence: str, mark: str) -> str:
    if not mark:
        return sentence.removesuffix("?")
    return sentence if sentence.endswith("?") else sentence + mark
