"""The demo corpus: every construction of a statement of one clause, of a question, and of several clauses."""

from dataclasses import replace

import pytest
from demo_meanings import ANNA_GETS_UP, ANNAS, CHILD_SLEEPS, DOG_SEES, MAN_BUYS, adjective, ask, many, named, one, say

from minitransformer.extras.demo import SHOWCASE
from minitransformer.extras.demo.clauses import than
from minitransformer.extras.demo.english import english_sentence
from minitransformer.extras.demo.german import german_sentence
from minitransformer.extras.demo.meaning import (
    Clause,
    Compound,
    Governed,
    NounPhrase,
    Pair,
    Phrase,
    Role,
    Sentence,
    Speech,
)
from minitransformer.extras.demo.numbers import fill, spoken_time
from minitransformer.extras.demo.phrases import relative_pronoun
from minitransformer.extras.demo.words import BE, MODALS, PRONOUNS, Determiner, Text, places, verb


def at(preposition: str, phrase: Phrase) -> Governed:
    text, case, _ = places(f"{preposition}: person")[0]
    return Governed(text, case, phrase)


CITY = Determiner("", "", "")
YESTERDAY = Text("yesterday", "gestern")


def relative(antecedent: NounPhrase, front: Role, clause: Clause) -> NounPhrase:
    pronoun = relative_pronoun(antecedent)
    inner = replace(clause, subject=pronoun) if front == "subject" else replace(clause, object=pronoun)
    return replace(antecedent, relative=replace(inner, front=front))


SENTENCES: list[tuple[Sentence, str, str]] = [
    (say(DOG_SEES), *SHOWCASE[0]),
    (say(Clause(named("Obama"), verb("sehen"), object=one("the", "house", "red"))), *SHOWCASE[3]),
    (say(Clause(one("the", "train"), verb("abfahren"), circumstance=fill("at {}", "um {}", spoken_time(7, 30)))),
        *SHOWCASE[4]),
    (say(replace(MAN_BUYS, circumstance=YESTERDAY, tense="past")), "the old man bought a red car yesterday",
        "der alte Mann hat gestern ein rotes Auto gekauft"),
    (say(replace(MAN_BUYS, object=one("this", "car"), modal=MODALS["want"], negated=True)),
        "the old man does not want to buy this car", "der alte Mann will dieses Auto nicht kaufen"),
    (say(replace(MAN_BUYS, object=one("the", "car"), modal=MODALS["can"], negated=True)),
        "the old man cannot buy the car", "der alte Mann kann das Auto nicht kaufen"),
    (say(replace(MAN_BUYS, object=one("the", "car"), negated=True)), "the old man does not buy the car",
        "der alte Mann kauft das Auto nicht"),
    (say(replace(ANNA_GETS_UP, modal=MODALS["can"])), "Anna can get up", "Anna kann aufstehen"),
    (say(Clause(PRONOUNS["we"], verb("abholen"), object=PRONOUNS["he"])), "we pick him up", "wir holen ihn ab"),
    (say(Clause(PRONOUNS["we"], verb("abholen"), object=one("our", "uncle"))), "we pick up our uncle",
        "wir holen unseren Onkel ab"),
    (say(Clause(named("Paul"), verb("geben"), one("his", "sister"), one("a", "book", "new"))),
        "Paul gives his sister a new book", "Paul gibt seiner Schwester ein neues Buch"),
    (say(Clause(one("a", "dog"), verb("fressen"), object=one("a", "apple"))), "a dog eats an apple",
        "ein Hund frisst einen Apfel"),
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
    (say(Clause(PRONOUNS["she"], verb("helfen"), object=PRONOUNS["you"], modal=MODALS["will"])), "she will help you",
        "sie wird dir helfen"),
    (say(Clause(Pair(one("the", "man"), one("his", "son")), verb("singen"))), "the man and his son sing",
        "der Mann und sein Sohn singen"),
    (say(Clause(relative(one("the", "car"), "object", Clause(named("Emil"), verb("kaufen"))), verb("kosten"),
        complement=Text("$12.50", "12,50 $"))), "the car that Emil buys costs $12.50",
        "das Auto, das Emil kauft, kostet 12,50 $"),
    (say(Clause(PRONOUNS["she"], verb("hören"),
        object=relative(one("the", "boy"), "subject", replace(ANNA_GETS_UP, tense="perfect")))),
        "she hears the boy who has gotten up", "sie hört den Jungen, der aufgestanden ist"),
    (ask(Clause(PRONOUNS["she"], verb("hören"),
        object=relative(many("the", "child"), "object", Clause(PRONOUNS["he"], verb("helfen"))))),
        "does she hear the children whom he helps?", "hört sie die Kinder, denen er hilft?"),
    (Compound(CHILD_SLEEPS, Text("because", "weil"), ANNA_GETS_UP), "the child sleeps because Anna gets up",
        "das Kind schläft, weil Anna aufsteht"),
    (Compound(CHILD_SLEEPS, Text("when", "wenn"), Clause(PRONOUNS["it"], verb("regnen")), second_first=True),
        "when it rains, the child sleeps", "wenn es regnet, schläft das Kind"),
    (Compound(CHILD_SLEEPS, Text("and", "und"), ANNA_GETS_UP), "the child sleeps, and Anna gets up",
        "das Kind schläft und Anna steht auf"),
    (Compound(CHILD_SLEEPS, Text("but", "aber"), ANNA_GETS_UP), "the child sleeps, but Anna gets up",
        "das Kind schläft, aber Anna steht auf"),
    (ask(replace(MAN_BUYS, tense="perfect")), "has the old man bought a red car?",
        "hat der alte Mann ein rotes Auto gekauft?"),
    (Compound(Clause(PRONOUNS["I"], verb("wissen"), negated=True), Text("whether", "ob"),
        Clause(one("the", "girl"), verb("kaufen"), object=one("the", "coat", "green"), tense="perfect")), *SHOWCASE[2]),
    (ask(Clause(one("the", "girl"), BE, complement=Text("where", "wo")), "complement"), "where is the girl?",
        "wo ist das Mädchen?"),
    (ask(Clause(one("your", "sister"), verb("wohnen"), complement=Text("where", "wo")), "complement"), *SHOWCASE[1]),
    (ask(Clause(PRONOUNS["you"], verb("helfen"), object=PRONOUNS["I"], modal=MODALS["can"])), *SHOWCASE[5]),
    (ask(replace(MAN_BUYS, subject=PRONOUNS["who"]), "subject"), "who buys a red car?", "wer kauft ein rotes Auto?"),
    (ask(Clause(named("Paul"), verb("helfen"), object=PRONOUNS["who"]), "object"), "whom does Paul help?",
        "wem hilft Paul?"),
    (ask(replace(ANNA_GETS_UP, circumstance=Text("when", "wann"), tense="past"), "circumstance"),
        "when did Anna get up?", "wann ist Anna aufgestanden?"),
    (ask(replace(MAN_BUYS, object=many("how many", "house")), "object"), "how many houses does the old man buy?",
        "wie viele Häuser kauft der alte Mann?"),
    (say(Clause(Pair(named("Anna"), named("Paul"), Text("&", "&")), verb("singen"))), "Anna & Paul sing",
        "Anna & Paul singen"),
    (Speech(Clause(named("Anna"), verb("fragen")), ask(DOG_SEES)),
        'Anna asks: "does the small dog see three red houses?"',
        "Anna fragt: „sieht der kleine Hund drei rote Häuser?“"),
    (Speech(Clause(PRONOUNS["he"], verb("sagen")), CHILD_SLEEPS, speech_first=True), '"the child sleeps," he says',
        "„das Kind schläft“, sagt er"),
    (Speech(Clause(named("Anna"), verb("sagen")), CHILD_SLEEPS, speech_first=True, inverted=True),
        '"the child sleeps," says Anna', "„das Kind schläft“, sagt Anna"),
    (Text("good morning, Obama", "guten Morgen, Obama"), "good morning, Obama", "guten Morgen, Obama"),
]  # fmt: skip


@pytest.mark.parametrize(("meaning", "english", "german"), SENTENCES, ids=lambda value: str(value)[:60])
def test_sentence(meaning: Sentence, english: str, german: str) -> None:
    assert (english_sentence(meaning), german_sentence(meaning)) == (english, german)


@pytest.mark.parametrize(("infinitive", "german"), [
    ("sein", "du bist"), ("haben", "du hast"), ("sehen", "du siehst"), ("arbeiten", "du arbeitest"),
    ("waschen", "du wäschst"), ("lesen", "du liest"), ("tanzen", "du tanzt"), ("essen", "du isst"),
    ("wissen", "du weißt"), ("mögen", "du magst"), ("einladen", "du lädst ein"),
])  # fmt: skip
def test_a_verb_after_du(infinitive: str, german: str) -> None:
    assert german_sentence(Clause(PRONOUNS["you"], verb(infinitive))) == german
