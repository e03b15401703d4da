"""Phrases and clauses of the demo corpus, put together from its words by name."""

from dataclasses import replace

from minitransformer.extras.demo.meaning import Clause, NounPhrase, Role
from minitransformer.extras.demo.phrases import cardinal
from minitransformer.extras.demo.words import (
    COLOURS,
    DETERMINERS,
    MOODS,
    NOUNS,
    QUALITIES,
    Adjective,
    Determiner,
    Text,
    verb,
)

ANNAS = Determiner("Anna's", "Anna's", "Annas")


def adjective(english: str) -> Adjective:
    return next(each for each in (*COLOURS, *MOODS, *QUALITIES) if each.english == english)


def one(determiner: str | Determiner, head: str, *adjectives: str) -> NounPhrase:
    word = DETERMINERS[determiner] if isinstance(determiner, str) else determiner
    return NounPhrase(word, NOUNS[head], adjectives=tuple(map(adjective, adjectives)))


def many(determiner: str | Determiner, head: str, *adjectives: str) -> NounPhrase:
    return replace(one(determiner, head, *adjectives), plural=True)


def named(name: str) -> Text:
    return Text(name, name)


def say(clause: Clause, front: Role = "subject") -> Clause:
    return replace(clause, front=front)


def ask(clause: Clause, front: Role | None = None) -> Clause:
    return replace(clause, front=front, question=True)


DOG_SEES = Clause(one("the", "dog", "small"), verb("sehen"), object=many(cardinal(3), "house", "red"))
MAN_BUYS = Clause(one("the", "man", "old"), verb("kaufen"), object=one("a", "car", "red"))
CHILD_SLEEPS = Clause(one("the", "child"), verb("schlafen"))
ANNA_GETS_UP = Clause(named("Anna"), verb("aufstehen"))
