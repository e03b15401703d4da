"""Random simple statements, each pattern with one construction in its centre."""

from dataclasses import replace
from random import Random

from minitransformer.data.demo.circumstances import future, past, present, time_of_day
from minitransformer.data.demo.clauses import (
    characterisation,
    clause,
    comparison,
    deniable_clause,
    description,
    location,
    mood,
)
from minitransformer.data.demo.function_words import MODALS, NEGATABLE_MODALS
from minitransformer.data.demo.lexicon import Tense
from minitransformer.data.demo.meaning import Clause, Expression, Role, Statement
from minitransformer.data.demo.phrases import DEFINITE, NEGATIVE, noun_phrase
from minitransformer.data.demo.verbs import DEPARTURES, STATES, TRANSITIVE_ACTIONS

FREQUENCIES = (
    Expression("often", "oft"),
    Expression("always", "immer"),
    Expression("never", "nie"),
    Expression("sometimes", "manchmal"),
)
ALREADY = Expression("already", "schon")


def action(random: Random) -> Statement:
    """Somebody does something: the small dog sees three red houses."""
    return Statement(clause(random))


def state(random: Random) -> Statement:
    """Somebody has, loves, likes or needs something, or lives somewhere."""
    return Statement(clause(random, STATES))


def present_time(random: Random) -> Statement:
    """Something happens at a time or for a reason."""
    return _timed(random, clause(random), present(random))


def past_time(random: Random) -> Statement:
    """Something happened, or somebody was so or was somewhere, at a past time."""
    kind = random.random()
    happened = mood(random) if kind < 0.12 else location(random) if kind < 0.24 else clause(random)
    return _timed(random, replace(happened, tense=Tense.PAST), past(random))


def future_time(random: Random) -> Statement:
    """Something will, can, must or should happen at a future time."""
    return _timed(random, replace(clause(random), modal=random.choice(MODALS)), future(random))


def timetable(random: Random) -> Statement:
    """Somebody gets up, or a train departs, at a time of day."""
    return _timed(random, clause(random, DEPARTURES, place_frequency=0.1), time_of_day(random))


def modal(random: Random) -> Statement:
    """Somebody can, must, should, will or wants to do something."""
    return Statement(replace(clause(random), modal=random.choice(MODALS)))


def perfect(random: Random) -> Statement:
    """Somebody has done something."""
    return Statement(replace(clause(random), tense=Tense.PERFECT))


def frequent(random: Random) -> Statement:
    """Somebody does something more or less often, or has already done it."""
    happening = clause(random, subjects=DEFINITE)
    if random.random() < 0.6:
        return Statement(replace(happening, frequency=random.choice(FREQUENCIES)))
    adverb = random.choice((ALREADY, ALREADY, *FREQUENCIES))
    return Statement(replace(happening, frequency=adverb, tense=Tense.PERFECT))


def negated(random: Random) -> Statement:
    """Somebody does not do something."""
    denied = replace(deniable_clause(random), negated=True)
    match random.randrange(4):
        case 0:
            return Statement(replace(denied, modal=random.choice(NEGATABLE_MODALS)))
        case 1:
            return Statement(replace(denied, tense=Tense.PERFECT))
        case _:
            return Statement(denied)


def negated_description(random: Random) -> Statement:
    """Somebody or something is not so."""
    return Statement(replace(description(random, DEFINITE), negated=True))


def negative_object(random: Random) -> Statement:
    """Somebody does something to none: sees no dog."""
    happening = clause(random, TRANSITIVE_ACTIONS, DEFINITE, place_frequency=0.0)
    nothing = noun_phrase(random, happening.verb.objects, NEGATIVE, [happening.subject])
    return Statement(replace(happening, object=nothing))


def negative_subject(random: Random) -> Statement:
    """None does something: no dog sees the man."""
    happening = deniable_clause(random)
    others = [phrase for role in Role if (phrase := happening.constituent(role)) is not None]
    return Statement(replace(happening, subject=noun_phrase(random, happening.verb.subjects, NEGATIVE, others)))


def described(random: Random) -> Statement:
    """Somebody or something is so."""
    return Statement(description(random))


def located(random: Random) -> Statement:
    """Somebody or something is somewhere."""
    return Statement(location(random))


def compared(random: Random) -> Statement:
    """Somebody or something is more so than another."""
    return Statement(comparison(random))


def characterised(random: Random) -> Statement:
    """Somebody is a man or a woman of some kind."""
    return Statement(characterisation(random))


def _timed(random: Random, happening: Clause, circumstance: Expression) -> Statement:
    """The statement with its circumstance in front or after the verb."""
    front = Role.CIRCUMSTANCE if random.random() < 0.6 else Role.SUBJECT
    return Statement(replace(happening, circumstance=circumstance), front)
