"""Random questions, to be answered by yes or no or with an interrogative phrase in front."""

from dataclasses import replace
from random import Random

from minitransformer.data.demo.clauses import clause, clause_with, description
from minitransformer.data.demo.function_words import MODALS
from minitransformer.data.demo.lexicon import Case, Number, Tense
from minitransformer.data.demo.meaning import (
    WHAT,
    WHEN,
    WHERE,
    WHO,
    WHY,
    Clause,
    ContentQuestion,
    Expression,
    PolarQuestion,
    Role,
)
from minitransformer.data.demo.nouns import DEVICE, FURNITURE, PEOPLE, PERSON, VEHICLE
from minitransformer.data.demo.phrases import (
    DEFINITE,
    HOW_MANY_ONES,
    WHICH_ONES,
    bare,
    fresh_noun,
    noun_phrase,
    phrase_about,
    subject,
)
from minitransformer.data.demo.verbs import (
    ACTIONS,
    BE,
    COST,
    LIVE,
    ROOMS,
    STATES,
    TRANSITIVE_ACTIONS,
)

_THING_ACTIONS = tuple(
    verb for verb in TRANSITIVE_ACTIONS if verb.objects != PEOPLE and verb.object_case is Case.ACCUSATIVE
)
_PERSONAL_ACTIONS = tuple(verb for verb in TRANSITIVE_ACTIONS if PERSON in verb.objects)
_HUMAN_VERBS = tuple(verb for verb in (*ACTIONS, *STATES) if PERSON in verb.subjects)
_LOCATABLE = tuple(verb for verb in (*ACTIONS, LIVE) if ROOMS[0] in verb.places)
_MEASURED = (DEVICE, FURNITURE, VEHICLE)
_HOW = (
    Expression("how old", "wie alt"),
    Expression("how big", "wie groß"),
    Expression("how expensive", "wie teuer"),
    Expression("how heavy", "wie schwer"),
)
_HOW_MUCH = Expression("how much", "wie viel")


def polar_question(random: Random) -> PolarQuestion:
    """Does somebody do something?"""
    return PolarQuestion(_in_some_tense(random, clause(random)))


def polar_description(random: Random) -> PolarQuestion:
    """Is somebody or something so?"""
    return PolarQuestion(description(random, DEFINITE))


def who_question(random: Random) -> ContentQuestion:
    """Who does something?"""
    asked = clause_with(random, random.choice(_HUMAN_VERBS), WHO, place_frequency=0.2)
    if not asked.verb.stative and random.random() < 0.3:
        asked = replace(asked, tense=Tense.PERFECT)
    return ContentQuestion(asked, Role.SUBJECT)


def what_question(random: Random) -> ContentQuestion:
    """What, or whom, does somebody see?"""
    if random.random() < 0.6:
        verb, asked = random.choice(_THING_ACTIONS), WHAT
    else:
        verb, asked = random.choice(_PERSONAL_ACTIONS), WHO
    happening = Clause(subject(random, verb.subjects, DEFINITE), verb, object=asked)
    return ContentQuestion(_in_some_tense(random, happening), Role.OBJECT)


def where_question(random: Random) -> ContentQuestion:
    """Where does somebody do something?"""
    happening = replace(clause(random, _LOCATABLE, DEFINITE, place_frequency=0.0), complement=WHERE)
    return ContentQuestion(_in_some_tense(random, happening), Role.COMPLEMENT)


def why_question(random: Random) -> ContentQuestion:
    """Why does somebody do something?"""
    happening = replace(clause(random), circumstance=WHY)
    return ContentQuestion(_in_some_tense(random, happening), Role.CIRCUMSTANCE)


def when_question(random: Random) -> ContentQuestion:
    """When does, did or will somebody do something?"""
    happening = replace(clause(random, subjects=DEFINITE), circumstance=WHEN)
    if random.random() < 0.3:
        happening = replace(happening, modal=random.choice(MODALS))
    else:
        happening = replace(happening, tense=random.choice((Tense.PRESENT, Tense.PAST)))
    return ContentQuestion(happening, Role.CIRCUMSTANCE)


def which_subject(random: Random) -> ContentQuestion:
    """Which dog, or how many dogs, do something?"""
    verb = random.choice(ACTIONS)
    if random.random() < 0.5:
        asked = noun_phrase(random, verb.subjects, WHICH_ONES)
    else:
        asked = phrase_about(random, fresh_noun(random, verb.subjects, ()), HOW_MANY_ONES, Number.PLURAL)
    return ContentQuestion(clause_with(random, verb, asked, place_frequency=0.15), Role.SUBJECT)


def which_object(random: Random) -> ContentQuestion:
    """Which dog, or how many dogs, does somebody see?"""
    verb = random.choice(TRANSITIVE_ACTIONS)
    doer = subject(random, verb.subjects, DEFINITE)
    noun = fresh_noun(random, verb.objects, [doer])
    plural = noun.countable and random.random() < 0.5
    determiners = HOW_MANY_ONES if plural and random.random() < 0.8 else WHICH_ONES
    asked = phrase_about(random, noun, determiners, Number.PLURAL if plural else Number.SINGULAR)
    return ContentQuestion(_in_some_tense(random, Clause(doer, verb, object=asked)), Role.OBJECT)


def measure_question(random: Random) -> ContentQuestion:
    """How old is something, or how much does it cost?"""
    thing = bare(noun_phrase(random, _MEASURED, DEFINITE))
    if random.random() < 0.4:
        return ContentQuestion(Clause(thing, COST, complement=_HOW_MUCH), Role.COMPLEMENT)
    return ContentQuestion(Clause(thing, BE, complement=random.choice(_HOW)), Role.COMPLEMENT)


def _in_some_tense(random: Random, happening: Clause) -> Clause:
    """The clause in the present, the past or the perfect, or with a modal verb; "did" tells the past in questions."""
    if happening.verb.stative or random.random() < 0.5:
        return happening
    if random.random() < 0.4:
        return replace(happening, modal=random.choice(MODALS))
    return replace(happening, tense=random.choice((Tense.PAST, Tense.PERFECT)))
