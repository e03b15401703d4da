"""The kinds of words of the demo language: what a noun, an adjective, a verb is in English and in German.

The tables of the words themselves are in `nouns`, `adjectives`, `verbs`, `determiners` and `function_words`.
"""

from dataclasses import dataclass
from enum import Enum, auto


class Case(Enum):
    """The four German cases."""

    NOMINATIVE = auto()
    ACCUSATIVE = auto()
    DATIVE = auto()
    GENITIVE = auto()


class Gender(Enum):
    """The three German genders."""

    MASCULINE = auto()
    FEMININE = auto()
    NEUTER = auto()


class Number(Enum):
    """Grammatical number."""

    SINGULAR = auto()
    PLURAL = auto()


class Agreement(Enum):
    """What a finite verb agrees with; without "you", all plural forms coincide in both languages."""

    FIRST_SINGULAR = auto()
    THIRD_SINGULAR = auto()
    PLURAL = auto()


class Tense(Enum):
    """English tenses; German puts both PAST (always beside a past time) and PERFECT into the Perfekt."""

    PRESENT = auto()
    PAST = auto()
    PERFECT = auto()


class SemanticClass(Enum):
    """What a noun denotes: verbs and adjectives select the nouns they make sense with."""

    PERSON = auto()
    ANIMAL = auto()
    FOOD = auto()
    DRINK = auto()
    READING = auto()
    LETTER = auto()
    CLOTHING = auto()
    DEVICE = auto()
    OBJECT = auto()
    FURNITURE = auto()
    VEHICLE = auto()
    TRANSPORT = auto()
    PLANT = auto()
    BUILDING = auto()
    AREA = auto()
    WATERS = auto()
    CITY = auto()


SemanticClasses = tuple[SemanticClass, ...]


class Paradigm(Enum):
    """How a German determiner inflects; the declension of the adjectives after it follows from it."""

    DEFINITE_ARTICLE = auto()
    DER_WORD = auto()
    EIN_WORD = auto()
    QUANTIFIER = auto()
    UNINFLECTED = auto()


class Frame(Enum):
    """Which complements a verb takes."""

    INTRANSITIVE = auto()
    TRANSITIVE = auto()
    DITRANSITIVE = auto()
    PLACED = auto()


class Possession(Enum):
    """How many of a kind one calls one's own: no kings, one mother, any number of dogs."""

    NONE = auto()
    ONE = auto()
    MANY = auto()


@dataclass(frozen=True)
class Noun:
    """A noun; one without a plural is a mass noun or a city."""

    english: str
    english_plural: str
    german: str
    german_genitive: str
    german_plural: str
    gender: Gender
    semantic_class: SemanticClass
    possession: Possession = Possession.MANY

    def can_be_owned(self, number: Number) -> bool:
        """Whether a possessive determiner makes sense before the noun."""
        return self.possession is Possession.MANY or (self.possession is Possession.ONE and number is Number.SINGULAR)

    @property
    def countable(self) -> bool:
        """Whether the noun can be counted and take the indefinite article."""
        return bool(self.german_plural)


@dataclass(frozen=True)
class Adjective:
    """An adjective; its German stem before endings may differ from its predicative form (teuer, teure)."""

    english: str
    english_comparative: str
    german: str
    german_comparative: str
    german_stem: str
    classes: SemanticClasses


@dataclass(frozen=True)
class Determiner:
    """A determiner; `german` is the stem to which the endings of its paradigm are added."""

    english: str
    english_plural: str
    german: str
    paradigm: Paradigm
    definite: bool = False


@dataclass(frozen=True)
class Preposition:
    """A preposition and the case that it governs, one entry for each meaning ("in" and "into")."""

    english: str
    german: str
    case: Case


@dataclass(frozen=True)
class FiniteForms:
    """The finite forms of a verb in one tense."""

    first_singular: str
    third_singular: str
    plural: str

    def agreeing(self, agreement: Agreement) -> str:
        """The form for one kind of subject."""
        if agreement is Agreement.FIRST_SINGULAR:
            return self.first_singular
        return self.third_singular if agreement is Agreement.THIRD_SINGULAR else self.plural


@dataclass(frozen=True)
class IrregularForms:
    """The finite forms of a verb that do not follow from its principal parts, as in be and sein."""

    english_present: FiniteForms
    english_past: FiniteForms
    german_present: FiniteForms
    german_past: FiniteForms


Place = tuple[Preposition, SemanticClasses]


@dataclass(frozen=True)
class Verb:
    """A verb with its forms, its selectional restrictions and the prepositional phrases that suit it.

    The German participle is written with the separable prefix (aufgestanden), the other forms without it.
    `irregular` finite forms replace those that would be derived from the principal parts.
    """

    english_base: str
    english_third_singular: str
    english_past: str
    english_participle: str
    german_infinitive: str
    german_third_singular: str
    german_participle: str
    frame: Frame
    subjects: SemanticClasses = ()
    objects: SemanticClasses = ()
    places: tuple[Place, ...] = ()
    english_particle: str = ""
    german_prefix: str = ""
    takes_sein: bool = False
    object_case: Case = Case.ACCUSATIVE
    stative: bool = False
    irregular: IrregularForms | None = None


@dataclass(frozen=True)
class Modal:
    """A modal verb; "want to" is an English full verb, the others are auxiliaries."""

    english: FiniteForms
    german: FiniteForms
    is_auxiliary: bool = True
