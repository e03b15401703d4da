"""The demo corpus: questions, and sentences of several clauses."""

from dataclasses import replace

import pytest
from demo_meanings import ANNA_GETS_UP, CHILD_SLEEPS, DOG_SEES, MAN_BUYS, ask, many, named, one, say

from minitransformer.extras.demo import SHOWCASE
from minitransformer.extras.demo.english import english_sentence
from minitransformer.extras.demo.german import german_sentence
from minitransformer.extras.demo.meaning import Clause, Compound, NounPhrase, Role, Sentence
from minitransformer.extras.demo.phrases import relative_pronoun
from minitransformer.extras.demo.words import BE, MODALS, PRONOUNS, Text, verb


def relative(antecedent: NounPhrase, front: Role, clause: Clause) -> NounPhrase:
    pronoun = relative_pronoun(antecedent)
    inner = replace(clause, subject=pronoun) if front == "subject" else replace(clause, object=pronoun)
    return replace(antecedent, relative=replace(inner, front=front))


SENTENCES: list[tuple[Sentence, str, str]] = [
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
    (Compound(Clause(PRONOUNS["I"], verb("wissen")), Text("that", "dass"), replace(MAN_BUYS, tense="perfect")),
        "I know that the old man has bought a red car", "ich weiß, dass der alte Mann ein rotes Auto gekauft hat"),
    (Compound(CHILD_SLEEPS, Text("and", "und"), ANNA_GETS_UP), "the child sleeps, and Anna gets up",
        "das Kind schläft und Anna steht auf"),
    (Compound(CHILD_SLEEPS, Text("but", "aber"), ANNA_GETS_UP), "the child sleeps, but Anna gets up",
        "das Kind schläft, aber Anna steht auf"),
    (ask(DOG_SEES), "does the small dog see three red houses?", "sieht der kleine Hund drei rote Häuser?"),
    (ask(replace(MAN_BUYS, tense="perfect")), "has the old man bought a red car?",
        "hat der alte Mann ein rotes Auto gekauft?"),
    (Compound(Clause(PRONOUNS["I"], verb("wissen"), negated=True), Text("whether", "ob"),
        Clause(one("the", "girl"), verb("kaufen"), object=one("the", "coat", "green"), tense="perfect")), *SHOWCASE[2]),
    (ask(Clause(one("the", "girl"), BE, complement=Text("where", "wo")), "complement"), "where is the girl?",
        "wo ist das Mädchen?"),
    (ask(Clause(PRONOUNS["you"], BE, complement=Text("how old", "wie alt")), "complement"), "how old are you?",
        "wie alt bist du?"),
    (ask(Clause(one("your", "sister"), verb("wohnen"), complement=Text("where", "wo")), "complement"), *SHOWCASE[1]),
    (ask(Clause(PRONOUNS["you"], verb("helfen"), object=PRONOUNS["I"], modal=MODALS["can"])), *SHOWCASE[5]),
    (ask(replace(MAN_BUYS, subject=PRONOUNS["who"]), "subject"), "who buys a red car?", "wer kauft ein rotes Auto?"),
    (ask(Clause(named("Paul"), verb("helfen"), object=PRONOUNS["who"]), "object"), "whom does Paul help?",
        "wem hilft Paul?"),
    (ask(replace(CHILD_SLEEPS, complement=Text("where", "wo")), "complement"), "where does the child sleep?",
        "wo schläft das Kind?"),
    (ask(replace(ANNA_GETS_UP, circumstance=Text("when", "wann"), tense="past"), "circumstance"),
        "when did Anna get up?", "wann ist Anna aufgestanden?"),
    (ask(replace(MAN_BUYS, object=many("how many", "house")), "object"), "how many houses does the old man buy?",
        "wie viele Häuser kauft der alte Mann?"),
    (ask(replace(MAN_BUYS, object=one("which", "coat")), "object"), "which coat does the old man buy?",
        "welchen Mantel kauft der alte Mann?"),
    (Text("good morning, Obama", "guten Morgen, Obama"), "good morning, Obama", "guten Morgen, Obama"),
]  # fmt: skip


@pytest.mark.parametrize(("meaning", "english", "german"), SENTENCES, ids=[english for _, english, _ in SENTENCES])
def test_sentence(meaning: Sentence, english: str, german: str) -> None:
    assert (english_sentence(meaning), german_sentence(meaning)) == (english, german)
