"""Random clauses: a verb with its objects, descriptions, comparisons, places."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, Literal

from minitransformer.extras.demo import words
from minitransformer.extras.demo.meaning import Clause, Governed, NounPhrase, Subject
from minitransformer.extras.demo.numbers import fill
from minitransformer.extras.demo.phrases import (
    bare,
    name,
    noun_phrase,
    participant,
    place,
    qualities_for,
    suiting,
    weighted,
)
from minitransformer.extras.demo.words import BE, DETERMINERS, MOODS, PRONOUNS, Adjective, Text, Verb

Way = Literal["present", "past", "perfect", "modal"]

DEPARTURES, STATES = words.VERBS["departures"], words.VERBS["states"]
ACTIONS = DEPARTURES + words.VERBS["actions"]
TRANSITIVE = tuple(verb for verb in ACTIONS if verb.objects and verb.objects != "city")
"""Actions whose object is a common noun."""
_DESCRIBED = words.classes(
    "person living living food drink reading clothing device object furniture wheeled building area"
)


def clause(
    random: Random,
    verbs: Sequence[Verb] = ACTIONS,
    subjects: str = "subject",
    objects: str = "object",
    place_rate: float = 0.25,
    **others: Any,
) -> Clause:
    """Draw a clause with one of the verbs.

    ``subjects`` and ``objects`` are the uses of the subject's and the object's phrases (see `words.toml`); ``others``
    sets further fields of the clause.
    """
    verb = random.choice(verbs)
    drawn = clause_of(random, participant(random, verb.subjects, subjects), verb, objects, place_rate)
    return replace(drawn, **others)


def clause_of(random: Random, doer: Subject, verb: Verb, objects: str = "object", place_rate: float = 0.25) -> Clause:
    """Return a clause with this subject and verb; draw its objects and its place."""
    if verb.gifts:
        recipient = participant(random, "person", "known", [doer])
        return Clause(doer, verb, recipient, noun_phrase(random, verb.gifts, "known" if objects == "known" else "gift"))
    thing = participant(random, verb.objects, objects, [doer]) if verb.objects else None
    has_place = verb.goal or (verb.places and random.random() < (place_rate if thing else 2 * place_rate))
    known = [doer, thing] if thing else [doer]
    return Clause(doer, verb, None, thing, place(random, verb.goal or verb.places, known) if has_place else None)


def description(random: Random, subjects: str = "subject", negated: bool = False) -> Clause:
    """Draw a clause that describes somebody or something by a colour, a quality, or a trait and a mood."""
    kind, draw = random.choice(_DESCRIBED), random.random()
    colours, qualities = suiting(kind, words.COLOURS), suiting(kind)
    predicate = _with_degree(random, random.choice(qualities))
    if draw < 0.3 and colours:
        predicate = _text(random.choice(colours))
    if draw > 0.8 and kind in words.classes("living"):  # a trait and a mood never contradict each other
        trait = random.choice([each for each in suiting("animal") if each not in MOODS])
        predicate = fill("{} and {}", "{} und {}", _text(trait), _text(random.choice(MOODS)))
    return Clause(bare(participant(random, kind, subjects)), BE, complement=predicate, negated=negated)


def mood(random: Random) -> Clause:
    """Draw a clause that says how somebody feels; unlike a ``description``, it may be given a time or a reason."""
    being = bare(participant(random, "living", "subject"))
    return Clause(being, BE, complement=_with_degree(random, random.choice(MOODS)))


def comparison(random: Random) -> Clause:
    """Draw a comparison of two people or two things of one class."""
    kind = random.choice(_DESCRIBED)
    described, quality = noun_phrase(random, kind, "known"), random.choice(suiting(kind))
    standard = than(quality, bare(noun_phrase(random, kind, "known", [described])))
    return Clause(bare(described), BE, complement=standard)


def than(adjective: Adjective, standard: Subject) -> Governed:
    """Return a comparative with its standard, such as "bigger than the dog"."""
    text = Text(f"{adjective.english_comparative} than", f"{adjective.german_comparative} als")
    return Governed(text, "nominative", standard)


def characterisation(random: Random) -> Clause:
    """Draw a clause that says what kind of man or woman somebody is."""
    sex, pronoun, article = random.choice((("female", "she", "die"), ("male", "he", "der")))
    described = PRONOUNS[pronoun] if random.random() < 0.3 else name(random, words.NAMES[sex])
    nouns = [noun for noun in words.nouns_of("person") if noun.article == article and noun.most_owned == 0]
    noun = random.choice(nouns)
    kind = NounPhrase(DETERMINERS["a"], noun, adjectives=(random.choice(qualities_for(noun)),))
    return Clause(described, BE, complement=kind)


def location(random: Random) -> Clause:
    """Draw a clause that says where somebody or something is."""
    kinds, where = random.choice((("food reading clothing device object", "storage"), ("living", "locations")))
    located = participant(random, kinds, "subject")
    return Clause(located, BE, complement=place(random, where, [located]))


def altered(random: Random, clause: Clause, *ways: Way) -> Clause:
    """Draw one of ``ways``: put the clause into a tense, or add a modal verb.

    Never add "must" to a negated clause, because "must not" does not mean "muss nicht".
    """
    way = random.choice(ways)
    if way != "modal":
        return replace(clause, tense=way)
    modals = [modal for modal in words.MODALS.values() if not (clause.negated and modal.english == "must")]
    return replace(clause, modal=random.choice(modals))


def _text(adjective: Adjective) -> Text:
    return Text(adjective.english, adjective.german)


def _with_degree(random: Random, adjective: Adjective) -> Text:
    degree = weighted(random, {("{}", "{}"): 6, ("very {}", "sehr {}"): 3, ("too {}", "zu {}"): 1})
    return fill(*degree, _text(adjective))
