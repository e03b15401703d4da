"""The kinds of sentences of the demonstration and how often they are drawn."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from minitransformer.extras.demo import clauses, quantities, words
from minitransformer.extras.demo.clauses import (
    ACTIONS,
    DEPARTURES,
    STATES,
    TRANSITIVE,
    altered,
    clause,
    clause_of,
    description,
)
from minitransformer.extras.demo.english import english_phrase, english_sentence
from minitransformer.extras.demo.german import german_phrase, german_sentence
from minitransformer.extras.demo.meaning import Clause, Compound, NounPhrase, Pair, Role, Sentence, Speech
from minitransformer.extras.demo.numbers import fill
from minitransformer.extras.demo.phrases import NAMES, bare, name, noun_phrase, participant, relative_pronoun, weighted
from minitransformer.extras.demo.words import BE, MODALS, PRONOUNS, Pronoun, Text, Verb, texts, verb

MAX_WORDS = 25
"""The longest English sentence, in words."""
THAT, WHETHER = Text("that", "dass"), Text("whether", "ob")
WHERE, WHEN, WHY = Text("where", "wo"), Text("when", "wann"), Text("why", "warum")

_BY_PEOPLE = [verb for verb in (*ACTIONS, *STATES) if "person" in words.classes(verb.subjects)]
_TO_PEOPLE = [verb for verb in TRANSITIVE if "person" in words.classes(verb.objects)]
_TO_THINGS = [verb for verb in TRANSITIVE if verb.objects != "person" and not verb.dative]
_PLACED = [verb for verb in (*ACTIONS, *STATES) if verb.goal or verb.places]
_IN_ROOMS = [verb for verb in _PLACED if words.places("rooms")[0] in words.places(verb.goal or verb.places)]

_NAMED = " ".join(sorted({noun.kind for noun in words.NOUNS.values()} - {"city"}))


def timed(random: Random, table: str, happening: Clause) -> Clause:
    """Add a time to a clause, at its beginning or at its end."""
    front: Role = "circumstance" if random.random() < 0.6 else "subject"
    return replace(happening, circumstance=quantities.time(random, table), front=front)


def past(random: Random) -> Clause:
    """Draw a clause about an event, a mood or a location at a past time."""
    draws: dict[Callable[[Random], Clause], int] = {clauses.mood: 12, clauses.location: 12, clause: 76}
    return timed(random, "past", replace(weighted(random, draws)(random), tense="past"))


def frequent(random: Random) -> Clause:
    """Draw a clause about an action that happens always, often, sometimes or never, or has already happened."""
    happening, often = clause(random, subjects="known"), random.choice(texts("frequencies"))
    if random.random() < 0.6:
        return replace(happening, frequency=often)
    return replace(happening, frequency=random.choice((often, Text("already", "schon"))), tense="perfect")


def adverbial(random: Random) -> Compound:
    """Draw two clauses joined by a conjunction, such as "because", "if" or "although"."""
    conjunction, kind = random.choice(texts("conjunctions")), random.random()
    main = clause(random, place_rate=0.1)
    if conjunction.german == "wenn":
        main = altered(random, main, "present", "present", "modal")
    if kind < 0.15:
        second = Clause(PRONOUNS["it"], verb(random.choice(("regnen", "schneien"))))
    else:
        second = clauses.mood(random) if kind < 0.35 else clause(random, place_rate=0.1)
    return Compound(main, conjunction, second, random.random() < 0.4)


def reported(random: Random, act: Verb, conjunction: Text, negated: bool = False) -> Compound:
    """Draw a sentence about a fact that somebody knows, says, hopes or asks: "Anna hopes that the dog sleeps"."""
    happening = altered(random, clause(random, place_rate=0.1), "present", "perfect", "modal")
    said = random.choice((description(random), clause(random, STATES), happening, happening))
    return Compound(Clause(participant(random, "person", "known"), act, negated=negated), conjunction, said)


def speech(random: Random) -> Speech:
    """Draw a sentence with direct speech: somebody says or asks something."""
    act = Clause(participant(random, "person", "known"), verb(random.choice(("sagen", "fragen"))))
    if act.verb is verb("fragen"):
        return Speech(act, asked(random, clause(random, place_rate=0.1), None))
    is_first = random.random() < 0.5
    inverted = is_first and not isinstance(act.subject, Pronoun) and random.random() < 0.5
    return Speech(act, random.choice((clause, description, clauses.mood))(random), is_first, inverted)


def phrase(random: Random) -> Text:
    """Draw a phrase that is no sentence: one or two nouns, with or without a determiner."""
    use = random.choice(("bare", "bare", "subject"))
    first = noun_phrase(random, _NAMED, use)
    drawn = first if random.random() < 0.5 else Pair(first, noun_phrase(random, _NAMED, use, [first]))
    return Text(english_phrase(drawn), german_phrase(drawn))


def coordination(random: Random) -> Compound:
    """Draw two clauses joined by "and" or "but"."""
    conjunction = random.choice((Text("and", "und"), Text("but", "aber")))
    return Compound(clause(random, place_rate=0.1), conjunction, clause(random, place_rate=0.1))


def relative(random: Random, role: Role) -> Clause:
    """Draw a sentence with a relative clause: the man who buys the car sleeps; Anna sees the dog that sleeps."""
    if role == "subject":
        main = clause(random, subjects="antecedent", place_rate=0.1)
    else:  # a German predicate of one word keeps the relative clause last
        main = clause(random, [verb for verb in TRANSITIVE if not verb.prefix], "known", "antecedent", place_rate=0)
    changed: dict[str, Any] = {role: with_relative(random, main.phrase(role), main.verb)}
    return replace(main, **changed)


def with_relative(random: Random, antecedent: Any, main: Verb) -> NounPhrase:
    """Replace a phrase's possessor by a relative clause, in which the phrase's noun is the subject or the object.

    The relative clause never has the main clause's verb ``main``.
    """
    doing, done = _verbs_about(antecedent.noun.kind, main.en)
    if doing and random.random() < 0.5:
        relative = clause_of(random, relative_pronoun(antecedent), random.choice(doing), place_rate=0.15)
    else:
        act = random.choice(done)
        doer = participant(random, act.subjects, "known")
        relative = Clause(doer, act, object=relative_pronoun(antecedent), front="object")
    if relative.verb not in STATES:
        relative = altered(random, relative, "present", "present", "perfect")
    phrase: NounPhrase = replace(antecedent, possessor=None, relative=relative)
    return phrase


@cache
def _verbs_about(kind: str, unlike: str) -> tuple[list[Verb], list[Verb]]:
    """Return verbs that can have a noun of class ``kind`` as subject, and verbs that can have such a noun as object.

    Neither list has the verb ``unlike``, so that nobody eats "the potato that the bear eats".
    """
    verbs = [verb for verb in (*ACTIONS, *STATES) if verb.en != unlike]
    doing = [verb for verb in verbs if kind in words.classes(verb.subjects)]
    return doing, [verb for verb in verbs if kind in words.classes(verb.objects)]


def asked(random: Random, question: Clause, front: Role | None = "subject") -> Clause:
    """Turn a clause into a question, sometimes in another tense or with a modal verb.

    ``front`` is the role of the question word; None makes a yes-or-no question.  Use the past only where English marks
    it by "did", as in "when did Anna sleep", not in "who slept".
    """
    ways: dict[Role | None, tuple[clauses.Way, ...]] = {
        "subject": ("perfect", "modal"),
        "circumstance": ("past", "modal"),
    }
    if question.verb not in (*STATES, BE, verb("kosten")) and random.random() < 0.5:
        question = altered(random, question, *ways.get(front, ("past", "perfect", "modal")))
    return replace(question, question=True, front=front)


def to_you(random: Random) -> Clause:
    """Draw a clause about what "you" do."""
    return clauses.clause_of(random, PRONOUNS["you"], random.choice(_BY_PEOPLE))


def place_question(random: Random) -> Clause:
    """Draw a question that asks where somebody or something is."""
    sought = participant(random, "living reading clothing object device", "known")
    return asked(random, Clause(sought, BE, complement=WHERE), "complement")


def measure_question(random: Random) -> Clause:
    """Draw a question about somebody's age, or the age, the size or the price of something."""
    if random.random() < 0.3:
        somebody = bare(participant(random, "person", "known"))
        return asked(random, Clause(somebody, BE, complement=Text("how old", "wie alt")), "complement")
    thing = bare(noun_phrase(random, "device furniture vehicle", "known"))
    costs = random.random() < 0.4
    measure = Text("how much", "wie viel") if costs else random.choice(texts("measures"))
    return asked(random, Clause(thing, verb("kosten") if costs else BE, complement=measure), "complement")


def greeting(random: Random) -> Text:
    """Draw a greeting, thanks or an introduction."""
    return fill(*random.choice(list(words.DATA["greetings"].items())), name=name(random))


PATTERNS: list[tuple[int, Callable[[Random], Sentence]]] = [
    (12, clause),
    (4, lambda r: clause(r, STATES)),
    (8, lambda r: timed(r, "present", clause(r))),
    (9, past),
    (6, lambda r: timed(r, "future", altered(r, clause(r), "modal"))),
    (3, lambda r: timed(r, "timetable", clause(r, DEPARTURES, place_rate=0.1))),
    (5, lambda r: altered(r, clause(r), "modal")),
    (4, lambda r: altered(r, clause(r), "perfect")),
    (4, frequent),
    (4, lambda r: altered(r, clause(r, ACTIONS, "known", "known", 0, negated=True), "present", "perfect", "modal")),
    (1, lambda r: description(r, "known", negated=True)),
    (2, lambda r: clause(r, TRANSITIVE, "known", "no", place_rate=0)),
    (1, lambda r: clause(r, ACTIONS, "no", "known", place_rate=0)),
    (3, description),
    (2, clauses.location),
    (2, clauses.comparison),
    (1, clauses.characterisation),
    (9, adverbial),
    (5, lambda r: reported(r, r.choice(words.VERBS["attitudes"]), THAT)),
    (1, lambda r: reported(r, verb("fragen"), WHETHER)),
    (1, lambda r: reported(r, verb("wissen"), WHETHER, negated=True)),
    (6, lambda r: relative(r, "subject")),
    (5, lambda r: relative(r, "object")),
    (6, coordination),
    (4, speech),
    (8, phrase),
    (8, lambda r: asked(r, clause(r), None)),
    (4, lambda r: asked(r, to_you(r), None)),
    (3, lambda r: asked(r, replace(to_you(r), modal=MODALS["can"]), None)),
    (2, lambda r: asked(r, description(r, "known"), None)),
    (2, lambda r: asked(r, clause(r, _BY_PEOPLE, "who"))),
    (1, lambda r: asked(r, clause(r, _TO_THINGS, "known", "what", place_rate=0), "object")),
    (1, lambda r: asked(r, clause(r, _TO_PEOPLE, "known", "who", place_rate=0), "object")),
    (1, lambda r: asked(r, clause(r, TRANSITIVE, "known", "which", place_rate=0), "object")),
    (1, lambda r: asked(r, clause(r, TRANSITIVE, "known", "how many", place_rate=0), "object")),
    (1, lambda r: asked(r, clause(r, subjects=r.choice(("which", "how many")), place_rate=0.15))),
    (2, lambda r: asked(r, clause(r, _IN_ROOMS, "known", complement=WHERE), "complement")),
    (2, lambda r: asked(r, clause(r, subjects="known", circumstance=WHEN), "circumstance")),
    (2, lambda r: asked(r, clause(r, subjects="known", circumstance=WHY), "circumstance")),
    (2, place_question),
    (1, measure_question),
    (3, greeting),
    (7, quantities.counted),
    (3, quantities.number_written),
    (3, quantities.arithmetic),
    (4, quantities.price),
    (4, quantities.measured),
    (2, quantities.day),
    (1, lambda r: Clause(PRONOUNS["it"], BE, complement=quantities.time_of_day(r))),
]
"""The kinds of sentences: (relative frequency, function that draws a sentence's meaning)."""


def sentence_pair(random: Random) -> tuple[str, str]:
    """Draw an English sentence and its German translation."""
    while True:
        _, draw = random.choices(PATTERNS, [weight for weight, _ in PATTERNS])[0]
        sentence = draw(random)
        english = english_sentence(sentence)
        if _is_natural(english):
            return english, german_sentence(sentence)


def _is_natural(english: str) -> bool:
    """Return whether a sentence is short enough, has at most one quotation, and no name together with its genitive.

    (People say "Anna sees her dog", not "Anna sees Anna's dog".)
    """
    parts = english.split()
    return (
        len(parts) <= MAX_WORDS
        and english.count('"') <= 2
        and not any(name in parts and f"{name}'s" in parts for name in NAMES)
    )
