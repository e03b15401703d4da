"""The demo corpus: its file of words names only what is there."""

from minitransformer.extras.demo.words import (
    COLOURS,
    DATA,
    DETERMINERS,
    MOODS,
    NOUNS,
    QUALITIES,
    VERBS,
    classes,
    places,
)

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
