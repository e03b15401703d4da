"""The language-neutral meaning of a sentence, which `english` and `german` put into words.

A meaning holds the words' lexicon entries and their grammatical roles, but neither their order nor their inflection.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from minitransformer.data.demo.lexicon import (
    Adjective,
    Agreement,
    Determiner,
    Gender,
    Modal,
    Noun,
    Number,
    Preposition,
    SemanticClass,
    Tense,
    Verb,
)


class Role(Enum):
    """The role that a constituent plays in its clause; its front names one of them."""

    SUBJECT = auto()
    RECIPIENT = auto()
    OBJECT = auto()
    COMPLEMENT = auto()
    CIRCUMSTANCE = auto()


@dataclass(frozen=True)
class Expression:
    """A fixed expression, the same in every context of a language: adverbs, names, numbers, dates, predicates."""

    english: str
    german: str


@dataclass(frozen=True)
class Pronoun:
    """A personal or interrogative pronoun; `english_object` serves every role but the subject."""

    english: str
    english_object: str
    german: str
    german_accusative: str
    german_dative: str
    agreement: Agreement


@dataclass(frozen=True)
class RelativePronoun:
    """A relative pronoun; its antecedent decides gender and number, its own clause the case."""

    gender: Gender
    number: Number
    human: bool


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner, adjectives, possessor ("of the old man") and relative clause."""

    determiner: Determiner
    noun: Noun
    number: Number = Number.SINGULAR
    adjectives: tuple[Adjective, ...] = ()
    possessor: NounPhrase | None = None
    relative: RelativeClause | None = None

    @property
    def relative_pronoun(self) -> RelativePronoun:
        """The relative pronoun that refers to this phrase."""
        return RelativePronoun(self.noun.gender, self.number, self.noun.semantic_class is SemanticClass.PERSON)


@dataclass(frozen=True)
class PrepositionalPhrase:
    """A preposition with its object."""

    preposition: Preposition
    object: Phrase


@dataclass(frozen=True)
class Conjunct:
    """Two phrases joined by "and", a plural subject."""

    first: Phrase
    second: Phrase


@dataclass(frozen=True)
class Comparison:
    """A predicate that compares its subject with something: bigger than the dog."""

    adjective: Adjective
    standard: Phrase


Phrase = Expression | Pronoun | RelativePronoun | NounPhrase | PrepositionalPhrase | Conjunct | Comparison


@dataclass(frozen=True)
class Clause:
    """A verb with its constituents; the complement is an obligatory or a free predicate, place, measure or company."""

    subject: Phrase
    verb: Verb
    recipient: Phrase | None = None
    object: Phrase | None = None
    complement: Phrase | None = None
    circumstance: Expression | None = None
    frequency: Expression | None = None
    tense: Tense = Tense.PRESENT
    modal: Modal | None = None
    negated: bool = False

    def constituent(self, role: Role) -> Phrase | None:
        """The phrase that plays a role."""
        match role:
            case Role.SUBJECT:
                return self.subject
            case Role.RECIPIENT:
                return self.recipient
            case Role.OBJECT:
                return self.object
            case Role.COMPLEMENT:
                return self.complement
            case Role.CIRCUMSTANCE:
                return self.circumstance

    @property
    def agreement(self) -> Agreement:
        """What the finite verb agrees with."""
        match self.subject:
            case Pronoun(agreement=agreement):
                return agreement
            case NounPhrase(number=Number.PLURAL) | RelativePronoun(number=Number.PLURAL) | Conjunct():
                return Agreement.PLURAL
            case _:
                return Agreement.THIRD_SINGULAR


@dataclass(frozen=True)
class RelativeClause:
    """A restrictive relative clause; the constituent in front is the relative pronoun."""

    clause: Clause
    front: Role


@dataclass(frozen=True)
class Statement:
    """A declarative main clause with its subject or its circumstance in front."""

    clause: Clause
    front: Role = Role.SUBJECT


@dataclass(frozen=True)
class PolarQuestion:
    """A question to be answered by yes or no."""

    clause: Clause


@dataclass(frozen=True)
class ContentQuestion:
    """A question with an interrogative phrase in front."""

    clause: Clause
    front: Role


@dataclass(frozen=True)
class Coordination:
    """Two statements joined by "and" or "but"."""

    first: Statement
    conjunction: Expression
    second: Statement


@dataclass(frozen=True)
class Subordination:
    """A main clause and a subordinate clause, which may come first."""

    main: Clause
    conjunction: Expression
    subordinate: Clause
    subordinate_first: bool = False


Sentence = Statement | PolarQuestion | ContentQuestion | Coordination | Subordination

I = Pronoun("I", "me", "ich", "mich", "mir", Agreement.FIRST_SINGULAR)  # noqa: E741
HE = Pronoun("he", "him", "er", "ihn", "ihm", Agreement.THIRD_SINGULAR)
SHE = Pronoun("she", "her", "sie", "sie", "ihr", Agreement.THIRD_SINGULAR)
IT = Pronoun("it", "it", "es", "es", "ihm", Agreement.THIRD_SINGULAR)
WE = Pronoun("we", "us", "wir", "uns", "uns", Agreement.PLURAL)
THEY = Pronoun("they", "them", "sie", "sie", "ihnen", Agreement.PLURAL)
WHO = Pronoun("who", "whom", "wer", "wen", "wem", Agreement.THIRD_SINGULAR)
WHAT = Pronoun("what", "what", "was", "was", "was", Agreement.THIRD_SINGULAR)
WHERE = Expression("where", "wo")
WHY = Expression("why", "warum")
WHEN = Expression("when", "wann")

AND = Expression("and", "und")
BUT = Expression("but", "aber")
THAT = Expression("that", "dass")
WHETHER = Expression("whether", "ob")
