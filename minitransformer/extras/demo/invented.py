"""Invented words, from which a model learns to copy words that it does not know.

A name is the same in both languages.  A noun begins with a capital in German.  Like most borrowed words, it is neuter
and has a plural in -s (das Taxi, die Taxis).
"""

import re
from random import Random

from minitransformer.extras.demo.words import DATA, Determiner, Noun, Text

NAME_SHARE = 0.7
"""Share of invented names among names."""
CITY_SHARE = 0.4
"""Share of invented cities among cities."""
NOUN_SHARE = 0.06
"""Share of invented nouns among common nouns, except the classes UNINVENTED."""
UNINVENTED = ("person", "inhabitant")
"""Classes without invented nouns: a word for a person is rarely neuter."""

_ONSETS, _VOWELS, _CODAS = (str(DATA["syllables"][part]).split() for part in ("onsets", "vowels", "codas"))
_KNOWN: list[str] = sorted(set(re.findall(r"[a-zäöü]+", str(DATA).lower())))  # sorted: the order of a set varies
_KNOWN_SET = frozenset(_KNOWN)
# The distinct parts of known words, a list for each length.  Frequent and rare parts are equally probable.
_BEGINNINGS = [sorted({word[:n] for word in _KNOWN if len(word) >= n}) for n in (1, 2, 3, 4, 5)]
_MIDDLES = [sorted({word[i : i + n] for word in _KNOWN for i in range(len(word) - n + 1)}) for n in (1, 2, 3)]
_ENDS = [sorted({word[-n:] for word in _KNOWN if len(word) >= n}) for n in (1, 2, 3, 4, 5)]


def word(random: Random) -> str:
    """Draw a word of 3 to 10 letters, in lower case, that is no word of the demonstration.

    A third of the words are joined from syllables, the others from parts of known words.  From syllables alone, the
    model would not learn to copy every piece of its vocabulary.
    """
    while True:
        drawn = _syllables(random) if random.random() < 1 / 3 else _blend(random)
        if 3 <= len(drawn) <= 10 and drawn not in _KNOWN_SET:
            return drawn


def name(random: Random) -> Text:
    """Draw an invented name of one or two words, such as "Obama" or "Ada Lovelace"."""
    parts = [word(random).capitalize() for _ in range(random.choices((1, 2), (5, 1))[0])]
    return Text(" ".join(parts), " ".join(parts))


def genitive(name: str) -> Determiner:
    """Return the genitive of a name as a determiner: "Anna's", German "Annas", but "Hans'" after -s, -ß, -x or -z."""
    return Determiner(f"{name}'s", f"{name}'s", f"{name}'" if name[-1] in "sßxz" else f"{name}s")


def noun(random: Random, kind: str) -> Noun:
    """Draw an invented noun of a class; for the class "city", draw a name, which has no plural."""
    english = word(random)
    if kind == "city":
        city = english.capitalize()
        return Noun(city, "", city, genitive(city).german, "", "das", kind, 0)
    english += "o" * english.endswith(("s", "x", "z", "h", "y"))  # after these letters, a plural in -s is irregular
    german = english.capitalize()
    return Noun(english, f"{english}s", german, f"{german}s", f"{german}s", "das", kind)


def _syllables(random: Random) -> str:
    """Draw one to four syllables."""
    drawn = "".join(_syllable(random) for _ in range(random.choices((1, 2, 3), (2, 5, 3))[0]))
    drawn = random.choice(_VOWELS) + drawn if random.random() < 0.25 else drawn
    return drawn + (random.choice(_CODAS) if random.random() < 0.4 else "")


def _blend(random: Random) -> str:
    """Join the beginning of a known word, sometimes the middle of another, and the end of a third."""
    first = random.choice(random.choices(_BEGINNINGS, (1, 3, 4, 3, 1))[0])
    middle = random.choice(random.choice(_MIDDLES)) if random.random() < 0.4 else ""
    return first + middle + random.choice(random.choices(_ENDS, (2, 3, 3, 2, 1))[0])


def _syllable(random: Random) -> str:
    coda = random.choice(_CODAS) if random.random() < 0.25 else ""
    return random.choice(_ONSETS) + random.choice(_VOWELS) + coda
