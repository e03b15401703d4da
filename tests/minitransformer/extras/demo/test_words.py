"""The demo corpus: its file of words, words that nobody knows, and the ways in which people write sentences."""

from __future__ import annotations

from random import Random

import pytest

from minitransformer.extras.demo.invented import genitive, name, noun, word
from minitransformer.extras.demo.phrases import any_noun
from minitransformer.extras.demo.words import (
    COLOURS,
    DATA,
    DETERMINERS,
    MOODS,
    NAMES,
    NOUNS,
    QUALITIES,
    VERBS,
    classes,
    places,
)
from minitransformer.extras.demo.writing import FORMS, Form, line, shortened, write_sentences

ALL_VERBS = [verb for table in VERBS.values() for verb in table]


def test_every_class_that_is_named_has_nouns() -> None:
    kinds = {noun.kind for noun in NOUNS.values()}
    named = [adjective.suits for adjective in (*COLOURS, *MOODS, *QUALITIES)]
    named += [names for verb in ALL_VERBS for names in (verb.subjects, verb.objects, verb.gifts)]
    named += [names for place in DATA["places"] for _, _, names in places(place)]
    assert {kind for names in named for kind in classes(names)} <= kinds


def test_every_place_that_a_verb_names_is_there() -> None:
    assert {place for verb in ALL_VERBS for place in (verb.goal, verb.places) if place} <= set(DATA["places"])


def test_every_determiner_that_is_drawn_is_there() -> None:
    drawn = {word for tables in DATA["uses"].values() for table in tables for word in table}
    assert drawn <= {*DETERMINERS, "own", "mine", "number"}


def test_every_verb_has_all_forms() -> None:
    for verb in ALL_VERBS:
        assert (len(verb.en.split(", ")), len(verb.de.split(", "))) == (4, 3)
        assert verb.de.split(", ")[2].startswith(verb.prefix)


def test_every_greeting_has_a_name() -> None:
    assert all(english.count("{name}") == german.count("{name}") == 1 for english, german in DATA["greetings"].items())


def test_words_are_hardly_ever_the_same_and_have_every_letter() -> None:
    random = Random(1)
    drawn = [word(random) for _ in range(3_000)]
    assert len(set(drawn)) > 2_500
    assert all(each.isalpha() and each.islower() and 3 <= len(each) <= 11 for each in drawn)
    assert {letter for each in drawn for letter in each} == set("abcdefghijklmnopqrstuvwxyzäöü")


def test_invented_words_have_the_beginnings_and_ends_of_known_words() -> None:
    random = Random(6)
    drawn = [word(random) for _ in range(20_000)]
    known = [noun.english for noun in NOUNS.values() if len(noun.english) >= 5]
    for part in (slice(4), slice(-4, None)):
        parts = {each[part] for each in drawn}
        assert sum(each[part] in parts for each in known) > 0.8 * len(known)


def test_no_word_of_the_language_is_invented() -> None:
    random = Random(2)
    drawn = {word(random) for _ in range(20_000)}
    known = {text.lower() for each in NOUNS.values() for text in (each.english, each.english_plural, each.german)}
    known |= {each.lower() for names in NAMES.values() for each in names}
    assert not drawn & known


def test_a_name_is_the_same_in_both_languages_and_begins_with_a_capital() -> None:
    random = Random(3)
    names = [name(random) for _ in range(200)]
    assert all(each.english == each.german == each.english.title() for each in names)
    assert {len(each.english.split()) for each in names} == {1, 2}


@pytest.mark.parametrize(
    ("name", "german"),
    [("Obama", "Obamas"), ("Hans", "Hans'"), ("Max", "Max'"), ("Strauß", "Strauß'"), ("Liz", "Liz'")],
)
def test_the_genitive_of_a_name(name: str, german: str) -> None:
    owner = genitive(name)
    assert (owner.english, owner.english_plural, owner.german) == (f"{name}'s", f"{name}'s", german)


def test_a_noun_is_a_neuter_loanword() -> None:
    random = Random(4)
    for _ in range(500):
        drawn = noun(random, "animal")
        assert drawn.german == drawn.english.capitalize()
        assert (drawn.article, drawn.kind, drawn.german_plural) == ("das", "animal", drawn.german + "s")
        assert drawn.english_plural == drawn.english + "s"
        assert drawn.english[-1] not in "sxzhy"
    city = noun(random, "city")
    assert (city.english, city.english_plural) == (city.german, city.german_plural + "")


@pytest.mark.parametrize(("kind", "least", "most"), [("person", 0, 0), ("animal", 0.03, 0.1), ("city", 0.3, 0.5)])
def test_some_nouns_that_are_drawn_are_invented(kind: str, least: float, most: float) -> None:
    random = Random(5)
    drawn = [any_noun(random, kind, ()) for _ in range(2_000)]
    assert least <= sum(each.english not in NOUNS for each in drawn) / len(drawn) <= most


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
