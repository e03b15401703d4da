"""The meaning of a sentence: words and their roles.  `english` and `german` add order and inflection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from minitransformer.extras.demo.words import PLURAL, THIRD, Adjective, Determiner, Modal, Noun, Pronoun, Text, Verb

Role = Literal["subject", "recipient", "object", "complement", "circumstance"]
ROLES: tuple[Role, ...] = ("subject", "recipient", "object", "complement", "circumstance")
AND = Text("and", "und")


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner, adjectives, possessor ("of the old man") and relative clause."""

    determiner: Determiner
    noun: Noun
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    possessor: NounPhrase | None = None
    relative: Clause | None = None

    @property
    def person(self) -> int:
        return PLURAL if self.plural else THIRD


@dataclass(frozen=True)
class Pair:
    """Two phrases joined by "and" or "&"; as a subject, the pair is plural."""

    first: Phrase
    second: Phrase
    conjunction: Text = AND
    person = PLURAL


@dataclass(frozen=True)
class Governed:
    """A preposition or a comparative ("bigger than"), and the phrase after it; ``case`` is the phrase's German case."""

    preposition: Text
    case: str
    phrase: Phrase


Subject = Text | Pronoun | NounPhrase | Pair
Phrase = Subject | Governed


@dataclass(frozen=True)
class Clause:
    """A verb with its constituents.

    ``front`` is the role of the constituent before the verb; None in a yes-or-no question.  The complement is a
    predicate, a place, a measure or a companion ("with Anna").  A statement in the tense "past" has a past time.
    """

    subject: Subject
    verb: Verb
    recipient: Phrase | None = None
    object: Phrase | None = None
    complement: Phrase | None = None
    circumstance: Text | None = None
    frequency: Text | None = None
    tense: Literal["present", "past", "perfect"] = "present"
    modal: Modal | None = None
    negated: bool = False
    front: Role | None = "subject"
    question: bool = False

    def phrase(self, role: Role) -> Phrase | None:
        """Return the phrase in a role, or None."""
        phrase: Phrase | None = getattr(self, role)
        return phrase


@dataclass(frozen=True)
class Compound:
    """Two clauses joined by a conjunction; if ``second_first``, the conjunction and the second clause come first."""

    main: Clause
    conjunction: Text
    second: Clause
    second_first: bool = False


@dataclass(frozen=True)
class Speech:
    """Direct speech: a statement or a question in quotation marks, and a clause of speaking (``act``): Anna says.

    If the speech comes first, the English act may be inverted: "says Anna".
    """

    act: Clause
    speech: Clause
    speech_first: bool = False
    inverted: bool = False


Sentence = Clause | Compound | Speech | Text
