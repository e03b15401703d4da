"""The adjectives: positive and comparative in both languages, the German stem before endings, the classes of nouns."""

from functools import cache

from minitransformer.data.demo.lexicon import Adjective, Noun, SemanticClass
from minitransformer.data.demo.nouns import (
    ANIMAL,
    AREA,
    BUILDING,
    CLOTHING,
    DEVICE,
    DRINK,
    FOOD,
    FURNITURE,
    LETTER,
    OBJECT,
    PERSON,
    PLANT,
    READING,
    TRANSPORT,
    VEHICLE,
    WATERS,
)

LIVING = (PERSON, ANIMAL)
WHEELED = (VEHICLE, TRANSPORT)
ARTEFACTS = (READING, LETTER, CLOTHING, DEVICE, OBJECT, FURNITURE, *WHEELED)
PAINTED = (CLOTHING, DEVICE, OBJECT, FURNITURE, *WHEELED)
GOODS = (READING, CLOTHING, DEVICE, OBJECT, FURNITURE, VEHICLE, FOOD, DRINK)
SIGHTS = (BUILDING, AREA, WATERS, PLANT)

COLOURS = (
    Adjective("red", "redder", "rot", "röter", "rot", (*PAINTED, BUILDING)),
    Adjective("green", "greener", "grün", "grüner", "grün", PAINTED),
    Adjective("blue", "bluer", "blau", "blauer", "blau", PAINTED),
    Adjective("yellow", "yellower", "gelb", "gelber", "gelb", (*PAINTED, BUILDING)),
    Adjective("black", "blacker", "schwarz", "schwärzer", "schwarz", (*PAINTED, ANIMAL)),
    Adjective("white", "whiter", "weiß", "weißer", "weiß", (*PAINTED, ANIMAL, BUILDING)),
)

MOODS = (
    Adjective("tired", "more tired", "müde", "müder", "müd", LIVING),
    Adjective("hungry", "hungrier", "hungrig", "hungriger", "hungrig", LIVING),
    Adjective("happy", "happier", "glücklich", "glücklicher", "glücklich", LIVING),
    Adjective("sad", "sadder", "traurig", "trauriger", "traurig", LIVING),
)
"""What somebody may be today and not tomorrow."""

QUALITIES = (
    *MOODS,
    Adjective("small", "smaller", "klein", "kleiner", "klein", (*LIVING, *ARTEFACTS, *SIGHTS)),
    Adjective("big", "bigger", "groß", "größer", "groß", (*LIVING, *ARTEFACTS, *SIGHTS)),
    Adjective("old", "older", "alt", "älter", "alt", (*LIVING, *ARTEFACTS, *SIGHTS)),
    Adjective("young", "younger", "jung", "jünger", "jung", LIVING),
    Adjective("strong", "stronger", "stark", "stärker", "stark", LIVING),
    Adjective("clever", "cleverer", "klug", "klüger", "klug", LIVING),
    Adjective("friendly", "friendlier", "freundlich", "freundlicher", "freundlich", (PERSON,)),
    Adjective("rich", "richer", "reich", "reicher", "reich", (PERSON,)),
    Adjective("brave", "braver", "mutig", "mutiger", "mutig", (PERSON,)),
    Adjective("famous", "more famous", "berühmt", "berühmter", "berühmt", (PERSON, BUILDING)),
    Adjective("new", "newer", "neu", "neuer", "neu", (*ARTEFACTS, BUILDING)),
    Adjective("beautiful", "more beautiful", "schön", "schöner", "schön", (LETTER, CLOTHING, DEVICE, OBJECT, *SIGHTS)),
    Adjective("expensive", "more expensive", "teuer", "teurer", "teur", GOODS),
    Adjective("cheap", "cheaper", "billig", "billiger", "billig", GOODS),
    Adjective("fresh", "fresher", "frisch", "frischer", "frisch", (FOOD,)),
    Adjective("warm", "warmer", "warm", "wärmer", "warm", (DRINK, CLOTHING)),
    Adjective("cold", "colder", "kalt", "kälter", "kalt", (DRINK, WATERS)),
    Adjective("dirty", "dirtier", "schmutzig", "schmutziger", "schmutzig", (CLOTHING, *WHEELED)),
    Adjective("clean", "cleaner", "sauber", "sauberer", "sauber", (CLOTHING, *WHEELED)),
    Adjective("dark", "darker", "dunkel", "dunkler", "dunkl", (BUILDING, AREA)),
    Adjective("fast", "faster", "schnell", "schneller", "schnell", WHEELED),
)


@cache
def colours_of(semantic_class: SemanticClass) -> tuple[Adjective, ...]:
    """The colours that nouns of a class can have."""
    return tuple(adjective for adjective in COLOURS if semantic_class in adjective.classes)


@cache
def qualities_of(semantic_class: SemanticClass) -> tuple[Adjective, ...]:
    """The adjectives other than colours that suit nouns of a class."""
    return tuple(adjective for adjective in QUALITIES if semantic_class in adjective.classes)


@cache
def qualities_for(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives other than colours that suit a noun, without cognates: no "junge Jungen" (young boys)."""
    stem = noun.german.lower()
    suitable = qualities_of(noun.semantic_class)
    return tuple(each for each in suitable if not (stem.startswith(each.german) or each.german.startswith(stem)))
