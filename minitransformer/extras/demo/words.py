"""The words of the demonstration, read from `words.toml`."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

THIRD, PLURAL, YOU = 1, 2, 3
"""Persons of a verb, as indices of its forms; 0 is "I".  "You" is always one friend ("du"), never a plural."""

DATA: dict[str, Any] = tomllib.loads((files(__package__) / "words.toml").read_text(encoding="utf-8"))
"""The tables of `words.toml`."""


@dataclass(frozen=True)
class Text:
    """A fixed expression in both languages, never inflected: a name, an adverb, a number, a date."""

    english: str
    german: str
    person = THIRD


@dataclass(frozen=True)
class Noun:
    """A noun; its class ``kind`` decides which verbs and adjectives suit it.

    ``most_owned`` limits possessives: 0 for none, 1 for the singular ("my mother"), 2 for any number ("my cars").
    """

    english: str
    english_plural: str
    german: str
    genitive: str
    german_plural: str
    article: str
    kind: str
    most_owned: int = 2


@dataclass(frozen=True)
class Adjective:
    """An adjective; its German stem before endings may differ from its predicative form (teuer, teure)."""

    english: str
    english_comparative: str
    german: str
    german_comparative: str
    stem: str
    suits: str


@dataclass(frozen=True)
class Determiner:
    """A determiner; ``endings`` names the endings that are added to its German stem.

    ``known`` is True if a German object with this determiner precedes "nicht".
    """

    english: str
    english_plural: str
    german: str
    endings: str = "none"
    known: bool = True


@dataclass(frozen=True)
class Pronoun:
    """A personal or interrogative pronoun."""

    english: str
    english_object: str
    nominative: str
    accusative: str
    dative: str
    person: int


@dataclass(frozen=True)
class Verb:
    """A verb: its forms in both languages, and the classes of nouns and the places that suit it (see `words.toml`)."""

    en: str
    de: str
    particle: str = ""
    prefix: str = ""
    sein: bool = False
    dative: bool = False
    subjects: str = "person"
    objects: str = ""
    gifts: str = ""
    goal: str = ""
    places: str = ""


@dataclass(frozen=True)
class Modal:
    """A modal verb.  In English, "want to" is a full verb; the other modal verbs are auxiliaries with a single form."""

    english: str
    german: tuple[str, ...]


NOUNS = {row[0]: Noun(*row) for row in DATA["nouns"]}
DETERMINERS = {row[0]: Determiner(*row) for row in DATA["determiners"]}
PRONOUNS = {row[0]: Pronoun(*row) for row in DATA["pronouns"]}
COLOURS, MOODS, QUALITIES = (tuple(Adjective(*row) for row in DATA[t]) for t in ("colours", "moods", "qualities"))
VERBS = {table: tuple(Verb(**entry) for entry in entries) for table, entries in DATA["verbs"].items()}
MODALS = {english: Modal(english, tuple(german)) for english, german in DATA["modals"].items()}
NAMES: dict[str, list[str]] = DATA["names"]


def texts(table: str) -> tuple[Text, ...]:
    """Return a table of fixed expressions."""
    return tuple(Text(english, german) for english, german in DATA[table].items())


def verb(german: str) -> Verb:
    """Return the verb with a German infinitive, which includes a separable prefix: "abfahren"."""
    return next(v for table in VERBS.values() for v in table if v.prefix + v.de.split(", ")[0] == german)


BE, HAVE = verb("sein"), verb("haben")


def join(*words: str) -> str:
    """Join the words that are not empty."""
    return " ".join(word for word in words if word)


@cache
def classes(names: str) -> tuple[str, ...]:
    """Return the classes of nouns that ``names`` lists, separated by blanks; replace a group by its classes."""
    groups: dict[str, str] = DATA["classes"]
    return tuple(each for name in names.split() for each in (classes(groups[name]) if name in groups else [name]))


@cache
def nouns_of(names: str) -> tuple[Noun, ...]:
    """Return the nouns of these classes (see ``classes``)."""
    return tuple(noun for noun in NOUNS.values() if noun.kind in classes(names))


@cache
def places(name: str) -> tuple[tuple[Text, str, str], ...]:
    """Return (preposition, German case, classes of nouns) for each place of an entry of "places" in `words.toml`.

    ``name`` may also be a single place, such as "in: city".
    """
    preposition, _, names = name.partition(": ")
    if not names:
        return tuple(place for each in DATA["places"][name] for place in places(each))
    german, case = DATA["prepositions"][preposition]
    return ((Text(preposition.split("/")[0], german), case, names),)


def known_words() -> str:
    """Return the English words of the demonstration, a line for each kind."""
    verbs = [verb for table in VERBS.values() for verb in table]
    kinds = {
        "nouns": [noun.english for noun in NOUNS.values()],
        "verbs": [f"{verb.en.split(', ')[0]} {verb.particle}".strip() for verb in verbs] + list(MODALS),
        "adjectives": [each.english for each in (*COLOURS, *MOODS, *QUALITIES)],
        "pronouns": [each.english for each in PRONOUNS.values()],
        "prepositions": [each.split("/")[0] for each in DATA["prepositions"]],
        "conjunctions": list(DATA["conjunctions"]),
        "adverbs": list(DATA["frequencies"]),
        "names": [name for names in NAMES.values() for name in names],
    }
    return "\n".join(f"{kind}: {', '.join(dict.fromkeys(words))}" for kind, words in kinds.items())
