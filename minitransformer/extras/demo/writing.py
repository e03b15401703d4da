"""Written forms of the grammar's sentences: capitals, final marks, quotation marks, short forms, two on a line."""

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
    quoted: bool = False
    """True if the line is in quotation marks."""


FORMS = {
    Form(capital=True, mark="."): 26,
    Form(capital=True, mark="!"): 2,
    Form(capital=True, mark=""): 2,
    Form(capital=False, mark="."): 4,
    Form(capital=False, mark=""): 10,
    Form(capital=True, mark=".", quoted=True): 1,
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
    written = write_sentences(english, form), write_sentences([german for _, german in pairs], form)
    if form.quoted and '"' not in written[0]:
        written = f'"{written[0]}"', f"„{written[1]}“"
    return _quotation(random, written[0]), written[1]


def write_sentences(sentences: Sequence[str], form: Form) -> str:
    """Write sentences of a language, which the grammar leaves without capitals and full stops, in a form.

    A mark separates two sentences in any form.
    """
    *first, last = [_capitalised(sentence) if form.capital else sentence for sentence in sentences]
    return " ".join([*(_ended(sentence, form.mark or ".") for sentence in first), _ended(last, form.mark)])


def shortened(english: str) -> str:
    """Write "do not" as "don't", and "I am" at the beginning of a sentence as "I'm"."""
    for long, short in _SHORT:
        english = re.sub(long, short, english)
    return english


def _capitalised(sentence: str) -> str:
    """Begin a sentence, and one that is quoted after a colon, with a capital."""
    return re.sub(r'(?:^|: )["„]?\w', lambda start: start[0].upper(), sentence)


def _ended(sentence: str, mark: str) -> str:
    """Add the final mark, inside of quotation marks if a whole sentence is quoted at the end."""
    text = sentence.rstrip('"“') if ': "' in sentence or ": „" in sentence else sentence
    closing = sentence[len(text) :]
    if not mark:
        return text.removesuffix("?") + closing
    return (text if text.endswith("?") else text + mark) + closing


def _quotation(random: Random, english: str) -> str:
    """Write a comma before direct speech, or typographic quotation marks, or both, or neither."""
    if random.random() < 0.5:
        english = english.replace(': "', ', "')
    return re.sub(r'"([^"]*)"', r"“\1”", english) if random.random() < 0.3 else english
