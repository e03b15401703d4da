"""Written forms of the grammar's sentences: capitals, final marks, quotation marks, short forms, two-sentence lines."""

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
    """The mark at the end of a statement.  A question ends in a question mark; if ``mark`` is "", it has no mark."""
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
"""The forms, each with its relative frequency."""
LENGTHS = {1: 9, 2: 1}
"""The numbers of sentences on a line, each with its relative frequency."""

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
    """Write sentences on one line in each language; draw one form for both lines.

    Also draw whether English has short forms, a comma before direct speech, and typographic quotation marks.
    """
    form = weighted(random, FORMS)
    english = [shortened(pair[0]) if random.random() < 0.5 else pair[0] for pair in pairs]
    written = write_sentences(english, form), write_sentences([german for _, german in pairs], form)
    if form.quoted and '"' not in written[0]:
        written = f'"{written[0]}"', f"„{written[1]}“"
    return _quotation(random, written[0]), written[1]


def write_sentences(sentences: Sequence[str], form: Form) -> str:
    """Join sentences of one language into a line, with the capitals and the final marks of ``form``.

    The grammar's sentences have neither capitals nor full stops.  If the form has no mark, a full stop separates two
    sentences.
    """
    *first, last = [_capitalise(sentence) if form.capital else sentence for sentence in sentences]
    return " ".join([*(_add_mark(sentence, form.mark or ".") for sentence in first), _add_mark(last, form.mark)])


def shortened(english: str) -> str:
    """Return a sentence with short forms, such as "don't" for "do not", or "I'm" for "I am" at its beginning."""
    for long, short in _SHORT:
        english = re.sub(long, short, english)
    return english


def _capitalise(sentence: str) -> str:
    """Capitalise the first letter of a sentence, and the first letter of direct speech after a colon."""
    return re.sub(r'(?:^|: )["„]?\w', lambda start: start[0].upper(), sentence)


def _add_mark(sentence: str, mark: str) -> str:
    """Add the final mark to a statement; if ``mark`` is "", remove the question mark of a question.

    If the sentence ends in direct speech, the mark is inside the quotation marks.
    """
    text = sentence.rstrip('"“') if ': "' in sentence or ": „" in sentence else sentence
    closing = sentence[len(text) :]
    if not mark:
        return text.removesuffix("?") + closing
    return (text if text.endswith("?") else text + mark) + closing


def _quotation(random: Random, english: str) -> str:
    """Draw whether a comma replaces the colon before direct speech, and whether quotation marks are typographic."""
    if random.random() < 0.5:
        english = english.replace(': "', ', "')
    return re.sub(r'"([^"]*)"', r"“\1”", english) if random.random() < 0.3 else english
