"""The demo corpus: words that nobody knows, to be copied."""

from random import Random

import pytest

from minitransformer.extras.demo.invented import genitive, name, noun, word
from minitransformer.extras.demo.phrases import any_noun
from minitransformer.extras.demo.words import NAMES, NOUNS


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
