"""The adjectives: positive and comparative in both languages, the German stem before endings, the classes of nouns."""

from functools import cache

from minitransformer.data.demo.lexicon import Adjective, SemanticClass, SemanticClasses
from minitransformer.data.demo.nouns import (
    ANIMAL,
    AREA,
    BUILDING,
    CLOTHING,
    DEVICE,
    DRINK,
    FOOD,
    FURNITURE,
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
ARTEFACTS = (READING, CLOTHING, DEVICE, OBJECT, FURNITURE, *WHEELED)
PAINTED = (CLOTHING, DEVICE, OBJECT, FURNITURE, *WHEELED)
GOODS = (READING, CLOTHING, DEVICE, OBJECT, FURNITURE, VEHICLE, FOOD, DRINK)
SIGHTS = (BUILDING, AREA, WATERS, PLANT)

RED = Adjective("red", "redder", "rot", "röter", "rot", (*PAINTED, BUILDING))
SMALL = Adjective("small", "smaller", "klein", "kleiner", "klein", (*LIVING, *ARTEFACTS, *SIGHTS))

COLOURS = (
    RED,
    Adjective("green", "greener", "grün", "grüner", "grün", PAINTED),
    Adjective("blue", "bluer", "blau", "blauer", "blau", PAINTED),
    Adjective("yellow", "yellower", "gelb", "gelber", "gelb", (*PAINTED, BUILDING)),
    Adjective("black", "blacker", "schwarz", "schwärzer", "schwarz", (*PAINTED, ANIMAL)),
    Adjective("white", "whiter", "weiß", "weißer", "weiß", (*PAINTED, ANIMAL, BUILDING)),
)

QUALITIES = (
    SMALL,
    Adjective("big", "bigger", "groß", "größer", "groß", (*LIVING, *ARTEFACTS, *SIGHTS)),
    Adjective("old", "older", "alt", "älter", "alt", (*LIVING, *ARTEFACTS, *SIGHTS)),
    Adjective("young", "younger", "jung", "jünger", "jung", LIVING),
    Adjective("tired", "more tired", "müde", "müder", "müd", LIVING),
    Adjective("hungry", "hungrier", "hungrig", "hungriger", "hungrig", LIVING),
    Adjective("strong", "stronger", "stark", "stärker", "stark", LIVING),
    Adjective("clever", "cleverer", "klug", "klüger", "klug", LIVING),
    Adjective("happy", "happier", "glücklich", "glücklicher", "glücklich", (PERSON,)),
    Adjective("sad", "sadder", "traurig", "trauriger", "traurig", (PERSON,)),
    Adjective("friendly", "friendlier", "freundlich", "freundlicher", "freundlich", (PERSON,)),
    Adjective("rich", "richer", "reich", "reicher", "reich", (PERSON,)),
    Adjective("poor", "poorer", "arm", "ärmer", "arm", (PERSON,)),
    Adjective("famous", "more famous", "berühmt", "berühmter", "berühmt", (PERSON, BUILDING)),
    Adjective("new", "newer", "neu", "neuer", "neu", (*ARTEFACTS, BUILDING)),
    Adjective("beautiful", "more beautiful", "schön", "schöner", "schön", (CLOTHING, DEVICE, OBJECT, *SIGHTS)),
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
def colours_for(semantic_class: SemanticClass) -> tuple[Adjective, ...]:
    """The colours that nouns of a class can have."""
    return tuple(adjective for adjective in COLOURS if semantic_class in adjective.classes)


@cache
def qualities_for(classes: SemanticClasses) -> tuple[Adjective, ...]:
    """The adjectives other than colours that suit nouns of every one of the classes."""
    return tuple(adjective for adjective in QUALITIES if set(classes) <= set(adjective.classes))
