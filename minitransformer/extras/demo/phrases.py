"""Random noun phrases, people and places."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import TypeVar

from minitransformer.extras.demo import invented, words
from minitransformer.extras.demo.meaning import AND, Governed, NounPhrase, Pair, Phrase, Subject
from minitransformer.extras.demo.numbers import in_digits, in_words
from minitransformer.extras.demo.words import DETERMINERS, PRONOUNS, Adjective, Determiner, Noun, Pronoun, Text

NAMES = (*words.NAMES["female"], *words.NAMES["male"])
PERSONAL = [PRONOUNS[word] for word in ("I", "he", "she", "we", "they", "you", "you")]
_MINE = [DETERMINERS[word] for word in ("my", "his", "her", "our", "their", "your")]
_NOUNS_ONLY = ("no", "which", "how many", "antecedent")

Option = TypeVar("Option")


def weighted(random: Random, options: Mapping[Option, int]) -> Option:
    """Draw an option with a probability in proportion to its weight."""
    return random.choices(list(options), list(options.values()))[0]


def cardinal(number: int, text: Text | None = None) -> Determiner:
    """Return a number as a determiner, written as ``text`` or, by default, in words.

    Raises: ValueError if the number is 1 or ends in 01, because German would inflect its "ein".
    """
    if number % 100 == 1:
        raise ValueError(f"{number} would need an inflected form of ein")
    text = text or in_words(number)
    return Determiner(text.english, text.english, text.german, known=False)


def noun_phrase(random: Random, classes: str, use: str, others: Sequence[Phrase | None] = ()) -> NounPhrase:
    """Draw a phrase about a noun of ``classes``, with a determiner that is usual in this ``use`` (see `words.toml`).

    If possible, draw a noun that differs from the nouns of the phrases ``others``.
    """
    noun = any_noun(random, classes, others)
    return phrase_about(random, noun, use, use == "how many" or random.random() < 0.3)


def fresh_noun(random: Random, classes: str, others: Sequence[Phrase | None]) -> Noun:
    """Draw a known noun of ``classes``; if possible, a noun that differs from the nouns of the phrases ``others``."""
    parts = [part for other in others for part in ((other.first, other.second) if isinstance(other, Pair) else [other])]
    taken = [part.noun for part in parts if isinstance(part, NounPhrase)]
    nouns = words.nouns_of(classes)
    return random.choice([noun for noun in nouns if noun not in taken] or nouns)


def any_noun(random: Random, classes: str, others: Sequence[Phrase | None]) -> Noun:
    """Draw a noun of ``classes``: sometimes an invented noun, else a ``fresh_noun``."""
    kinds = [kind for kind in words.classes(classes) if kind not in invented.UNINVENTED]
    share = invented.CITY_SHARE if kinds == ["city"] else invented.NOUN_SHARE
    if kinds and random.random() < share:
        return invented.noun(random, random.choice(kinds))
    return fresh_noun(random, classes, others)


def phrase_about(random: Random, noun: Noun, use: str, plural: bool = False) -> NounPhrase:
    """Draw a phrase about a noun, with up to two adjectives and sometimes a possessor."""
    if noun.kind == "city":
        return NounPhrase(Determiner("", "", ""), noun)
    plural = plural and bool(noun.german_plural)
    phrase = NounPhrase(_determiner(random, noun, use, plural), noun, plural, adjectives(random, noun))
    is_owned = noun.kind in words.classes("animal reading clothing device object vehicle")
    if phrase.determiner is DETERMINERS["the"] and is_owned and random.random() < 0.15:
        return replace(phrase, possessor=noun_phrase(random, "person", "owner"))
    return phrase


def _determiner(random: Random, noun: Noun, use: str, plural: bool) -> Determiner:
    tables = words.DATA["uses"][use]  # singular, plural, mass
    index = 1 if plural else 0 if noun.german_plural else 2
    word = weighted(random, tables[min(index, len(tables) - 1)])
    if word == "number":
        number = random.randint(2, 12)
        return cardinal(number, in_digits(number) if random.random() < 0.25 else None)
    if word in ("own", "mine"):
        if noun.most_owned < (2 if plural else 1):
            return DETERMINERS["the"]
        is_pronoun = word == "mine" or random.random() < 0.6
        return random.choice(_MINE) if is_pronoun else invented.genitive(name(random).english)
    return DETERMINERS[word]


def adjectives(random: Random, noun: Noun) -> tuple[Adjective, ...]:
    """Draw zero to two adjectives that suit a noun; the second is always a colour, so that no comma separates them."""
    count, colours = weighted(random, {0: 9, 1: 8, 2: 3}), suiting(noun.kind, words.COLOURS)
    if not suiting(noun.kind):
        return ()
    colour = (random.choice(colours),) if colours and (count == 2 or (count == 1 and random.random() < 0.4)) else ()
    return (random.choice(qualities_for(noun)), *colour) if count > len(colour) else colour


@cache
def suiting(kind: str, adjectives: tuple[Adjective, ...] = words.MOODS + words.QUALITIES) -> tuple[Adjective, ...]:
    """Return the adjectives that suit a class of nouns."""
    return tuple(adjective for adjective in adjectives if kind in words.classes(adjective.suits))


@cache
def qualities_for(noun: Noun) -> tuple[Adjective, ...]:
    """Return the moods and qualities that suit a noun, without its cognates: no "junge Jungen" (young boys)."""
    word = noun.german.lower()
    return tuple(q for q in suiting(noun.kind) if not (word.startswith(q.german) or q.german.startswith(word)))


def relative_pronoun(antecedent: NounPhrase) -> Pronoun:
    """Return the relative pronoun that refers to a phrase."""
    noun = antecedent.noun
    who, whom = ("who", "whom") if noun.kind == "person" else ("that", "that")
    nominative, accusative, dative = words.DATA["relatives"]["plural" if antecedent.plural else noun.article]
    return Pronoun(who, whom, nominative, accusative, dative, antecedent.person)


def bare(phrase: Subject) -> Subject:
    """Return the phrase without adjectives, which a predicate might repeat or contradict."""
    return replace(phrase, adjectives=()) if isinstance(phrase, NounPhrase) else phrase


def participant(random: Random, classes: str, use: str, others: Sequence[Phrase] = ()) -> Subject:
    """Draw a phrase for a participant of a clause; for people, it may also be a pronoun, a name or a pair of people."""
    if use in ("who", "what"):
        return PRONOUNS[use]
    may_be_people = "person" in words.classes(classes) and use not in _NOUNS_ONLY
    kind = random.random() if may_be_people and (classes == "person" or random.random() < 0.6) else 1.0
    if kind < 0.18:
        speakers = [PRONOUNS["I"], PRONOUNS["we"]]  # "us" beside "I" could only be reflexive
        taken = [*others, *(speakers if any(speaker in others for speaker in speakers) else [])]
        return random.choice([pronoun for pronoun in PERSONAL if pronoun not in taken])
    if kind < 0.3:
        drawn = name(random, [each for each in NAMES if Text(each, each) not in others])
        return Text(f'"{drawn.english}"', f"„{drawn.german}“") if random.random() < 0.03 else drawn
    if kind < 0.35:
        first = noun_phrase(random, "person", "known", others)
        return Pair(first, noun_phrase(random, "person", "known", [*others, first]))
    if kind < 0.37:
        return Pair(name(random), name(random), random.choice((AND, Text("&", "&"))))
    return noun_phrase(random, "person" if kind < 1.0 else classes, use, others)


def name(random: Random, names: Sequence[str] = NAMES) -> Text:
    """Draw one of ``names``, or an invented name."""
    if random.random() < invented.NAME_SHARE:
        return invented.name(random)
    chosen = random.choice(names)
    return Text(chosen, chosen)


def place(random: Random, name: str, others: Sequence[Phrase]) -> Governed:
    """Draw a phrase with a preposition from an entry of "places": a place, a direction, a companion, a beneficiary."""
    preposition, case, classes = random.choice(words.places(name))
    if classes == "person":
        return Governed(preposition, case, participant(random, classes, "known", others))
    return Governed(preposition, case, phrase_about(random, any_noun(random, classes, others), "place"))
