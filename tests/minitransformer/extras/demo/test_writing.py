"""The demo corpus: sentences written in the ways in which people write them."""

from random import Random

import pytest

from minitransformer.extras.demo.writing import FORMS, Form, line, shortened, write_sentences

STATEMENT, QUESTION = "the dog sleeps", "does it rain?"


@pytest.mark.parametrize(("capital", "mark", "statement", "question", "both"), [
    (True, ".", "The dog sleeps.", "Does it rain?", "Does it rain? The dog sleeps."),
    (True, "!", "The dog sleeps!", "Does it rain?", "Does it rain? The dog sleeps!"),
    (True, "", "The dog sleeps", "Does it rain", "Does it rain? The dog sleeps"),
    (False, ".", "the dog sleeps.", "does it rain?", "does it rain? the dog sleeps."),
    (False, "", "the dog sleeps", "does it rain", "does it rain? the dog sleeps"),
])  # fmt: skip
def test_forms(capital: bool, mark: str, statement: str, question: str, both: str) -> None:
    form = Form(capital, mark)
    assert form in FORMS
    assert write_sentences([STATEMENT], form) == statement
    assert write_sentences([QUESTION], form) == question
    assert write_sentences([QUESTION, STATEMENT], form) == both


def test_two_statements_are_separated_in_every_form() -> None:
    assert write_sentences([STATEMENT, STATEMENT], Form(capital=False, mark="")) == "the dog sleeps. the dog sleeps"


def test_an_umlaut_becomes_a_capital() -> None:
    assert write_sentences(["über"], Form(capital=True, mark=".")) == "Über."


@pytest.mark.parametrize(("long", "short"), [
    ("the dog does not sleep", "the dog doesn't sleep"), ("we have not seen it", "we haven't seen it"),
    ("the king will not sing", "the king won't sing"), ("Anna cannot swim", "Anna can't swim"),
    ("I am tired", "I'm tired"), ("she is not sad", "she isn't sad"), ("it is five o'clock", "it's five o'clock"),
    ("you are old", "you're old"), ("they will come", "they'll come"), ("who is tired?", "who is tired?"),
    ("the man whom she is with", "the man whom she is with"),
])  # fmt: skip
def test_short_forms(long: str, short: str) -> None:
    assert shortened(long) == short


def test_a_line_has_one_form_in_both_languages_and_short_forms_in_some() -> None:
    random, pairs = Random(1), [("I am old", "ich bin alt"), ("does it rain?", "regnet es?")]
    lines = {line(random, pairs) for _ in range(300)}
    assert len(lines) == 2 * len(FORMS)
    assert ("I'm old. Does it rain?", "Ich bin alt. Regnet es?") in lines
    assert ("I am old. does it rain", "ich bin alt. regnet es") in lines
