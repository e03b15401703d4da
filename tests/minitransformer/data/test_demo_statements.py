"""The demo corpus: every construction of a statement of one clause."""

from dataclasses import replace

import pytest
from demo_meanings import (
    ANNA_GETS_UP,
    ANNAS,
    CHILD_SLEEPS,
    DOG_SEES,
    HIS,
    MAN_BUYS,
    MY,
    OUR,
    adjective,
    many,
    named,
    one,
    verb,
)

from minitransformer.data.demo import SHOWCASE
from minitransformer.data.demo.english import english_sentence
from minitransformer.data.demo.function_words import (
    CAN,
    IN,
    IN_FRONT_OF,
    INTO,
    NO,
    NO_DETERMINER,
    PROPER_NAME,
    THE,
    THIS,
    TO,
    TO_CITY,
    WANT,
    WILL,
    WITH,
    A,
)
from minitransformer.data.demo.german import german_sentence
from minitransformer.data.demo.lexicon import Number, Preposition, Tense
from minitransformer.data.demo.meaning import (
    HE,
    SHE,
    THEY,
    WE,
    Clause,
    Comparison,
    Conjunct,
    Expression,
    I,
    NounPhrase,
    Phrase,
    PrepositionalPhrase,
    Role,
    Sentence,
    Statement,
)
from minitransformer.data.demo.nouns import INHABITANT
from minitransformer.data.demo.phrases import cardinal
from minitransformer.data.demo.verbs import BE, HAVE


def at(preposition: Preposition, phrase: Phrase) -> PrepositionalPhrase:
    return PrepositionalPhrase(preposition, phrase)


TODAY = Expression("today", "heute")
YESTERDAY = Expression("yesterday", "gestern")

SENTENCES: list[tuple[Sentence, str, str]] = [
    (Statement(DOG_SEES), *SHOWCASE),
    (
        Statement(replace(MAN_BUYS, circumstance=TODAY), Role.CIRCUMSTANCE),
        "today the old man buys a red car",
        "heute kauft der alte Mann ein rotes Auto",
    ),
    (
        Statement(replace(MAN_BUYS, circumstance=YESTERDAY, tense=Tense.PAST)),
        "the old man bought a red car yesterday",
        "der alte Mann hat gestern ein rotes Auto gekauft",
    ),
    (
        Statement(replace(MAN_BUYS, modal=WANT)),
        "the old man wants to buy a red car",
        "der alte Mann will ein rotes Auto kaufen",
    ),
    (
        Statement(replace(MAN_BUYS, object=one(THIS, "car"), modal=WANT, negated=True)),
        "the old man does not want to buy this car",
        "der alte Mann will dieses Auto nicht kaufen",
    ),
    (
        Statement(replace(MAN_BUYS, object=one(THE, "car"), negated=True)),
        "the old man does not buy the car",
        "der alte Mann kauft das Auto nicht",
    ),
    (Statement(replace(MAN_BUYS, object=one(NO, "car"))), "the old man buys no car", "der alte Mann kauft kein Auto"),
    (
        Statement(replace(MAN_BUYS, subject=I, object=many(NO_DETERMINER, "apple", "fresh"))),
        "I buy fresh apples",
        "ich kaufe frische Äpfel",
    ),
    (
        Statement(replace(MAN_BUYS, modal=WILL, circumstance=Expression("tomorrow", "morgen")), Role.CIRCUMSTANCE),
        "tomorrow the old man will buy a red car",
        "morgen wird der alte Mann ein rotes Auto kaufen",
    ),
    (
        Statement(replace(ANNA_GETS_UP, circumstance=Expression("at half past seven", "um halb acht"))),
        "Anna gets up at half past seven",
        "Anna steht um halb acht auf",
    ),
    (Statement(replace(ANNA_GETS_UP, tense=Tense.PERFECT)), "Anna has gotten up", "Anna ist aufgestanden"),
    (Statement(replace(ANNA_GETS_UP, modal=CAN)), "Anna can get up", "Anna kann aufstehen"),
    (
        Statement(Clause(WE, verb("abholen"), object=HE)),
        "we pick him up",
        "wir holen ihn ab",
    ),
    (
        Statement(Clause(WE, verb("abholen"), object=one(OUR, "uncle"))),
        "we pick up our uncle",
        "wir holen unseren Onkel ab",
    ),
    (
        Statement(Clause(named("Paul"), verb("geben"), one(HIS, "sister"), one(A, "book", "new"))),
        "Paul gives his sister a new book",
        "Paul gibt seiner Schwester ein neues Buch",
    ),
    (
        Statement(Clause(SHE, verb("helfen"), object=many(THE, "child"))),
        "she helps the children",
        "sie hilft den Kindern",
    ),
    (
        Statement(Clause(one(A, "dog"), verb("fressen"), object=one(A, "apple"))),
        "a dog eats an apple",
        "ein Hund frisst einen Apfel",
    ),
    (Statement(Clause(HE, verb("essen"), object=one(A, "egg"))), "he eats an egg", "er isst ein Ei"),
    (
        Statement(replace(CHILD_SLEEPS, complement=at(IN, one(THE, "garden")))),
        "the child sleeps in the garden",
        "das Kind schläft im Garten",
    ),
    (
        Statement(Clause(THEY, verb("gehen"), complement=at(INTO, one(THE, "house")))),
        "they go into the house",
        "sie gehen ins Haus",
    ),
    (
        Statement(Clause(I, verb("gehen"), complement=at(TO, one(THE, "school")), negated=True)),
        "I do not go to the school",
        "ich gehe nicht zur Schule",
    ),
    (
        Statement(Clause(I, verb("reisen"), complement=at(TO_CITY, one(PROPER_NAME, "Vienna")), tense=Tense.PERFECT)),
        "I have traveled to Vienna",
        "ich bin nach Wien gereist",
    ),
    (
        Statement(Clause(one(THE, "baker"), verb("tanzen"), complement=at(WITH, one(ANNAS, "aunt", "old")))),
        "the baker dances with Anna's old aunt",
        "der Bäcker tanzt mit Annas alter Tante",
    ),
    (
        Statement(
            Clause(
                replace(one(THE, "bottle"), possessor=one(THE, "man", "old")),
                BE,
                complement=at(IN_FRONT_OF, one(A, "church")),
            )
        ),
        "the bottle of the old man is in front of a church",
        "die Flasche des alten Mannes ist vor einer Kirche",
    ),
    (
        Statement(Clause(many(THE, "lamp"), BE, complement=Expression("very old", "sehr alt"), negated=True)),
        "the lamps are not very old",
        "die Lampen sind nicht sehr alt",
    ),
    (
        Statement(
            Clause(I, BE, complement=Expression("tired", "müde"), tense=Tense.PAST, circumstance=YESTERDAY),
            Role.CIRCUMSTANCE,
        ),
        "yesterday I was tired",
        "gestern war ich müde",
    ),
    (
        Statement(Clause(one(THE, "dog"), BE, complement=Comparison(adjective("big"), one(MY, "cat")))),
        "the dog is bigger than my cat",
        "der Hund ist größer als meine Katze",
    ),
    (
        Statement(Clause(HE, verb("lesen"), object=one(THE, "letter"), frequency=Expression("often", "oft"))),
        "he often reads the letter",
        "er liest den Brief oft",
    ),
    (
        Statement(Clause(HE, verb("lesen"), object=one(A, "letter"), frequency=Expression("often", "oft"))),
        "he often reads a letter",
        "er liest oft einen Brief",
    ),
    (
        Statement(Clause(Conjunct(one(THE, "man"), one(HIS, "son")), verb("singen"))),
        "the man and his son sing",
        "der Mann und sein Sohn singen",
    ),
    (
        Statement(
            Clause(one(THE, "city"), HAVE, object=NounPhrase(cardinal(312_405), INHABITANT, Number.PLURAL)),
        ),
        "the city has three hundred and twelve thousand four hundred and five inhabitants",
        "die Stadt hat dreihundertzwölftausendvierhundertfünf Einwohner",
    ),
]


@pytest.mark.parametrize(("meaning", "english", "german"), SENTENCES, ids=[english for _, english, _ in SENTENCES])
def test_sentence(meaning: Sentence, english: str, german: str) -> None:
    assert (english_sentence(meaning), german_sentence(meaning)) == (english, german)
