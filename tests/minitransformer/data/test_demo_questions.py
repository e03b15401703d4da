"""The demo corpus: questions, and sentences of several clauses."""

from dataclasses import replace

import pytest
from demo_meanings import ANNA_GETS_UP, CHILD_SLEEPS, DOG_SEES, MAN_BUYS, many, named, one, verb

from minitransformer.data.demo.english import english_sentence
from minitransformer.data.demo.function_words import HOW_MANY, THE, WHICH
from minitransformer.data.demo.german import german_sentence
from minitransformer.data.demo.lexicon import Tense
from minitransformer.data.demo.meaning import (
    AND,
    BUT,
    HE,
    IT,
    SHE,
    THAT,
    WHEN,
    WHERE,
    WHO,
    Clause,
    ContentQuestion,
    Coordination,
    Expression,
    I,
    NounPhrase,
    PolarQuestion,
    RelativeClause,
    Role,
    Sentence,
    Statement,
    Subordination,
)
from minitransformer.data.demo.verbs import COST, RAIN


def relative(antecedent: NounPhrase, front: Role, clause: Clause) -> NounPhrase:
    pronoun = antecedent.relative_pronoun
    inner = replace(clause, subject=pronoun) if front is Role.SUBJECT else replace(clause, object=pronoun)
    return replace(antecedent, relative=RelativeClause(inner, front))


SENTENCES: list[tuple[Sentence, str, str]] = [
    (
        Statement(
            Clause(
                relative(one(THE, "car"), Role.OBJECT, Clause(named("Emil"), verb("kaufen"))),
                COST,
                complement=Expression("$12.50", "12,50 $"),
            )
        ),
        "the car that Emil buys costs $12.50",
        "das Auto, das Emil kauft, kostet 12,50 $",
    ),
    (
        Statement(
            Clause(
                SHE,
                verb("hören"),
                object=relative(one(THE, "boy"), Role.SUBJECT, replace(ANNA_GETS_UP, tense=Tense.PERFECT)),
            )
        ),
        "she hears the boy who has gotten up",
        "sie hört den Jungen, der aufgestanden ist",
    ),
    (
        PolarQuestion(
            Clause(SHE, verb("hören"), object=relative(many(THE, "child"), Role.OBJECT, Clause(HE, verb("helfen"))))
        ),
        "does she hear the children whom he helps?",
        "hört sie die Kinder, denen er hilft?",
    ),
    (
        Subordination(CHILD_SLEEPS, Expression("because", "weil"), ANNA_GETS_UP),
        "the child sleeps because Anna gets up",
        "das Kind schläft, weil Anna aufsteht",
    ),
    (
        Subordination(CHILD_SLEEPS, Expression("when", "wenn"), Clause(IT, RAIN), subordinate_first=True),
        "when it rains, the child sleeps",
        "wenn es regnet, schläft das Kind",
    ),
    (
        Subordination(Clause(I, verb("wissen")), THAT, replace(MAN_BUYS, tense=Tense.PERFECT)),
        "I know that the old man has bought a red car",
        "ich weiß, dass der alte Mann ein rotes Auto gekauft hat",
    ),
    (
        Coordination(Statement(CHILD_SLEEPS), AND, Statement(ANNA_GETS_UP)),
        "the child sleeps, and Anna gets up",
        "das Kind schläft und Anna steht auf",
    ),
    (
        Coordination(Statement(CHILD_SLEEPS), BUT, Statement(ANNA_GETS_UP)),
        "the child sleeps, but Anna gets up",
        "das Kind schläft, aber Anna steht auf",
    ),
    (PolarQuestion(DOG_SEES), "does the small dog see three red houses?", "sieht der kleine Hund drei rote Häuser?"),
    (
        PolarQuestion(replace(MAN_BUYS, tense=Tense.PERFECT)),
        "has the old man bought a red car?",
        "hat der alte Mann ein rotes Auto gekauft?",
    ),
    (
        ContentQuestion(replace(MAN_BUYS, subject=WHO), Role.SUBJECT),
        "who buys a red car?",
        "wer kauft ein rotes Auto?",
    ),
    (
        ContentQuestion(Clause(named("Paul"), verb("helfen"), object=WHO), Role.OBJECT),
        "whom does Paul help?",
        "wem hilft Paul?",
    ),
    (
        ContentQuestion(replace(CHILD_SLEEPS, complement=WHERE), Role.COMPLEMENT),
        "where does the child sleep?",
        "wo schläft das Kind?",
    ),
    (
        ContentQuestion(replace(ANNA_GETS_UP, circumstance=WHEN, tense=Tense.PAST), Role.CIRCUMSTANCE),
        "when did Anna get up?",
        "wann ist Anna aufgestanden?",
    ),
    (
        ContentQuestion(replace(MAN_BUYS, object=many(HOW_MANY, "house")), Role.OBJECT),
        "how many houses does the old man buy?",
        "wie viele Häuser kauft der alte Mann?",
    ),
    (
        ContentQuestion(replace(MAN_BUYS, object=one(WHICH, "coat")), Role.OBJECT),
        "which coat does the old man buy?",
        "welchen Mantel kauft der alte Mann?",
    ),
]


@pytest.mark.parametrize(("meaning", "english", "german"), SENTENCES, ids=[english for _, english, _ in SENTENCES])
def test_sentence(meaning: Sentence, english: str, german: str) -> None:
    assert (english_sentence(meaning), german_sentence(meaning)) == (english, german)
