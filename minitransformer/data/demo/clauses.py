"""Random clauses: a verb, its subject and the complements of its frame."""

from collections.abc import Sequence
from random import Random

from minitransformer.data.demo.adjectives import (
    LIVING,
    MOODS,
    colours_of,
    qualities_for,
    qualities_of,
)
from minitransformer.data.demo.function_words import FEMALE_NAMES, MALE_NAMES, A
from minitransformer.data.demo.lexicon import (
    Adjective,
    Frame,
    Gender,
    Possession,
    SemanticClass,
    Verb,
)
from minitransformer.data.demo.meaning import (
    HE,
    SHE,
    Clause,
    Comparison,
    Expression,
    NounPhrase,
    Phrase,
    PrepositionalPhrase,
)
from minitransformer.data.demo.nouns import (
    ANIMAL,
    AREA,
    BUILDING,
    CLOTHING,
    DEVICE,
    DRINK,
    FOOD,
    FURNITURE,
    OBJECT,
    PEOPLE,
    PERSON,
    READING,
    TRANSPORT,
    VEHICLE,
    nouns_of,
)
from minitransformer.data.demo.phrases import (
    DEFINITE,
    GIVEN,
    OBJECTS,
    SUBJECTS,
    DeterminerChoice,
    bare,
    noun_phrase,
    person,
    place,
    subject,
)
from minitransformer.data.demo.verbs import ACTIONS, BE, LOCATIONS, STORAGE
from minitransformer.data.demo.weighted import Weighted

_DESCRIBED = (
    *(PERSON, PERSON, PERSON, ANIMAL, ANIMAL, FOOD, DRINK, READING, CLOTHING),
    *(DEVICE, OBJECT, FURNITURE, VEHICLE, TRANSPORT, BUILDING, AREA),
)
_TRAITS = tuple(each for each in qualities_of(ANIMAL) if each not in MOODS)
_STORED = (FOOD, READING, CLOTHING, DEVICE, OBJECT)
_DEGREES = Weighted((Expression("", ""), 6), (Expression("very ", "sehr "), 3), (Expression("too ", "zu "), 1))


def clause_with(
    random: Random,
    verb: Verb,
    subject: Phrase,
    determiners: DeterminerChoice = OBJECTS,
    place_frequency: float = 0.25,
) -> Clause:
    """A random clause of a subject and a verb; its noun objects take the determiners."""
    match verb.frame:
        case Frame.PLACED:
            return Clause(subject, verb, complement=place(random, verb.places, [subject]))
        case Frame.INTRANSITIVE:
            return Clause(subject, verb, complement=_free_place(random, verb, [subject], 2 * place_frequency))
        case Frame.DITRANSITIVE:
            recipient = person(random, [subject], DEFINITE)
            gift = noun_phrase(random, verb.objects, DEFINITE if determiners is DEFINITE else GIVEN)
            return Clause(subject, verb, recipient=recipient, object=gift)
        case Frame.TRANSITIVE:
            thing = object_of(random, verb, subject, determiners)
            where = _free_place(random, verb, [subject, thing], place_frequency)
            return Clause(subject, verb, object=thing, complement=where)


def clause(
    random: Random,
    verbs: Sequence[Verb] = ACTIONS,
    subjects: DeterminerChoice = SUBJECTS,
    place_frequency: float = 0.25,
) -> Clause:
    """A random clause with one of the verbs."""
    verb = random.choice(verbs)
    return clause_with(random, verb, subject(random, verb.subjects, subjects), place_frequency=place_frequency)


def deniable_clause(random: Random) -> Clause:
    """A random clause of known people and things only, so that its negation is not in a German noun phrase."""
    verb = random.choice(ACTIONS)
    return clause_with(random, verb, subject(random, verb.subjects, DEFINITE), DEFINITE, place_frequency=0.0)


def object_of(random: Random, verb: Verb, subject: Phrase, determiners: DeterminerChoice) -> Phrase:
    """A random direct object that suits a verb."""
    if PERSON in verb.objects and (verb.objects == PEOPLE or random.random() < 0.4):
        return person(random, [subject], determiners)
    return noun_phrase(random, verb.objects, determiners, [subject])


def description(random: Random, determiners: DeterminerChoice = SUBJECTS) -> Clause:
    """A clause that says what somebody or something is like."""
    semantic_class = random.choice(_DESCRIBED)
    described = subject(random, (semantic_class,), determiners)
    return Clause(bare(described), BE, complement=_predicate(random, semantic_class))


def mood(random: Random) -> Clause:
    """A clause that says how somebody feels, which unlike other descriptions may have a time or a reason."""
    being = subject(random, LIVING)
    return Clause(bare(being), BE, complement=_graded(random, random.choice(MOODS)))


def comparison(random: Random) -> Clause:
    """A clause that compares two people or things of a kind."""
    semantic_class = random.choice(_DESCRIBED)
    described = noun_phrase(random, (semantic_class,), DEFINITE)
    standard = noun_phrase(random, (semantic_class,), DEFINITE, [described])
    compared = Comparison(_quality(random, semantic_class), bare(standard))
    return Clause(bare(described), BE, complement=compared)


def characterisation(random: Random) -> Clause:
    """A clause that says what kind of man or woman somebody is."""
    names, pronoun, gender = random.choice(((FEMALE_NAMES, SHE, Gender.FEMININE), (MALE_NAMES, HE, Gender.MASCULINE)))
    chosen = random.choice(names)
    described = pronoun if random.random() < 0.3 else Expression(chosen, chosen)
    unrelated = [noun for noun in nouns_of(PEOPLE) if noun.gender is gender and noun.possession is Possession.NONE]
    noun = random.choice(unrelated)
    return Clause(described, BE, complement=NounPhrase(A, noun, adjectives=(random.choice(qualities_for(noun)),)))


def location(random: Random) -> Clause:
    """A clause that says where somebody or something is."""
    if random.random() < 0.5:
        thing: Phrase = noun_phrase(random, _STORED, SUBJECTS)
        return Clause(thing, BE, complement=place(random, STORAGE, [thing]))
    being = subject(random, LIVING)
    return Clause(being, BE, complement=place(random, LOCATIONS, [being]))


def _free_place(random: Random, verb: Verb, others: list[Phrase], frequency: float) -> PrepositionalPhrase | None:
    return place(random, verb.places, others) if verb.places and random.random() < frequency else None


def _quality(random: Random, semantic_class: SemanticClass) -> Adjective:
    return random.choice(qualities_of(semantic_class))


def _predicate(random: Random, semantic_class: SemanticClass) -> Expression:
    """A colour, a quality in some degree, or a living being's trait and mood, which never contradict each other."""
    kind, colours = random.random(), colours_of(semantic_class)
    if kind < 0.3 and colours:
        colour = random.choice(colours)
        return Expression(colour.english, colour.german)
    if kind > 0.8 and semantic_class in LIVING:
        trait, feeling = random.choice(_TRAITS), random.choice(MOODS)
        return Expression(f"{trait.english} and {feeling.english}", f"{trait.german} und {feeling.german}")
    return _graded(random, _quality(random, semantic_class))


def _graded(random: Random, adjective: Adjective) -> Expression:
    degree = _DEGREES.draw(random)
    return Expression(degree.english + adjective.english, degree.german + adjective.german)
