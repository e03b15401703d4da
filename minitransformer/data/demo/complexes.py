"""Random sentences of two clauses: subordination, relative clauses and coordination."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random

from minitransformer.data.demo.clauses import clause, clause_with, description, mood
from minitransformer.data.demo.function_words import MODALS
from minitransformer.data.demo.lexicon import SemanticClass, Tense, Verb
from minitransformer.data.demo.meaning import (
    AND,
    BUT,
    IT,
    THAT,
    WHETHER,
    Clause,
    Coordination,
    Expression,
    NounPhrase,
    RelativeClause,
    Role,
    Statement,
    Subordination,
)
from minitransformer.data.demo.nouns import PEOPLE
from minitransformer.data.demo.phrases import (
    ANTECEDENTS,
    DEFINITE,
    noun_phrase,
    subject,
)
from minitransformer.data.demo.verbs import (
    ACTIONS,
    ASK,
    ATTITUDES,
    KNOW,
    RAIN,
    SNOW,
    STATES,
    TRANSITIVE_ACTIONS,
)

_CONJUNCTIONS = (
    Expression("because", "weil"),
    Expression("when", "wenn"),
    Expression("if", "wenn"),
    Expression("although", "obwohl"),
    Expression("while", "während"),
)
_INSEPARABLE_ACTIONS = tuple(verb for verb in TRANSITIVE_ACTIONS if not verb.german_prefix)


def adverbial_subordination(random: Random) -> Subordination:
    """Something happens because, when, if, although or while something else does."""
    conjunction = random.choice(_CONJUNCTIONS)
    main = clause(random, place_frequency=0.1)
    if conjunction.english in ("when", "if") and random.random() < 0.3:
        main = replace(main, modal=random.choice(MODALS))
    return Subordination(main, conjunction, _dependent_clause(random), random.random() < 0.4)


def that_clause(random: Random) -> Subordination:
    """Somebody knows, says, thinks, hopes or believes that something is so."""
    verb = random.choice(ATTITUDES)
    return Subordination(Clause(subject(random, PEOPLE, DEFINITE), verb), THAT, _reported_clause(random))


def whether_clause(random: Random) -> Subordination:
    """Somebody asks or does not know whether something is so."""
    doer = subject(random, PEOPLE, DEFINITE)
    main = Clause(doer, ASK) if random.random() < 0.5 else Clause(doer, KNOW, negated=True)
    return Subordination(main, WHETHER, _reported_clause(random))


def relative_subject(random: Random) -> Statement:
    """The man who buys the car sleeps; the car that the man buys is red."""
    verb = random.choice(ACTIONS)
    antecedent = noun_phrase(random, verb.subjects, ANTECEDENTS)
    return Statement(clause_with(random, verb, with_relative(random, antecedent, verb), place_frequency=0.1))


def relative_object(random: Random) -> Statement:
    """Anna sees the dog that sleeps in the garden; a one-word German predicate keeps the relative clause last."""
    verb = random.choice(_INSEPARABLE_ACTIONS)
    doer = subject(random, verb.subjects, DEFINITE)
    thing = noun_phrase(random, verb.objects, ANTECEDENTS, [doer])
    return Statement(Clause(doer, verb, object=with_relative(random, thing, verb)))


def coordination(random: Random) -> Coordination:
    """Two clauses joined by "and" or "but"."""
    first, second = (Statement(clause(random, place_frequency=0.1)) for _ in range(2))
    return Coordination(first, random.choice((AND, BUT)), second)


def with_relative(random: Random, antecedent: NounPhrase, main_verb: Verb) -> NounPhrase:
    """The noun phrase with a random relative clause of another verb, in which it is the subject or the object."""
    pronoun, semantic_class = antecedent.relative_pronoun, antecedent.noun.semantic_class
    verbs = _others(_verbs_with_subject(semantic_class), main_verb)
    if verbs and random.random() < 0.5:
        front, modifier = Role.SUBJECT, clause_with(random, random.choice(verbs), pronoun, place_frequency=0.15)
    else:
        verb = random.choice(_others(_verbs_with_object(semantic_class), main_verb))
        front, modifier = Role.OBJECT, Clause(subject(random, verb.subjects, DEFINITE), verb, object=pronoun)
    if not modifier.verb.stative and random.random() < 0.3:
        modifier = replace(modifier, tense=Tense.PERFECT)
    return replace(antecedent, possessor=None, relative=RelativeClause(modifier, front))


@cache
def _verbs_with_subject(semantic_class: SemanticClass) -> tuple[Verb, ...]:
    return tuple(verb for verb in (*ACTIONS, *STATES) if semantic_class in verb.subjects)


@cache
def _verbs_with_object(semantic_class: SemanticClass) -> tuple[Verb, ...]:
    return tuple(verb for verb in (*TRANSITIVE_ACTIONS, *STATES) if semantic_class in verb.objects)


def _others(verbs: Sequence[Verb], verb: Verb) -> list[Verb]:
    """The verbs that differ from a verb in English: people do not eat the potato that the bear eats."""
    return [each for each in verbs if each.english_base != verb.english_base]


def _dependent_clause(random: Random) -> Clause:
    kind = random.random()
    if kind < 0.15:
        return Clause(IT, random.choice((RAIN, SNOW)))
    return mood(random) if kind < 0.35 else clause(random, place_frequency=0.1)


def _reported_clause(random: Random) -> Clause:
    """What somebody knows or says: a description, a state, something that happens or has happened."""
    kind = random.random()
    if kind < 0.25:
        return description(random)
    if kind < 0.4:
        return clause(random, STATES)
    happening = clause(random, place_frequency=0.1)
    if kind < 0.6:
        return replace(happening, tense=Tense.PERFECT)
    return replace(happening, modal=random.choice(MODALS)) if kind < 0.75 else happening
