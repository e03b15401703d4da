"""Random clauses: a verb, its subject and the complements of its frame."""

from functools import cache
from random import Random

from minitransformer.data.demo.adjectives import COLOURS, colours_for, qualities_for
from minitransformer.data.demo.function_words import A
from minitransformer.data.demo.lexicon import Frame, Gender, Number, SemanticClass, SemanticClasses, Verb
from minitransformer.data.demo.meaning import (
    HE,
    IT,
    SHE,
    Clause,
    Comparison,
    Expression,
    NounPhrase,
    Phrase,
)
from minitransformer.data.demo.nouns import (
    ANIMAL,
    AREA,
    BUILDING,
    CITY,
    CLOTHING,
    DRINK,
    FOOD,
    FURNITURE,
    NOUNS,
    OBJECT,
    PERSON,
    READING,
    VEHICLE,
    nouns_of,
)
from minitransformer.data.demo.phrases import (
    DEFINITE,
    GIFTS,
    OBJECTS,
    PEOPLE,
    SUBJECTS,
    DeterminerChoice,
    name,
    noun_phrase,
    person,
    place,
    subject,
)
from minitransformer.data.demo.verbs import ACTIONS, BE, LOCATIONS, RAIN, SNOW, STATES, STORAGE
