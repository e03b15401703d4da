"""The verbs, with selectional restrictions that keep the sentences sensible.

Principal parts: base, third person, past and participle in English; infinitive, third person and participle in German.
A dog that eats "frisst", a person who eats "isst": the subject decides.
"""

from minitransformer.data.demo.adjectives import GOODS, LIVING
from minitransformer.data.demo.function_words import (
    BEHIND,
    FOR,
    FROM,
    FROM_CITY,
    IN,
    IN_FRONT_OF,
    INTO,
    NEXT_TO,
    ON,
    ONTO,
    OUT_OF,
    THROUGH,
    TO,
    TO_CITY,
    UNDER,
    WITH,
    WITHOUT,
)
from minitransformer.data.demo.lexicon import (
    Case,
    FiniteForms,
    Frame,
    IrregularForms,
    Place,
    Verb,
)
from minitransformer.data.demo.nouns import (
    ANIMAL,
    AREA,
    BUILDING,
    CITY,
    CLOTHING,
    DEVICE,
    DRINK,
    FOOD,
    FURNITURE,
    LETTER,
    OBJECT,
    PEOPLE,
    PERSON,
    PLANT,
    READING,
    TRANSPORT,
    VEHICLE,
    WATERS,
)

INTRANSITIVE, TRANSITIVE, DITRANSITIVE, PLACED = Frame.INTRANSITIVE, Frame.TRANSITIVE, Frame.DITRANSITIVE, Frame.PLACED
ANIMALS = (ANIMAL,)
GIFTS = (READING, LETTER, CLOTHING, DEVICE, OBJECT)
EDIBLE_GIFTS = (*GIFTS, FOOD)
ANIMATE_GOODS = (*GOODS, ANIMAL)
VISIBLE = (*LIVING, *GIFTS, FURNITURE, VEHICLE, TRANSPORT, PLANT, BUILDING, BUILDING, WATERS)

ROOMS: tuple[Place, ...] = ((IN, (BUILDING, AREA)), (IN, (AREA, CITY)))
LOCATIONS: tuple[Place, ...] = (
    *ROOMS,
    (BEHIND, (BUILDING, PLANT)),
    (IN_FRONT_OF, (BUILDING,)),
    (NEXT_TO, (BUILDING, PLANT)),
    (UNDER, (PLANT,)),
)
COMPANY: tuple[Place, ...] = ((WITH, PEOPLE), (WITHOUT, PEOPLE))
ACTIVITY = (*LOCATIONS, *COMPANY)
BENEFIT: tuple[Place, ...] = (*ROOMS, (FOR, PEOPLE), (FOR, PEOPLE))
SEATS: tuple[Place, ...] = ((ON, (FURNITURE,)), (UNDER, (FURNITURE,)), (NEXT_TO, (PERSON, FURNITURE)), *LOCATIONS)
STORAGE: tuple[Place, ...] = ((ON, (FURNITURE,)), (UNDER, (FURNITURE,)), (NEXT_TO, (FURNITURE,)), (IN, (BUILDING,)))
WALKS: tuple[Place, ...] = (
    (INTO, (BUILDING, AREA)),
    (OUT_OF, (BUILDING, AREA)),
    (THROUGH, (AREA,)),
    (TO, (BUILDING, WATERS)),
    (TO, PEOPLE),
)
DRIVES: tuple[Place, ...] = ((TO_CITY, (CITY,)), (TO, (BUILDING, WATERS)), (WITH, PEOPLE))
JOURNEYS: tuple[Place, ...] = ((TO_CITY, (CITY,)),)
ORIGINS: tuple[Place, ...] = ((FROM_CITY, (CITY,)), (OUT_OF, (BUILDING, AREA)))
JUMPS: tuple[Place, ...] = ((ONTO, (FURNITURE,)), (INTO, (WATERS,)))
SWIMS: tuple[Place, ...] = ((IN, (WATERS,)), (IN, (WATERS,)), *COMPANY)
ARRIVALS: tuple[Place, ...] = ((IN, (CITY,)),)
SENDERS: tuple[Place, ...] = ((FROM, PEOPLE),)

# One verb a line, or two: a formatter would give each form its own.
# fmt: off
BE = Verb(
    "be", "is", "was", "been", "sein", "ist", "gewesen", PLACED, takes_sein=True, stative=True,
    irregular=IrregularForms(
        FiniteForms("am", "is", "are"), FiniteForms("was", "was", "were"),
        FiniteForms("bin", "ist", "sind"), FiniteForms("war", "war", "waren"),
    ),
)
COST = Verb("cost", "costs", "cost", "cost", "kosten", "kostet", "gekostet", PLACED, stative=True)
WEIGH = Verb("weigh", "weighs", "weighed", "weighed", "wiegen", "wiegt", "gewogen", PLACED, stative=True)
HAVE = Verb("have", "has", "had", "had", "haben", "hat", "gehabt", TRANSITIVE, PEOPLE, ANIMATE_GOODS, stative=True)
COUNT = Verb("count", "counts", "counted", "counted", "zählen", "zählt", "gezählt", TRANSITIVE, PEOPLE)
WRITE = Verb("write", "writes", "wrote", "written", "schreiben", "schreibt", "geschrieben", TRANSITIVE, PEOPLE)
SELL = Verb("sell", "sells", "sold", "sold", "verkaufen", "verkauft", "verkauft", TRANSITIVE, PEOPLE, ANIMATE_GOODS,
            ROOMS)
BUY = Verb("buy", "buys", "bought", "bought", "kaufen", "kauft", "gekauft", TRANSITIVE, PEOPLE, ANIMATE_GOODS, BENEFIT)
SEE = Verb("see", "sees", "saw", "seen", "sehen", "sieht", "gesehen", TRANSITIVE, LIVING, VISIBLE, LOCATIONS)
GET_UP = Verb("get", "gets", "got", "gotten", "stehen", "steht", "aufgestanden", INTRANSITIVE, PEOPLE, (), (), "up",
              "auf", takes_sein=True)
LIVE = Verb("live", "lives", "lived", "lived", "wohnen", "wohnt", "gewohnt", PLACED, PEOPLE, (), LOCATIONS,
            stative=True)
KNOW = Verb("know", "knows", "knew", "known", "wissen", "weiß", "gewusst", INTRANSITIVE, PEOPLE, stative=True)
RAIN = Verb("rain", "rains", "rained", "rained", "regnen", "regnet", "geregnet", INTRANSITIVE)
SNOW = Verb("snow", "snows", "snowed", "snowed", "schneien", "schneit", "geschneit", INTRANSITIVE)
WAKE_UP = Verb("wake", "wakes", "woke", "woken", "wachen", "wacht", "aufgewacht", INTRANSITIVE, LIVING, (), ROOMS,
               "up", "auf", takes_sein=True)
ARRIVE = Verb("arrive", "arrives", "arrived", "arrived", "kommen", "kommt", "angekommen", INTRANSITIVE,
              (PERSON, TRANSPORT), (), ARRIVALS, "", "an", takes_sein=True)
DEPART = Verb("depart", "departs", "departed", "departed", "fahren", "fährt", "abgefahren", INTRANSITIVE,
              (TRANSPORT,), (), (), "", "ab", takes_sein=True)
DEPARTURES = (GET_UP, WAKE_UP, ARRIVE, DEPART)

ACTIONS = (
    *DEPARTURES,
    Verb("fall asleep", "falls asleep", "fell asleep", "fallen asleep", "schlafen", "schläft", "eingeschlafen",
         INTRANSITIVE, LIVING, (), LOCATIONS, "", "ein", takes_sein=True),
    Verb("sleep", "sleeps", "slept", "slept", "schlafen", "schläft", "geschlafen", INTRANSITIVE, LIVING, (), LOCATIONS),
    Verb("work", "works", "worked", "worked", "arbeiten", "arbeitet", "gearbeitet", INTRANSITIVE, PEOPLE, (), ACTIVITY),
    Verb("play", "plays", "played", "played", "spielen", "spielt", "gespielt", INTRANSITIVE, LIVING, (), ACTIVITY),
    Verb("laugh", "laughs", "laughed", "laughed", "lachen", "lacht", "gelacht", INTRANSITIVE, PEOPLE, (), ACTIVITY),
    Verb("cry", "cries", "cried", "cried", "weinen", "weint", "geweint", INTRANSITIVE, PEOPLE, (), LOCATIONS),
    Verb("sing", "sings", "sang", "sung", "singen", "singt", "gesungen", INTRANSITIVE, PEOPLE, (), ACTIVITY),
    Verb("dance", "dances", "danced", "danced", "tanzen", "tanzt", "getanzt", INTRANSITIVE, PEOPLE, (), ACTIVITY),
    Verb("wait", "waits", "waited", "waited", "warten", "wartet", "gewartet", INTRANSITIVE, LIVING, (), LOCATIONS),
    Verb("swim", "swims", "swam", "swum", "schwimmen", "schwimmt", "geschwommen", INTRANSITIVE, LIVING, (), SWIMS,
         takes_sein=True),
    Verb("sit", "sits", "sat", "sat", "sitzen", "sitzt", "gesessen", PLACED, LIVING, (), SEATS),
    Verb("stand", "stands", "stood", "stood", "stehen", "steht", "gestanden", PLACED, LIVING, (), LOCATIONS),
    Verb("go", "goes", "went", "gone", "gehen", "geht", "gegangen", PLACED, PEOPLE, (), WALKS, takes_sein=True),
    Verb("run", "runs", "ran", "run", "laufen", "läuft", "gelaufen", PLACED, LIVING, (), WALKS, takes_sein=True),
    Verb("come", "comes", "came", "come", "kommen", "kommt", "gekommen", PLACED, PEOPLE, (), ORIGINS, takes_sein=True),
    Verb("drive", "drives", "drove", "driven", "fahren", "fährt", "gefahren", PLACED, PEOPLE, (), DRIVES,
         takes_sein=True),
    Verb("travel", "travels", "traveled", "traveled", "reisen", "reist", "gereist", PLACED, PEOPLE, (), JOURNEYS,
         takes_sein=True),
    Verb("fly", "flies", "flew", "flown", "fliegen", "fliegt", "geflogen", PLACED, PEOPLE, (), JOURNEYS,
         takes_sein=True),
    Verb("jump", "jumps", "jumped", "jumped", "springen", "springt", "gesprungen", PLACED, LIVING, (), JUMPS,
         takes_sein=True),
    SEE,
    SEE,
    Verb("hear", "hears", "heard", "heard", "hören", "hört", "gehört", TRANSITIVE, LIVING, (*LIVING, TRANSPORT),
         LOCATIONS),
    Verb("find", "finds", "found", "found", "finden", "findet", "gefunden", TRANSITIVE, PEOPLE, (*GIFTS, *LIVING),
         SEATS),
    Verb("look for", "looks for", "looked for", "looked for", "suchen", "sucht", "gesucht", TRANSITIVE, PEOPLE,
         (*GIFTS, *LIVING), LOCATIONS),
    BUY,
    SELL,
    Verb("eat", "eats", "ate", "eaten", "essen", "isst", "gegessen", TRANSITIVE, PEOPLE, (FOOD,), ACTIVITY),
    Verb("eat", "eats", "ate", "eaten", "fressen", "frisst", "gefressen", TRANSITIVE, ANIMALS, (FOOD,), LOCATIONS),
    Verb("drink", "drinks", "drank", "drunk", "trinken", "trinkt", "getrunken", TRANSITIVE, PEOPLE, (DRINK,), ACTIVITY),
    Verb("read", "reads", "read", "read", "lesen", "liest", "gelesen", TRANSITIVE, PEOPLE, (READING, LETTER), ACTIVITY),
    Verb("wear", "wears", "wore", "worn", "tragen", "trägt", "getragen", TRANSITIVE, PEOPLE, (CLOTHING,), ROOMS),
    Verb("carry", "carries", "carried", "carried", "tragen", "trägt", "getragen", TRANSITIVE, PEOPLE,
         (OBJECT, FURNITURE, FOOD), ((INTO, (BUILDING, AREA)), (THROUGH, (AREA,)), (OUT_OF, (BUILDING, AREA)))),
    Verb("repair", "repairs", "repaired", "repaired", "reparieren", "repariert", "repariert", TRANSITIVE, PEOPLE,
         (DEVICE, VEHICLE, FURNITURE, TRANSPORT), ACTIVITY),
    Verb("build", "builds", "built", "built", "bauen", "baut", "gebaut", TRANSITIVE, PEOPLE, (BUILDING,),
         ((IN, (CITY,)), (FOR, PEOPLE))),
    Verb("wash", "washes", "washed", "washed", "waschen", "wäscht", "gewaschen", TRANSITIVE, PEOPLE,
         (CLOTHING, VEHICLE, ANIMAL), ROOMS),
    Verb("visit", "visits", "visited", "visited", "besuchen", "besucht", "besucht", TRANSITIVE, PEOPLE,
         (PERSON, BUILDING), COMPANY),
    Verb("visit", "visits", "visited", "visited", "besuchen", "besucht", "besucht", TRANSITIVE, PEOPLE, (CITY,),
         COMPANY),
    Verb("meet", "meets", "met", "met", "treffen", "trifft", "getroffen", TRANSITIVE, PEOPLE, PEOPLE, LOCATIONS),
    Verb("forget", "forgets", "forgot", "forgotten", "vergessen", "vergisst", "vergessen", TRANSITIVE, PEOPLE, GIFTS),
    Verb("receive", "receives", "received", "received", "bekommen", "bekommt", "bekommen", TRANSITIVE, PEOPLE,
         EDIBLE_GIFTS, SENDERS),
    Verb("phone", "phones", "phoned", "phoned", "rufen", "ruft", "angerufen", TRANSITIVE, PEOPLE, PEOPLE, (), "", "an"),
    Verb("invite", "invites", "invited", "invited", "laden", "lädt", "eingeladen", TRANSITIVE, PEOPLE, PEOPLE, (), "",
         "ein"),
    Verb("pick", "picks", "picked", "picked", "holen", "holt", "abgeholt", TRANSITIVE, PEOPLE, PEOPLE, (), "up", "ab"),
    Verb("turn", "turns", "turned", "turned", "schalten", "schaltet", "eingeschaltet", TRANSITIVE, PEOPLE, (DEVICE,),
         (), "on", "ein"),
    Verb("turn", "turns", "turned", "turned", "schalten", "schaltet", "ausgeschaltet", TRANSITIVE, PEOPLE, (DEVICE,),
         (), "off", "aus"),
    Verb("put", "puts", "put", "put", "ziehen", "zieht", "angezogen", TRANSITIVE, PEOPLE, (CLOTHING,), (), "on", "an"),
    Verb("throw", "throws", "threw", "thrown", "werfen", "wirft", "weggeworfen", TRANSITIVE, PEOPLE, EDIBLE_GIFTS, (),
         "away", "weg"),
    Verb("help", "helps", "helped", "helped", "helfen", "hilft", "geholfen", TRANSITIVE, PEOPLE, PEOPLE, ROOMS,
         object_case=Case.DATIVE),
    Verb("thank", "thanks", "thanked", "thanked", "danken", "dankt", "gedankt", TRANSITIVE, PEOPLE, PEOPLE,
         object_case=Case.DATIVE),
    Verb("answer", "answers", "answered", "answered", "antworten", "antwortet", "geantwortet", TRANSITIVE, PEOPLE,
         PEOPLE, object_case=Case.DATIVE),
    Verb("follow", "follows", "followed", "followed", "folgen", "folgt", "gefolgt", TRANSITIVE, LIVING, LIVING,
         ((THROUGH, (AREA,)), (INTO, (BUILDING, AREA))), object_case=Case.DATIVE, takes_sein=True),
    Verb("give", "gives", "gave", "given", "geben", "gibt", "gegeben", DITRANSITIVE, PEOPLE, (*EDIBLE_GIFTS, DRINK)),
    Verb("show", "shows", "showed", "shown", "zeigen", "zeigt", "gezeigt", DITRANSITIVE, PEOPLE, (*GIFTS, BUILDING)),
    Verb("send", "sends", "sent", "sent", "schicken", "schickt", "geschickt", DITRANSITIVE, PEOPLE, GIFTS),
    Verb("bring", "brings", "brought", "brought", "bringen", "bringt", "gebracht", DITRANSITIVE, PEOPLE,
         (*EDIBLE_GIFTS, DRINK)),
    Verb("write", "writes", "wrote", "written", "schreiben", "schreibt", "geschrieben", DITRANSITIVE, PEOPLE,
         (LETTER,)),
)
TRANSITIVE_ACTIONS = tuple(verb for verb in ACTIONS if verb.frame is TRANSITIVE and CITY not in verb.objects)
"""The actions on what a common noun names."""
STATES = (
    HAVE,
    LIVE,
    LIVE,
    Verb("love", "loves", "loved", "loved", "lieben", "liebt", "geliebt", TRANSITIVE, PEOPLE,
         (*LIVING, PLANT, WATERS), stative=True),
    Verb("like", "likes", "liked", "liked", "mögen", "mag", "gemocht", TRANSITIVE, PEOPLE, (*LIVING, FOOD, DRINK),
         stative=True),
    Verb("need", "needs", "needed", "needed", "brauchen", "braucht", "gebraucht", TRANSITIVE, PEOPLE, GOODS,
         stative=True),
)
ATTITUDES = (
    KNOW,
    Verb("say", "says", "said", "said", "sagen", "sagt", "gesagt", INTRANSITIVE, PEOPLE),
    Verb("think", "thinks", "thought", "thought", "denken", "denkt", "gedacht", INTRANSITIVE, PEOPLE),
    Verb("hope", "hopes", "hoped", "hoped", "hoffen", "hofft", "gehofft", INTRANSITIVE, PEOPLE),
    Verb("believe", "believes", "believed", "believed", "glauben", "glaubt", "geglaubt", INTRANSITIVE, PEOPLE),
)
ASK = Verb("ask", "asks", "asked", "asked", "fragen", "fragt", "gefragt", INTRANSITIVE, PEOPLE)
# fmt: on
