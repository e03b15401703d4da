"""Random noun phrases and prepositional phrases."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from minitransformer.data.demo.adjectives import colours_of, qualities_for
from minitransformer.data.demo.function_words import (
    ALL,
    BOTH,
    EVERY,
    HOW_MANY,
    MANY,
    NAMES,
    NO,
    NO_DETERMINER,
    POSSESSIVE_NAMES,
    POSSESSIVE_PRONOUNS,
    PROPER_NAME,
    SOME,
    THE,
    THIS,
    WHICH,
    A,
)
from minitransformer.data.demo.lexicon import (
    Adjective,
    Determiner,
    Noun,
    Number,
    Paradigm,
    Place,
    SemanticClasses,
)
from minitransformer.data.demo.meaning import (
    HE,
    SHE,
    THEY,
    WE,
    Conjunct,
    Expression,
    I,
    NounPhrase,
    Phrase,
    PrepositionalPhrase,
    Pronoun,
)
from minitransformer.data.demo.nouns import (
    ANIMAL,
    CITY,
    CLOTHING,
    DEVICE,
    OBJECT,
    PEOPLE,
    PERSON,
    READING,
    VEHICLE,
    nouns_of,
)
from minitransformer.data.demo.numbers import english_number, german_number
from minitransformer.data.demo.weighted import Weighted


def cardinal(number: int) -> Determiner:
    """A number in words as a determiner; at least two, and not ending in 01, where German would inflect ein."""
    if number % 100 == 1:
        raise ValueError(f"{number} would need an inflected form of ein")
    english = english_number(number)
    return Determiner("", english, german_number(number), Paradigm.UNINFLECTED)


@dataclass(frozen=True)
class DeterminerChoice:
    """Weighted groups of determiners for singular, plural and mass nouns; within a group all are alike."""

    singular: Weighted[Sequence[Determiner]]
    plural: Weighted[Sequence[Determiner]]
    mass: Weighted[Sequence[Determiner]]


_CARDINALS = [cardinal(number) for number in range(2, 13)]
_POSSESSIVES = [*POSSESSIVE_PRONOUNS, *POSSESSIVE_PRONOUNS, *POSSESSIVE_NAMES]
_THE_OR_OWN = Weighted[Sequence[Determiner]](([THE], 6), (_POSSESSIVES, 3), ([THIS], 1))

SUBJECTS = DeterminerChoice(
    Weighted(([THE], 8), ([A], 4), (_POSSESSIVES, 5), ([THIS], 2), ([EVERY], 1)),
    Weighted(([THE], 4), (_CARDINALS, 4), (_POSSESSIVES, 2), ([THIS, MANY, SOME, ALL, BOTH], 3)),
    _THE_OR_OWN,
)
OBJECTS = DeterminerChoice(
    Weighted(([THE], 6), ([A], 7), (_POSSESSIVES, 4), ([THIS], 2)),
    Weighted(([THE], 3), (_CARDINALS, 5), ([NO_DETERMINER], 3), (_POSSESSIVES, 2), ([THIS, MANY, SOME], 2)),
    Weighted(([NO_DETERMINER], 5), ([THE], 3), (_POSSESSIVES, 1), ([THIS], 1)),
)
GIVEN = DeterminerChoice(
    Weighted(([THE], 4), ([A], 7), (_POSSESSIVES, 2), ([THIS], 1)),
    Weighted(([THE], 2), (_CARDINALS, 4), (_POSSESSIVES, 1)),
    _THE_OR_OWN,
)
DEFINITE = DeterminerChoice(_THE_OR_OWN, _THE_OR_OWN, _THE_OR_OWN)
OWNERS = DeterminerChoice(*[Weighted[Sequence[Determiner]](([THE], 6), ([THIS], 1), (POSSESSIVE_PRONOUNS, 3))] * 3)
"""Without names: a genitive in a genitive (die Kuh Annas alter Tante) is not idiomatic."""
PLACES = DeterminerChoice(Weighted(([THE], 8), ([A], 3), (_POSSESSIVES, 2), ([THIS], 1)), _THE_OR_OWN, _THE_OR_OWN)
ANTECEDENTS = DeterminerChoice(
    Weighted(([THE], 8), ([A], 3), ([EVERY], 1)), Weighted(([THE], 4), ([ALL, MANY], 1)), Weighted(([THE], 1))
)
NEGATIVE = DeterminerChoice(*[Weighted[Sequence[Determiner]](([NO], 1))] * 3)
WHICH_ONES = DeterminerChoice(*[Weighted[Sequence[Determiner]](([WHICH], 1))] * 3)
HOW_MANY_ONES = DeterminerChoice(*[Weighted[Sequence[Determiner]](([HOW_MANY], 1))] * 3)

PRONOUNS = (I, HE, SHE, WE, THEY)
_OWNED = (ANIMAL, READING, CLOTHING, DEVICE, OBJECT, VEHICLE)
_ADJECTIVE_COUNTS = Weighted((0, 9), (1, 8), (2, 3))


def noun_phrase(
    random: Random, classes: SemanticClasses, determiners: DeterminerChoice, others: Sequence[Phrase] = ()
) -> NounPhrase:
    """A random noun phrase of one of the semantic classes, about another noun than other phrases."""
    noun = fresh_noun(random, classes, others)
    plural = noun.countable and random.random() < 0.3
    return phrase_about(random, noun, determiners, Number.PLURAL if plural else Number.SINGULAR)


def fresh_noun(random: Random, classes: SemanticClasses, others: Sequence[Phrase]) -> Noun:
    """A random noun of one of the semantic classes that, if possible, heads none of the other phrases."""
    nouns = nouns_of(classes)
    noun = random.choice(nouns)
    taken = [noun for phrase in others for noun in _heads(phrase)]
    if noun not in taken:
        return noun
    return random.choice([each for each in nouns if each not in taken] or nouns)


def phrase_about(random: Random, noun: Noun, determiners: DeterminerChoice, number: Number) -> NounPhrase:
    """A random noun phrase about a noun, with up to two adjectives and sometimes a possessor."""
    if noun.semantic_class is CITY:
        return NounPhrase(PROPER_NAME, noun)
    phrase = NounPhrase(_determiner(random, noun, determiners, number), noun, number, adjectives(random, noun))
    if phrase.determiner is THE and noun.semantic_class in _OWNED and random.random() < 0.15:
        return replace(phrase, possessor=noun_phrase(random, PEOPLE, OWNERS))
    return phrase


def bare(phrase: Phrase) -> Phrase:
    """The phrase without attributive adjectives, which a predicate might repeat or contradict."""
    return replace(phrase, adjectives=()) if isinstance(phrase, NounPhrase) else phrase


def adjectives(random: Random, noun: Noun) -> tuple[Adjective, ...]:
    """None, one or two adjectives that suit a noun; of two, the second is a colour, so that no comma parts them."""
    count = _ADJECTIVE_COUNTS.draw(random)
    colours = colours_of(noun.semantic_class)
    if count == 0:
        return ()
    if count == 1 and colours and random.random() < 0.4:
        return (random.choice(colours),)
    quality = random.choice(qualities_for(noun))
    return (quality, random.choice(colours)) if count == 2 and colours else (quality,)


def subject(random: Random, classes: SemanticClasses, determiners: DeterminerChoice = SUBJECTS) -> Phrase:
    """A random subject; people may also be pronouns, names or two people."""
    if PERSON not in classes or (classes != PEOPLE and random.random() < 0.4):
        return noun_phrase(random, classes, determiners)
    kind = random.random()
    if kind < 0.2:
        return random.choice(PRONOUNS)
    if kind < 0.34:
        return name(random)
    if kind < 0.4:
        first = noun_phrase(random, PEOPLE, DEFINITE)
        return Conjunct(first, noun_phrase(random, PEOPLE, DEFINITE, [first]))
    return noun_phrase(random, PEOPLE, determiners)


def name(random: Random) -> Expression:
    """A random first name."""
    chosen = random.choice(NAMES)
    return Expression(chosen, chosen)


def person(random: Random, others: Sequence[Phrase], determiners: DeterminerChoice) -> Phrase:
    """A random person in another role than the subject: a pronoun, a name or a noun phrase."""
    kind = random.random()
    if kind < 0.15:
        return random.choice([pronoun for pronoun in PRONOUNS if not any(_overlap(pronoun, other) for other in others)])
    if kind < 0.25:
        chosen = name(random)
        return chosen if chosen not in others else person(random, others, determiners)
    return noun_phrase(random, PEOPLE, determiners, others)


def place(random: Random, places: Sequence[Place], others: Sequence[Phrase]) -> PrepositionalPhrase:
    """A random prepositional phrase of place, direction, company or benefit."""
    preposition, classes = random.choice(places)
    if classes == PEOPLE:
        return PrepositionalPhrase(preposition, person(random, others, DEFINITE))
    noun = fresh_noun(random, classes, others)
    return PrepositionalPhrase(preposition, phrase_about(random, noun, PLACES, Number.SINGULAR))


def _determiner(random: Random, noun: Noun, determiners: DeterminerChoice, number: Number) -> Determiner:
    if number is Number.PLURAL:
        choice = determiners.plural
    else:
        choice = determiners.singular if noun.countable else determiners.mass
    group = choice.draw(random)
    determiner = random.choice(group)
    return determiner if noun.can_be_owned(number) or determiner not in _POSSESSIVES else THE


def _heads(phrase: Phrase) -> tuple[Noun, ...]:
    match phrase:
        case NounPhrase(noun=noun):
            return (noun,)
        case Conjunct(first, second):
            return (*_heads(first), *_heads(second))
        case _:
            return ()


def _overlap(pronoun: Pronoun, other: Phrase) -> bool:
    """Whether a pronoun could only be reflexive beside another phrase, as "us" beside "I"."""
    speakers = (I, WE)
    return pronoun == other or (pronoun in speakers and other in speakers)
