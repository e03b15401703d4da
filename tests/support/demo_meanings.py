"""Phrases and clauses of the demo corpus, put together from its words by name."""

from __future__ import annotations

from dataclasses import replace

from minitransformer.data.demo.adjectives import COLOURS, QUALITIES
from minitransformer.data.demo.function_words import POSSESSIVE_NAMES, POSSESSIVE_PRONOUNS, THE, A
from minitransformer.data.demo.lexicon import Adjective, Determiner, Noun, Number, Verb
from minitransformer.data.demo.meaning import Clause, Expression, NounPhrase
from minitransformer.data.demo.nouns import NOUNS
from minitransformer.data.demo.phrases import cardinal
from minitransformer.data.demo.verbs import ACTIONS, ATTITUDES, STATES


def noun(english: str) -> Noun:
    return next(each for each in NOUNS if each.english == english)


def adjective(english: str) -> Adjective:
    return next(each for each in (*QUALITIES, *COLOURS) if each.english == english)


def verb(german: str) -> Verb:
    return next(
        each
        for each in (*ACTIONS, *STATES, *ATTITUDES)
        if german in (each.german_infinitive, each.german_prefix + each.german_infinitive)
        and german.startswith(each.german_prefix)
    )


def one(determiner: Determiner, head: str, *adjectives: str) -> NounPhrase:
    return NounPhrase(determiner, noun(head), Number.SINGULAR, tuple(map(adjective, adjectives)))


def many(determiner: Determiner, head: str, *adjectives: str) -> NounPhrase:
    return replace(one(determiner, head, *adjectives), number=Number.PLURAL)


def named(name: str) -> Expression:
    return Expression(name, name)


MY, HIS, HER, OUR, THEIR = POSSESSIVE_PRONOUNS
ANNAS = POSSESSIVE_NAMES[0]
DOG_SEES = Clause(one(THE, "dog", "small"), verb("sehen"), object=many(cardinal(3), "house", "red"))
MAN_BUYS = Clause(one(THE, "man", "old"), verb("kaufen"), object=one(A, "car", "red"))
CHILD_SLEEPS = Clause(one(THE, "child"), verb("schlafen"))
ANNA_GETS_UP = Clause(named("Anna"), verb("aufstehen"))
