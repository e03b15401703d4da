"""The demo corpus: its nouns and adjectives, and their inflection."""

from random import Random

import pytest
from demo_meanings import ANNAS, many, one

from minitransformer.extras.demo.german import CASES, german_phrase
from minitransformer.extras.demo.meaning import NounPhrase
from minitransformer.extras.demo.phrases import cardinal, fresh_noun
from minitransformer.extras.demo.words import DATA, NOUNS


def forms(singular: NounPhrase, plural: NounPhrase) -> str:
    return "\n".join(", ".join(german_phrase(phrase, case) for phrase in (singular, plural)) for case in CASES)


@pytest.mark.parametrize(("singular", "plural", "declension"), [
    (one("the", "dog", "small"), many("the", "dog", "small"),
        "der kleine Hund, die kleinen Hunde\n" "den kleinen Hund, die kleinen Hunde\n"
        "dem kleinen Hund, den kleinen Hunden\n" "des kleinen Hundes, der kleinen Hunde"),
    (one("the", "woman", "young"), many("this", "woman", "young"),
        "die junge Frau, diese jungen Frauen\n" "die junge Frau, diese jungen Frauen\n"
        "der jungen Frau, diesen jungen Frauen\n" "der jungen Frau, dieser jungen Frauen"),
    (one("the", "house", "expensive"), many("all", "house", "dark"),
        "das teure Haus, alle dunklen Häuser\n" "das teure Haus, alle dunklen Häuser\n"
        "dem teuren Haus, allen dunklen Häusern\n" "des teuren Hauses, aller dunklen Häuser"),
    (one("a", "man", "old"), many("no", "man", "old"),
        "ein alter Mann, keine alten Männer\n" "einen alten Mann, keine alten Männer\n"
        "einem alten Mann, keinen alten Männern\n" "eines alten Mannes, keiner alten Männer"),
    (one("a", "cow", "black"), many("our", "cow", "black"),
        "eine schwarze Kuh, unsere schwarzen Kühe\n" "eine schwarze Kuh, unsere schwarzen Kühe\n"
        "einer schwarzen Kuh, unseren schwarzen Kühen\n" "einer schwarzen Kuh, unserer schwarzen Kühe"),
    (one("my", "car", "new"), many("many", "car", "new"),
        "mein neues Auto, viele neue Autos\n" "mein neues Auto, viele neue Autos\n"
        "meinem neuen Auto, vielen neuen Autos\n" "meines neuen Autos, vieler neuer Autos"),
    (one("", "wine", "cold"), many("", "apple", "fresh"),
        "kalter Wein, frische Äpfel\n" "kalten Wein, frische Äpfel\n" "kaltem Wein, frischen Äpfeln\n"
        "kalten Weins, frischer Äpfel"),
    (one("", "milk", "warm"), many(cardinal(3), "garden", "big"),
        "warme Milch, drei große Gärten\n" "warme Milch, drei große Gärten\n" "warmer Milch, drei großen Gärten\n"
        "warmer Milch, drei großer Gärten"),
    (one(ANNAS, "horse", "white"), many(ANNAS, "horse", "white"),
        "Annas weißes Pferd, Annas weiße Pferde\n" "Annas weißes Pferd, Annas weiße Pferde\n"
        "Annas weißem Pferd, Annas weißen Pferden\n" "Annas weißen Pferdes, Annas weißer Pferde"),
    (one("which", "boy"), many("how many", "boy"),
        "welcher Junge, wie viele Jungen\n" "welchen Jungen, wie viele Jungen\n" "welchem Jungen, wie vielen Jungen\n"
        "welches Jungen, wie vieler Jungen"),
])  # fmt: skip
def test_declension(singular: NounPhrase, plural: NounPhrase, declension: str) -> None:
    assert forms(singular, plural) == declension


def test_a_fresh_noun_is_another_one_if_there_is_one() -> None:
    random, tree, river = Random(1), one("the", "tree"), one("the", "river")
    assert {fresh_noun(random, "waters", [river]).english for _ in range(50)} == {"lake"}
    assert fresh_noun(random, "plant", [tree]).english == "tree"


def test_every_noun_has_the_forms_of_its_number() -> None:
    for each in NOUNS.values():
        assert bool(each.english_plural) == bool(each.german_plural)
        assert each.english != each.english_plural
        assert each.genitive.endswith("s") or each.article != "das"


def test_english_words_have_one_german_noun_or_adjective() -> None:
    for rows in (DATA["nouns"], [*DATA["moods"], *DATA["qualities"], *DATA["colours"]]):
        assert len({row[0] for row in rows}) == len({row[2] for row in rows}) == len(rows)
