"""The sentence patterns of the demo language and their frequencies."""

from collections.abc import Callable
from random import Random

from minitransformer.data.demo import complexes, quantities, questions, statements
from minitransformer.data.demo.english import english_sentence
from minitransformer.data.demo.function_words import NAMES
from minitransformer.data.demo.german import german_sentence
from minitransformer.data.demo.meaning import Clause, Sentence, Statement
from minitransformer.data.demo.weighted import Weighted

MAX_WORDS = 25
"""The longest English sentence, in words."""


def _stated(draw_clause: Callable[[Random], Clause]) -> Callable[[Random], Statement]:
    return lambda random: Statement(draw_clause(random))


PATTERNS: Weighted[Callable[[Random], Sentence]] = Weighted(
    (statements.action, 12),
    (statements.state, 4),
    (statements.present_time, 8),
    (statements.past_time, 9),
    (statements.future_time, 6),
    (statements.timetable, 3),
    (statements.modal, 5),
    (statements.perfect, 4),
    (statements.frequent, 4),
    (statements.negated, 4),
    (statements.negated_description, 1),
    (statements.negative_object, 2),
    (statements.negative_subject, 1),
    (statements.described, 3),
    (statements.located, 2),
    (statements.compared, 2),
    (statements.characterised, 1),
    (complexes.adverbial_subordination, 9),
    (complexes.that_clause, 5),
    (complexes.whether_clause, 2),
    (complexes.relative_subject, 6),
    (complexes.relative_object, 5),
    (complexes.coordination, 6),
    (questions.polar_question, 4),
    (questions.polar_description, 1),
    (questions.who_question, 2),
    (questions.what_question, 2),
    (questions.where_question, 2),
    (questions.when_question, 2),
    (questions.why_question, 2),
    (questions.which_subject, 1),
    (questions.which_object, 2),
    (questions.measure_question, 1),
    (_stated(quantities.inhabitants), 3),
    (_stated(quantities.count), 4),
    (_stated(quantities.number_written), 3),
    (_stated(quantities.arithmetic), 3),
    (_stated(quantities.price), 4),
    (_stated(quantities.weight), 1),
    (_stated(quantities.length), 1),
    (_stated(quantities.age), 2),
    (_stated(quantities.clock), 1),
    (_stated(quantities.day), 2),
)
"""The patterns, each drawing a random meaning, with their relative frequencies."""


def sentence_pair(random: Random) -> tuple[str, str]:
    """A random English sentence and its German translation."""
    while True:
        meaning = PATTERNS.draw(random)(random)
        english = english_sentence(meaning)
        if _is_natural(english):
            return english, german_sentence(meaning)


def _is_natural(english: str) -> bool:
    """Whether a sentence is not too long, and nobody in it has both a name and "Anna's" where "her" belongs."""
    words = english.split()
    return len(words) <= MAX_WORDS and not any(name in words and f"{name}'s" in words for name in NAMES)
