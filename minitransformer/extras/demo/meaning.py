"""The meaning of a sentence: words and their roles, without order and inflection, which `english` and `german` add."""

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
    """Two phrases joined by "and" or "&", a plural subject."""

    first: Phrase
    second: Phrase
    conjunction: Text = AND
    person = PLURAL


@dataclass(frozen=True)
class Governed:
    """A preposition, or "bigger than", and the phrase whose case it governs."""

    preposition: Text
    case: str
    phrase: Phrase


Subject = Text | Pronoun | NounPhrase | Pair
Phrase = Subject | Governed


@dataclass(frozen=True)
class Clause:
    """A verb with its constituents.  One of them comes before the verb, except in a yes-or-no question.

    The complement is a predicate, a place, a measure or a companion ("with Anna").  The tense "past" requires a past
    time.
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
        """Return the phrase that plays a role."""
        phrase: Phrase | None = getattr(self, role)
        return phrase


@dataclass(frozen=True)
class Compound:
    """Two clauses joined by a conjunction; a subordinate clause, the second, may come first."""

    main: Clause
    conjunction: Text
    second: Clause
    second_first: bool = False


@dataclass(frozen=True)
class Speech:
    """Direct speech: a statement or a question in quotation marks, after the act of speaking or before it.

    If the speech comes first, English may invert the act: "says Anna".
    """

    act: Clause
    speech: Clause
    speech_first: bool = False
    inverted: bool = False


Sentence = Clause | Compound | Speech | Text
