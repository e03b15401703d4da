"""The nouns: English singular and plural; German nominative, genitive singular and plural; gender; class; possession.

English nouns that do not reveal a person's sex ("teacher") are masculine in German. Nouns whose English singular
and plural coincide ("sheep") are left out, for their number could not be told from the sentence.
"""

from functools import cache

from minitransformer.data.demo.lexicon import (
    Gender,
    Noun,
    Possession,
    SemanticClass,
    SemanticClasses,
)

MASCULINE, FEMININE, NEUTER = Gender.MASCULINE, Gender.FEMININE, Gender.NEUTER
PERSON, ANIMAL = SemanticClass.PERSON, SemanticClass.ANIMAL
FOOD, DRINK, CLOTHING = SemanticClass.FOOD, SemanticClass.DRINK, SemanticClass.CLOTHING
READING, LETTER = SemanticClass.READING, SemanticClass.LETTER
DEVICE, OBJECT, FURNITURE = SemanticClass.DEVICE, SemanticClass.OBJECT, SemanticClass.FURNITURE
VEHICLE, TRANSPORT, PLANT = SemanticClass.VEHICLE, SemanticClass.TRANSPORT, SemanticClass.PLANT
BUILDING, AREA, WATERS, CITY = SemanticClass.BUILDING, SemanticClass.AREA, SemanticClass.WATERS, SemanticClass.CITY
PEOPLE = (PERSON,)

UNOWNED, UNIQUE = Possession.NONE, Possession.ONE

RIVER = Noun("river", "rivers", "Fluss", "Flusses", "Flüsse", MASCULINE, WATERS, UNOWNED)
TABLE = Noun("table", "tables", "Tisch", "Tisches", "Tische", MASCULINE, FURNITURE)
TRAIN = Noun("train", "trains", "Zug", "Zuges", "Züge", MASCULINE, TRANSPORT, UNOWNED)
VILLAGE = Noun("village", "villages", "Dorf", "Dorfes", "Dörfer", NEUTER, AREA, UNOWNED)
INHABITANT = Noun("inhabitant", "inhabitants", "Einwohner", "Einwohners", "Einwohner", MASCULINE, PERSON)

NOUNS = (
    Noun("man", "men", "Mann", "Mannes", "Männer", MASCULINE, PERSON, UNOWNED),
    Noun("woman", "women", "Frau", "Frau", "Frauen", FEMININE, PERSON, UNOWNED),
    Noun("boy", "boys", "Junge", "Jungen", "Jungen", MASCULINE, PERSON, UNOWNED),
    Noun("child", "children", "Kind", "Kindes", "Kinder", NEUTER, PERSON),
    Noun("father", "fathers", "Vater", "Vaters", "Väter", MASCULINE, PERSON, UNIQUE),
    Noun("mother", "mothers", "Mutter", "Mutter", "Mütter", FEMININE, PERSON, UNIQUE),
    Noun("brother", "brothers", "Bruder", "Bruders", "Brüder", MASCULINE, PERSON),
    Noun("sister", "sisters", "Schwester", "Schwester", "Schwestern", FEMININE, PERSON),
    Noun("son", "sons", "Sohn", "Sohnes", "Söhne", MASCULINE, PERSON),
    Noun("daughter", "daughters", "Tochter", "Tochter", "Töchter", FEMININE, PERSON),
    Noun("uncle", "uncles", "Onkel", "Onkels", "Onkel", MASCULINE, PERSON),
    Noun("aunt", "aunts", "Tante", "Tante", "Tanten", FEMININE, PERSON),
    Noun("king", "kings", "König", "Königs", "Könige", MASCULINE, PERSON, UNOWNED),
    Noun("queen", "queens", "Königin", "Königin", "Königinnen", FEMININE, PERSON, UNOWNED),
    Noun("teacher", "teachers", "Lehrer", "Lehrers", "Lehrer", MASCULINE, PERSON),
    Noun("doctor", "doctors", "Arzt", "Arztes", "Ärzte", MASCULINE, PERSON),
    Noun("farmer", "farmers", "Bauer", "Bauern", "Bauern", MASCULINE, PERSON),
    Noun("baker", "bakers", "Bäcker", "Bäckers", "Bäcker", MASCULINE, PERSON),
    Noun("friend", "friends", "Freund", "Freundes", "Freunde", MASCULINE, PERSON),
    Noun("guest", "guests", "Gast", "Gastes", "Gäste", MASCULINE, PERSON),
    Noun("dog", "dogs", "Hund", "Hundes", "Hunde", MASCULINE, ANIMAL),
    Noun("cat", "cats", "Katze", "Katze", "Katzen", FEMININE, ANIMAL),
    Noun("horse", "horses", "Pferd", "Pferdes", "Pferde", NEUTER, ANIMAL),
    Noun("cow", "cows", "Kuh", "Kuh", "Kühe", FEMININE, ANIMAL),
    Noun("bird", "birds", "Vogel", "Vogels", "Vögel", MASCULINE, ANIMAL),
    Noun("mouse", "mice", "Maus", "Maus", "Mäuse", FEMININE, ANIMAL),
    Noun("bear", "bears", "Bär", "Bären", "Bären", MASCULINE, ANIMAL, UNOWNED),
    Noun("pig", "pigs", "Schwein", "Schweins", "Schweine", NEUTER, ANIMAL),
    Noun("wolf", "wolves", "Wolf", "Wolfs", "Wölfe", MASCULINE, ANIMAL, UNOWNED),
    Noun("lion", "lions", "Löwe", "Löwen", "Löwen", MASCULINE, ANIMAL, UNOWNED),
    Noun("monkey", "monkeys", "Affe", "Affen", "Affen", MASCULINE, ANIMAL),
    Noun("duck", "ducks", "Ente", "Ente", "Enten", FEMININE, ANIMAL),
    Noun("apple", "apples", "Apfel", "Apfels", "Äpfel", MASCULINE, FOOD),
    Noun("pear", "pears", "Birne", "Birne", "Birnen", FEMININE, FOOD),
    Noun("egg", "eggs", "Ei", "Eis", "Eier", NEUTER, FOOD),
    Noun("cake", "cakes", "Kuchen", "Kuchens", "Kuchen", MASCULINE, FOOD),
    Noun("potato", "potatoes", "Kartoffel", "Kartoffel", "Kartoffeln", FEMININE, FOOD),
    Noun("sausage", "sausages", "Wurst", "Wurst", "Würste", FEMININE, FOOD),
    Noun("bread", "", "Brot", "Brotes", "", NEUTER, FOOD),
    Noun("cheese", "", "Käse", "Käses", "", MASCULINE, FOOD),
    Noun("meat", "", "Fleisch", "Fleischs", "", NEUTER, FOOD),
    Noun("water", "", "Wasser", "Wassers", "", NEUTER, DRINK),
    Noun("milk", "", "Milch", "Milch", "", FEMININE, DRINK),
    Noun("coffee", "", "Kaffee", "Kaffees", "", MASCULINE, DRINK),
    Noun("tea", "", "Tee", "Tees", "", MASCULINE, DRINK),
    Noun("wine", "", "Wein", "Weins", "", MASCULINE, DRINK),
    Noun("beer", "", "Bier", "Biers", "", NEUTER, DRINK),
    Noun("book", "books", "Buch", "Buches", "Bücher", NEUTER, READING),
    Noun("letter", "letters", "Brief", "Briefs", "Briefe", MASCULINE, LETTER),
    Noun("newspaper", "newspapers", "Zeitung", "Zeitung", "Zeitungen", FEMININE, READING),
    Noun("coat", "coats", "Mantel", "Mantels", "Mäntel", MASCULINE, CLOTHING),
    Noun("sweater", "sweaters", "Pullover", "Pullovers", "Pullover", MASCULINE, CLOTHING),
    Noun("shirt", "shirts", "Hemd", "Hemds", "Hemden", NEUTER, CLOTHING),
    Noun("jacket", "jackets", "Jacke", "Jacke", "Jacken", FEMININE, CLOTHING),
    Noun("lamp", "lamps", "Lampe", "Lampe", "Lampen", FEMININE, DEVICE),
    Noun("computer", "computers", "Computer", "Computers", "Computer", MASCULINE, DEVICE),
    Noun("key", "keys", "Schlüssel", "Schlüssels", "Schlüssel", MASCULINE, OBJECT),
    Noun("bottle", "bottles", "Flasche", "Flasche", "Flaschen", FEMININE, OBJECT),
    Noun("cup", "cups", "Tasse", "Tasse", "Tassen", FEMININE, OBJECT),
    Noun("knife", "knives", "Messer", "Messers", "Messer", NEUTER, OBJECT),
    Noun("picture", "pictures", "Bild", "Bildes", "Bilder", NEUTER, OBJECT),
    Noun("bag", "bags", "Tasche", "Tasche", "Taschen", FEMININE, OBJECT),
    Noun("ball", "balls", "Ball", "Balls", "Bälle", MASCULINE, OBJECT),
    TABLE,
    Noun("chair", "chairs", "Stuhl", "Stuhls", "Stühle", MASCULINE, FURNITURE),
    Noun("bed", "beds", "Bett", "Bettes", "Betten", NEUTER, FURNITURE),
    Noun("car", "cars", "Auto", "Autos", "Autos", NEUTER, VEHICLE),
    Noun("bicycle", "bicycles", "Fahrrad", "Fahrrads", "Fahrräder", NEUTER, VEHICLE),
    TRAIN,
    Noun("bus", "buses", "Bus", "Busses", "Busse", MASCULINE, TRANSPORT, UNOWNED),
    Noun("tree", "trees", "Baum", "Baumes", "Bäume", MASCULINE, PLANT, UNOWNED),
    Noun("flower", "flowers", "Blume", "Blume", "Blumen", FEMININE, OBJECT),
    Noun("house", "houses", "Haus", "Hauses", "Häuser", NEUTER, BUILDING),
    Noun("school", "schools", "Schule", "Schule", "Schulen", FEMININE, BUILDING, UNOWNED),
    Noun("church", "churches", "Kirche", "Kirche", "Kirchen", FEMININE, BUILDING, UNOWNED),
    Noun("hotel", "hotels", "Hotel", "Hotels", "Hotels", NEUTER, BUILDING, UNOWNED),
    Noun("castle", "castles", "Schloss", "Schlosses", "Schlösser", NEUTER, BUILDING),
    Noun("hospital", "hospitals", "Krankenhaus", "Krankenhauses", "Krankenhäuser", NEUTER, BUILDING, UNOWNED),
    Noun("garden", "gardens", "Garten", "Gartens", "Gärten", MASCULINE, AREA),
    Noun("forest", "forests", "Wald", "Waldes", "Wälder", MASCULINE, AREA, UNOWNED),
    Noun("park", "parks", "Park", "Parks", "Parks", MASCULINE, AREA, UNOWNED),
    Noun("city", "cities", "Stadt", "Stadt", "Städte", FEMININE, AREA, UNOWNED),
    VILLAGE,
    Noun("lake", "lakes", "See", "Sees", "Seen", MASCULINE, WATERS, UNOWNED),
    RIVER,
    Noun("Berlin", "", "Berlin", "Berlins", "", NEUTER, CITY, UNOWNED),
    Noun("Vienna", "", "Wien", "Wiens", "", NEUTER, CITY, UNOWNED),
    Noun("Munich", "", "München", "Münchens", "", NEUTER, CITY, UNOWNED),
    Noun("Cologne", "", "Köln", "Kölns", "", NEUTER, CITY, UNOWNED),
    Noun("Hamburg", "", "Hamburg", "Hamburgs", "", NEUTER, CITY, UNOWNED),
)


@cache
def nouns_of(classes: SemanticClasses) -> tuple[Noun, ...]:
    """The nouns that belong to one of the semantic classes."""
    return tuple(noun for noun in NOUNS if noun.semantic_class in classes)
