"""The demo corpus: its nouns and adjectives, and their inflection."""

from random import Random

import pytest
from demo_meanings import ANNAS, MY, OUR, many, noun, one

from minitransformer.data.demo.adjectives import COLOURS, QUALITIES
from minitransformer.data.demo.function_words import ALL, HOW_MANY, MANY, NO, NO_DETERMINER, THE, THIS, WHICH, A
from minitransformer.data.demo.german import german_phrase
from minitransformer.data.demo.lexicon import Case, Gender, SemanticClass
from minitransformer.data.demo.meaning import NounPhrase
from minitransformer.data.demo.nouns import NOUNS
from minitransformer.data.demo.phrases import cardinal, fresh_noun


def forms(singular: NounPhrase, plural: NounPhrase) -> str:
    return "\n".join(", ".join(german_phrase(phrase, case) for phrase in (singular, plural)) for case in Case)


@pytest.mark.parametrize(
    ("singular", "plural", "declension"),
    [
        (
            one(THE, "dog", "small"),
            many(THE, "dog", "small"),
            "der kleine Hund, die kleinen Hunde\n"
            "den kleinen Hund, die kleinen Hunde\n"
            "dem kleinen Hund, den kleinen Hunden\n"
            "des kleinen Hundes, der kleinen Hunde",
        ),
        (
            one(THE, "woman", "young"),
            many(THIS, "woman", "young"),
            "die junge Frau, diese jungen Frauen\n"
            "die junge Frau, diese jungen Frauen\n"
            "der jungen Frau, diesen jungen Frauen\n"
            "der jungen Frau, dieser jungen Frauen",
        ),
        (
            one(THE, "house", "expensive"),
            many(ALL, "house", "dark"),
            "das teure Haus, alle dunklen Häuser\n"
            "das teure Haus, alle dunklen Häuser\n"
            "dem teuren Haus, allen dunklen Häusern\n"
            "des teuren Hauses, aller dunklen Häuser",
        ),
        (
            one(A, "man", "old"),
            many(NO, "man", "old"),
            "ein alter Mann, keine alten Männer\n"
            "einen alten Mann, keine alten Männer\n"
            "einem alten Mann, keinen alten Männern\n"
            "eines alten Mannes, keiner alten Männer",
        ),
        (
            one(A, "cow", "black"),
            many(OUR, "cow", "black"),
            "eine schwarze Kuh, unsere schwarzen Kühe\n"
            "eine schwarze Kuh, unsere schwarzen Kühe\n"
            "einer schwarzen Kuh, unseren schwarzen Kühen\n"
            "einer schwarzen Kuh, unserer schwarzen Kühe",
        ),
        (
            one(MY, "car", "new"),
            many(MANY, "car", "new"),
            "mein neues Auto, viele neue Autos\n"
            "mein neues Auto, viele neue Autos\n"
            "meinem neuen Auto, vielen neuen Autos\n"
            "meines neuen Autos, vieler neuer Autos",
        ),
        (
            one(NO_DETERMINER, "wine", "cold"),
            many(NO_DETERMINER, "apple", "fresh"),
            "kalter Wein, frische Äpfel\n"
            "kalten Wein, frische Äpfel\n"
            "kaltem Wein, frischen Äpfeln\n"
            "kalten Weins, frischer Äpfel",
        ),
        (
            one(NO_DETERMINER, "milk", "warm"),
            many(cardinal(3), "garden", "big"),
            "warme Milch, drei große Gärten\n"
            "warme Milch, drei große Gärten\n"
            "warmer Milch, drei großen Gärten\n"
            "warmer Milch, drei großer Gärten",
        ),
        (
            one(ANNAS, "horse", "white"),
            many(ANNAS, "horse", "white"),
            "Annas weißes Pferd, Annas weiße Pferde\n"
            "Annas weißes Pferd, Annas weiße Pferde\n"
            "Annas weißem Pferd, Annas weißen Pferden\n"
            "Annas weißen Pferdes, Annas weißer Pferde",
        ),
        (
            one(WHICH, "boy"),
            many(HOW_MANY, "boy"),
            "welcher Junge, wie viele Jungen\n"
            "welchen Jungen, wie viele Jungen\n"
            "welchem Jungen, wie vielen Jungen\n"
            "welches Jungen, wie vieler Jungen",
        ),
    ],
)
def test_declension(singular: NounPhrase, plural: NounPhrase, declension: str) -> None:
    assert forms(singular, plural) == declension


def test_a_fresh_noun_is_another_one_if_there_is_one() -> None:
    random, tree, river = Random(1), one(THE, "tree"), one(THE, "river")
    assert {fresh_noun(random, (SemanticClass.WATERS,), [river]) for _ in range(50)} == {noun("lake")}
    assert fresh_noun(random, (SemanticClass.PLANT,), [tree]) is noun("tree")


def test_every_noun_has_the_forms_of_its_number() -> None:
    for each in NOUNS:
        assert bool(each.english_plural) == bool(each.german_plural)
        assert each.english != each.english_plural
        assert each.german_genitive.endswith("s") or each.gender is not Gender.NEUTER


def test_english_words_have_one_german_noun_or_adjective() -> None:
    for words in (NOUNS, (*QUALITIES, *COLOURS)):
        assert len({word.english for word in words}) == len({word.german for word in words}) == len(words)
