"""The demo corpus: every construction of a statement of one clause."""

from dataclasses import replace

import pytest
from demo_meanings import ANNA_GETS_UP, ANNAS, CHILD_SLEEPS, DOG_SEES, MAN_BUYS, adjective, many, named, one, say

from minitransformer.extras.demo import SHOWCASE
from minitransformer.extras.demo.clauses import than
from minitransformer.extras.demo.english import english_sentence
from minitransformer.extras.demo.german import german_sentence
from minitransformer.extras.demo.invented import genitive
from minitransformer.extras.demo.meaning import Clause, Governed, Pair, Phrase, Sentence
from minitransformer.extras.demo.numbers import fill, spoken_time
from minitransformer.extras.demo.phrases import cardinal
from minitransformer.extras.demo.words import BE, HAVE, MODALS, PRONOUNS, Determiner, Text, places, verb


def at(preposition: str, phrase: Phrase) -> Governed:
    text, case, _ = places(f"{preposition}: person")[0]
    return Governed(text, case, phrase)


CITY = Determiner("", "", "")
TODAY = Text("today", "heute")
YESTERDAY = Text("yesterday", "gestern")

SENTENCES: list[tuple[Sentence, str, str]] = [
    (say(DOG_SEES), *SHOWCASE[0]),
    (say(Clause(named("Obama"), verb("sehen"), object=one("the", "house", "red"))), *SHOWCASE[3]),
    (say(Clause(one("the", "train"), verb("abfahren"), circumstance=fill("at {}", "um {}", spoken_time(7, 30)))),
        *SHOWCASE[4]),
    (say(replace(MAN_BUYS, circumstance=TODAY), "circumstance"), "today the old man buys a red car",
        "heute kauft der alte Mann ein rotes Auto"),
    (say(replace(MAN_BUYS, circumstance=YESTERDAY, tense="past")), "the old man bought a red car yesterday",
        "der alte Mann hat gestern ein rotes Auto gekauft"),
    (say(replace(MAN_BUYS, modal=MODALS["want"])), "the old man wants to buy a red car",
        "der alte Mann will ein rotes Auto kaufen"),
    (say(replace(MAN_BUYS, object=one("this", "car"), modal=MODALS["want"], negated=True)),
        "the old man does not want to buy this car", "der alte Mann will dieses Auto nicht kaufen"),
    (say(replace(MAN_BUYS, object=one("the", "car"), modal=MODALS["can"], negated=True)),
        "the old man cannot buy the car", "der alte Mann kann das Auto nicht kaufen"),
    (say(replace(MAN_BUYS, object=one("the", "car"), negated=True)), "the old man does not buy the car",
        "der alte Mann kauft das Auto nicht"),
    (say(replace(MAN_BUYS, object=one("no", "car"))), "the old man buys no car", "der alte Mann kauft kein Auto"),
    (say(replace(MAN_BUYS, subject=PRONOUNS["I"], object=many("", "apple", "fresh"))), "I buy fresh apples",
        "ich kaufe frische Äpfel"),
    (say(replace(MAN_BUYS, modal=MODALS["will"], circumstance=Text("tomorrow", "morgen")), "circumstance"),
        "tomorrow the old man will buy a red car", "morgen wird der alte Mann ein rotes Auto kaufen"),
    (say(replace(ANNA_GETS_UP, circumstance=Text("at half past seven", "um halb acht"))),
        "Anna gets up at half past seven", "Anna steht um halb acht auf"),
    (say(replace(ANNA_GETS_UP, tense="perfect")), "Anna has gotten up", "Anna ist aufgestanden"),
    (say(replace(ANNA_GETS_UP, modal=MODALS["can"])), "Anna can get up", "Anna kann aufstehen"),
    (say(Clause(PRONOUNS["we"], verb("abholen"), object=PRONOUNS["he"])), "we pick him up", "wir holen ihn ab"),
    (say(Clause(PRONOUNS["we"], verb("abholen"), object=one("our", "uncle"))), "we pick up our uncle",
        "wir holen unseren Onkel ab"),
    (say(Clause(named("Paul"), verb("geben"), one("his", "sister"), one("a", "book", "new"))),
        "Paul gives his sister a new book", "Paul gibt seiner Schwester ein neues Buch"),
    (say(Clause(PRONOUNS["she"], verb("helfen"), object=many("the", "child"))), "she helps the children",
        "sie hilft den Kindern"),
    (say(Clause(one("a", "dog"), verb("fressen"), object=one("a", "apple"))), "a dog eats an apple",
        "ein Hund frisst einen Apfel"),
    (say(Clause(PRONOUNS["he"], verb("essen"), object=one("a", "egg"))), "he eats an egg", "er isst ein Ei"),
    (say(replace(CHILD_SLEEPS, complement=at("in", one("the", "garden")))), "the child sleeps in the garden",
        "das Kind schläft im Garten"),
    (say(Clause(PRONOUNS["they"], verb("gehen"), complement=at("into", one("the", "house")))), "they go into the house",
        "sie gehen ins Haus"),
    (say(Clause(PRONOUNS["I"], verb("gehen"), complement=at("to", one("the", "school")), negated=True)),
        "I do not go to the school", "ich gehe nicht zur Schule"),
    (say(Clause(PRONOUNS["I"], verb("reisen"), complement=at("to/city", one(CITY, "Vienna")), tense="perfect")),
        "I have traveled to Vienna", "ich bin nach Wien gereist"),
    (say(Clause(one("the", "baker"), verb("tanzen"), complement=at("with", one(ANNAS, "aunt", "old")))),
        "the baker dances with Anna's old aunt", "der Bäcker tanzt mit Annas alter Tante"),
    (say(Clause(replace(one("the", "bottle"), possessor=one("the", "man", "old")), BE,
        complement=at("in front of", one("a", "church")))), "the bottle of the old man is in front of a church",
        "die Flasche des alten Mannes ist vor einer Kirche"),
    (say(Clause(many("the", "lamp"), BE, complement=Text("very old", "sehr alt"), negated=True)),
        "the lamps are not very old", "die Lampen sind nicht sehr alt"),
    (say(Clause(PRONOUNS["I"], BE, complement=Text("tired", "müde"), tense="past", circumstance=YESTERDAY),
        "circumstance"), "yesterday I was tired", "gestern war ich müde"),
    (say(Clause(one("the", "dog"), BE, complement=than(adjective("big"), one("my", "cat")))),
        "the dog is bigger than my cat", "der Hund ist größer als meine Katze"),
    (say(Clause(PRONOUNS["he"], verb("lesen"), object=one("the", "letter"), frequency=Text("often", "oft"))),
        "he often reads the letter", "er liest den Brief oft"),
    (say(Clause(PRONOUNS["he"], verb("lesen"), object=one("a", "letter"), frequency=Text("often", "oft"))),
        "he often reads a letter", "er liest oft einen Brief"),
    (say(Clause(PRONOUNS["you"], verb("einladen"), object=one("your", "aunt"), tense="perfect")),
        "you have invited your aunt", "du hast deine Tante eingeladen"),
    (say(Clause(PRONOUNS["she"], verb("helfen"), object=PRONOUNS["you"], modal=MODALS["will"])), "she will help you",
        "sie wird dir helfen"),
    (say(Clause(one("the", "king"), verb("besuchen"), object=one(genitive("Hans"), "friend", "old"))),
        "the king visits Hans's old friend", "der König besucht Hans' alten Freund"),
    (say(Clause(Pair(one("the", "man"), one("his", "son")), verb("singen"))), "the man and his son sing",
        "der Mann und sein Sohn singen"),
    (say(Clause(one("the", "city"), HAVE, object=many(cardinal(312_405), "inhabitant"))),
        "the city has three hundred and twelve thousand four hundred and five inhabitants",
        "die Stadt hat dreihundertzwölftausendvierhundertfünf Einwohner"),
]  # fmt: skip


@pytest.mark.parametrize(("meaning", "english", "german"), SENTENCES, ids=[english for _, english, _ in SENTENCES])
def test_sentence(meaning: Sentence, english: str, german: str) -> None:
    assert (english_sentence(meaning), german_sentence(meaning)) == (english, german)


@pytest.mark.parametrize(("infinitive", "german"), [
    ("sein", "du bist"), ("haben", "du hast"), ("sehen", "du siehst"), ("arbeiten", "du arbeitest"),
    ("waschen", "du wäschst"), ("lesen", "du liest"), ("tanzen", "du tanzt"), ("essen", "du isst"),
    ("wissen", "du weißt"), ("mögen", "du magst"), ("einladen", "du lädst ein"),
])  # fmt: skip
def test_a_verb_after_du(infinitive: str, german: str) -> None:
    assert german_sentence(Clause(PRONOUNS["you"], verb(infinitive))) == german
