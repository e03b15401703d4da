"""The demo corpus: numbers, inflection, every construction of the grammar, and the corpus made of them."""

import unicodedata
from collections import defaultdict
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.data.demo import SHOWCASE, demo_corpus, english_number, german_number, sentence_pair
from minitransformer.data.demo.adjectives import COLOURS, QUALITIES
from minitransformer.data.demo.dates import (
    calendar_date,
    clock_hour,
    day_of_month,
    digital_time,
    half_past,
    minutes_past,
    minutes_to,
)
from minitransformer.data.demo.english import english_sentence
from minitransformer.data.demo.function_words import (
    ALL,
    CAN,
    HOW_MANY,
    IN,
    IN_FRONT_OF,
    INTO,
    MANY,
    NAMES,
    NO,
    NO_DETERMINER,
    POSSESSIVE_NAMES,
    POSSESSIVE_PRONOUNS,
    PROPER_NAME,
    THE,
    THIS,
    TO,
    TO_CITY,
    WANT,
    WHICH,
    WILL,
    WITH,
    A,
)
from minitransformer.data.demo.german import german_phrase, german_sentence
from minitransformer.data.demo.grammar import MAX_WORDS, PATTERNS
from minitransformer.data.demo.lexicon import (
    Adjective,
    Case,
    Determiner,
    Gender,
    Noun,
    Number,
    Preposition,
    SemanticClass,
    Tense,
    Verb,
)
from minitransformer.data.demo.meaning import (
    AND,
    BUT,
    HE,
    IT,
    SHE,
    THAT,
    THEY,
    WE,
    WHEN,
    WHERE,
    WHO,
    Clause,
    Comparison,
    Conjunct,
    ContentQuestion,
    Coordination,
    Expression,
    I,
    NounPhrase,
    Phrase,
    PolarQuestion,
    PrepositionalPhrase,
    RelativeClause,
    Role,
    Sentence,
    Statement,
    Subordination,
)
from minitransformer.data.demo.nouns import INHABITANT, NOUNS
from minitransformer.data.demo.numbers import english_numeral, german_numeral
from minitransformer.data.demo.phrases import cardinal, fresh_noun
from minitransformer.data.demo.verbs import ACTIONS, ATTITUDES, BE, COST, HAVE, RAIN, STATES

NUMBER_WORDS = [
    (0, "zero", "null"),
    (1, "one", "eins"),
    (16, "sixteen", "sechzehn"),
    (17, "seventeen", "siebzehn"),
    (21, "twenty-one", "einundzwanzig"),
    (30, "thirty", "dreißig"),
    (70, "seventy", "siebzig"),
    (100, "one hundred", "einhundert"),
    (101, "one hundred and one", "einhunderteins"),
    (111, "one hundred and eleven", "einhundertelf"),
    (999, "nine hundred and ninety-nine", "neunhundertneunundneunzig"),
    (1_000, "one thousand", "eintausend"),
    (1_001, "one thousand and one", "eintausendeins"),
    (12_312, "twelve thousand three hundred and twelve", "zwölftausenddreihundertzwölf"),
    (100_000, "one hundred thousand", "einhunderttausend"),
    (101_000, "one hundred and one thousand", "einhunderteintausend"),
    (312_405, "three hundred and twelve thousand four hundred and five", "dreihundertzwölftausendvierhundertfünf"),
    (
        999_999,
        "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
    ),
    (1_000_000, "one million", "eine Million"),
]


@pytest.mark.parametrize(("number", "english", "german"), NUMBER_WORDS)
def test_number_words(number: int, english: str, german: str) -> None:
    assert (english_number(number), german_number(number)) == (english, german)


@pytest.mark.parametrize("number_words", [english_number, german_number])
@pytest.mark.parametrize("number", [-1, 1_000_001])
def test_number_words_end_at_a_million(number_words, number: int) -> None:
    with pytest.raises(ValueError, match="number words reach"):
        number_words(number)


@given(st.integers(0, 1_000_000), st.integers(0, 1_000_000))
def test_number_words_are_injective(first: int, second: int) -> None:
    assert (english_number(first) == english_number(second)) == (first == second)
    assert (german_number(first) == german_number(second)) == (first == second)


def test_small_number_words_are_all_different() -> None:
    numbers = range(30_000)
    assert len(set(map(english_number, numbers))) == len(set(map(german_number, numbers))) == len(numbers)


def test_numerals_have_the_separators_of_their_language() -> None:
    assert (english_numeral(1250), german_numeral(1250)) == ("1,250", "1.250")
    assert (english_numeral(3.5, 1), german_numeral(3.5, 1)) == ("3.5", "3,5")
    assert (english_numeral(1_234_567.25, 2), german_numeral(1_234_567.25, 2)) == ("1,234,567.25", "1.234.567,25")


@pytest.mark.parametrize(
    ("expression", "english", "german"),
    [
        (half_past(7), "half past seven", "halb acht"),
        (half_past(12), "half past twelve", "halb eins"),
        (minutes_past(15, 8), "a quarter past eight", "Viertel nach acht"),
        (minutes_to(15, 9), "a quarter to nine", "Viertel vor neun"),
        (minutes_past(10, 1), "ten past one", "zehn nach eins"),
        (clock_hour(1), "one o'clock", "ein Uhr"),
        (clock_hour(5), "five o'clock", "fünf Uhr"),
        (digital_time(14, 35), "14:35", "14:35 Uhr"),
        (digital_time(9, 5), "9:05", "9:05 Uhr"),
        (calendar_date(3, 4, 1987), "May 3, 1987", "3. Mai 1987"),
        (day_of_month(1, 0, Case.NOMINATIVE), "the first of January", "erste Januar"),
        (day_of_month(3, 4, Case.DATIVE), "the third of May", "dritten Mai"),
        (day_of_month(7, 2, Case.DATIVE), "the seventh of March", "siebten März"),
        (day_of_month(8, 2, Case.DATIVE), "the eighth of March", "achten März"),
        (day_of_month(12, 2, Case.DATIVE), "the twelfth of March", "zwölften März"),
        (day_of_month(20, 9, Case.DATIVE), "the twentieth of October", "zwanzigsten Oktober"),
        (day_of_month(31, 11, Case.NOMINATIVE), "the thirty-first of December", "einunddreißigste Dezember"),
    ],
)
def test_dates_and_times(expression: Expression, english: str, german: str) -> None:
    assert (expression.english, expression.german) == (english, german)


def noun(english: str) -> Noun:
    return next(each for each in NOUNS if each.english == english)


def adjective(english: str) -> Adjective:
    return next(each for each in (*QUALITIES, *COLOURS) if each.english == english)


def verb(german: str) -> Verb:
    return next(
        each
        for each in (*ACTIONS, *STATES, *ATTITUDES)
        if german in (each.german_infinitive, each.german_prefix + each.german_infinitive)
        and german.startswith(each.german_prefix)
    )


def one(determiner: Determiner, head: str, *adjectives: str) -> NounPhrase:
    return NounPhrase(determiner, noun(head), Number.SINGULAR, tuple(map(adjective, adjectives)))


def many(determiner: Determiner, head: str, *adjectives: str) -> NounPhrase:
    return replace(one(determiner, head, *adjectives), number=Number.PLURAL)


def named(name: str) -> Expression:
    return Expression(name, name)


def at(preposition: Preposition, phrase: Phrase) -> PrepositionalPhrase:
    return PrepositionalPhrase(preposition, phrase)


def forms(singular: NounPhrase, plural: NounPhrase) -> str:
    return "\n".join(", ".join(german_phrase(phrase, case) for phrase in (singular, plural)) for case in Case)


MY, HIS, HER, OUR, THEIR = POSSESSIVE_PRONOUNS
ANNAS = POSSESSIVE_NAMES[0]


@pytest.mark.parametrize(
    ("singular", "plural", "declension"),
    [
        (
            one(THE, "dog", "small"),
            many(THE, "dog", "small"),
            "der kleine Hund, die kleinen Hunde\n"
            "den kleinen Hund, die kleinen Hunde\n"
            "dem kleinen Hund, den kleinen Hunden\n"
            "des kleinen Hundes, der kleinen Hunde",
        ),
        (
            one(THE, "woman", "young"),
            many(THIS, "woman", "young"),
            "die junge Frau, diese jungen Frauen\n"
            "die junge Frau, diese jungen Frauen\n"
            "der jungen Frau, diesen jungen Frauen\n"
            "der jungen Frau, dieser jungen Frauen",
        ),
        (
            one(THE, "house", "expensive"),
            many(ALL, "house", "dark"),
            "das teure Haus, alle dunklen Häuser\n"
            "das teure Haus, alle dunklen Häuser\n"
            "dem teuren Haus, allen dunklen Häusern\n"
            "des teuren Hauses, aller dunklen Häuser",
        ),
        (
            one(A, "man", "old"),
            many(NO, "man", "old"),
            "ein alter Mann, keine alten Männer\n"
            "einen alten Mann, keine alten Männer\n"
            "einem alten Mann, keinen alten Männern\n"
            "eines alten Mannes, keiner alten Männer",
        ),
        (
            one(A, "cow", "black"),
            many(OUR, "cow", "black"),
            "eine schwarze Kuh, unsere schwarzen Kühe\n"
            "eine schwarze Kuh, unsere schwarzen Kühe\n"
            "einer schwarzen Kuh, unseren schwarzen Kühen\n"
            "einer schwarzen Kuh, unserer schwarzen Kühe",
        ),
        (
            one(MY, "car", "new"),
            many(MANY, "car", "new"),
            "mein neues Auto, viele neue Autos\n"
            "mein neues Auto, viele neue Autos\n"
            "meinem neuen Auto, vielen neuen Autos\n"
            "meines neuen Autos, vieler neuer Autos",
        ),
        (
            one(NO_DETERMINER, "wine", "cold"),
            many(NO_DETERMINER, "apple", "fresh"),
            "kalter Wein, frische Äpfel\n"
            "kalten Wein, frische Äpfel\n"
            "kaltem Wein, frischen Äpfeln\n"
            "kalten Weins, frischer Äpfel",
        ),
        (
            one(NO_DETERMINER, "milk", "warm"),
            many(cardinal(3), "garden", "big"),
            "warme Milch, drei große Gärten\n"
            "warme Milch, drei große Gärten\n"
            "warmer Milch, drei großen Gärten\n"
            "warmer Milch, drei großer Gärten",
        ),
        (
            one(ANNAS, "horse", "white"),
            many(ANNAS, "horse", "white"),
            "Annas weißes Pferd, Annas weiße Pferde\n"
            "Annas weißes Pferd, Annas weiße Pferde\n"
            "Annas weißem Pferd, Annas weißen Pferden\n"
            "Annas weißen Pferdes, Annas weißer Pferde",
        ),
        (
            one(WHICH, "boy"),
            many(HOW_MANY, "boy"),
            "welcher Junge, wie viele Jungen\n"
            "welchen Jungen, wie viele Jungen\n"
            "welchem Jungen, wie vielen Jungen\n"
            "welches Jungen, wie vieler Jungen",
        ),
    ],
)
def test_declension(singular: NounPhrase, plural: NounPhrase, declension: str) -> None:
    assert forms(singular, plural) == declension


TODAY = Expression("today", "heute")
YESTERDAY = Expression("yesterday", "gestern")
DOG_SEES = Clause(one(THE, "dog", "small"), verb("sehen"), object=many(cardinal(3), "house", "red"))
MAN_BUYS = Clause(one(THE, "man", "old"), verb("kaufen"), object=one(A, "car", "red"))
CHILD_SLEEPS = Clause(one(THE, "child"), verb("schlafen"))
ANNA_GETS_UP = Clause(named("Anna"), verb("aufstehen"))


def relative(antecedent: NounPhrase, front: Role, clause: Clause) -> NounPhrase:
    pronoun = antecedent.relative_pronoun
    inner = replace(clause, subject=pronoun) if front is Role.SUBJECT else replace(clause, object=pronoun)
    return replace(antecedent, relative=RelativeClause(inner, front))


SENTENCES: list[tuple[Sentence, str, str]] = [
    (Statement(DOG_SEES), *SHOWCASE),
    (
        Statement(replace(MAN_BUYS, circumstance=TODAY), Role.CIRCUMSTANCE),
        "today the old man buys a red car",
        "heute kauft der alte Mann ein rotes Auto",
    ),
    (
        Statement(replace(MAN_BUYS, circumstance=YESTERDAY, tense=Tense.PAST)),
        "the old man bought a red car yesterday",
        "der alte Mann hat gestern ein rotes Auto gekauft",
    ),
    (
        Statement(replace(MAN_BUYS, modal=WANT)),
        "the old man wants to buy a red car",
        "der alte Mann will ein rotes Auto kaufen",
    ),
    (
        Statement(replace(MAN_BUYS, object=one(THIS, "car"), modal=WANT, negated=True)),
        "the old man does not want to buy this car",
        "der alte Mann will dieses Auto nicht kaufen",
    ),
    (
        Statement(replace(MAN_BUYS, object=one(THE, "car"), negated=True)),
        "the old man does not buy the car",
        "der alte Mann kauft das Auto nicht",
    ),
    (Statement(replace(MAN_BUYS, object=one(NO, "car"))), "the old man buys no car", "der alte Mann kauft kein Auto"),
    (
        Statement(replace(MAN_BUYS, subject=I, object=many(NO_DETERMINER, "apple", "fresh"))),
        "I buy fresh apples",
        "ich kaufe frische Äpfel",
    ),
    (
        Statement(replace(MAN_BUYS, modal=WILL, circumstance=Expression("tomorrow", "morgen")), Role.CIRCUMSTANCE),
        "tomorrow the old man will buy a red car",
        "morgen wird der alte Mann ein rotes Auto kaufen",
    ),
    (
        Statement(replace(ANNA_GETS_UP, circumstance=Expression("at half past seven", "um halb acht"))),
        "Anna gets up at half past seven",
        "Anna steht um halb acht auf",
    ),
    (Statement(replace(ANNA_GETS_UP, tense=Tense.PERFECT)), "Anna has gotten up", "Anna ist aufgestanden"),
    (Statement(replace(ANNA_GETS_UP, modal=CAN)), "Anna can get up", "Anna kann aufstehen"),
    (
        Statement(Clause(WE, verb("abholen"), object=HE)),
        "we pick him up",
        "wir holen ihn ab",
    ),
    (
        Statement(Clause(WE, verb("abholen"), object=one(OUR, "uncle"))),
        "we pick up our uncle",
        "wir holen unseren Onkel ab",
    ),
    (
        Statement(Clause(named("Paul"), verb("geben"), one(HIS, "sister"), one(A, "book", "new"))),
        "Paul gives his sister a new book",
        "Paul gibt seiner Schwester ein neues Buch",
    ),
    (
        Statement(Clause(SHE, verb("helfen"), object=many(THE, "child"))),
        "she helps the children",
        "sie hilft den Kindern",
    ),
    (
        Statement(Clause(one(A, "dog"), verb("fressen"), object=one(A, "apple"))),
        "a dog eats an apple",
        "ein Hund frisst einen Apfel",
    ),
    (Statement(Clause(HE, verb("essen"), object=one(A, "egg"))), "he eats an egg", "er isst ein Ei"),
    (
        Statement(replace(CHILD_SLEEPS, complement=at(IN, one(THE, "garden")))),
        "the child sleeps in the garden",
        "das Kind schläft im Garten",
    ),
    (
        Statement(Clause(THEY, verb("gehen"), complement=at(INTO, one(THE, "house")))),
        "they go into the house",
        "sie gehen ins Haus",
    ),
    (
        Statement(Clause(I, verb("gehen"), complement=at(TO, one(THE, "school")), negated=True)),
        "I do not go to the school",
        "ich gehe nicht zur Schule",
    ),
    (
        Statement(Clause(I, verb("reisen"), complement=at(TO_CITY, one(PROPER_NAME, "Vienna")), tense=Tense.PERFECT)),
        "I have traveled to Vienna",
        "ich bin nach Wien gereist",
    ),
    (
        Statement(Clause(one(THE, "baker"), verb("tanzen"), complement=at(WITH, one(ANNAS, "aunt", "old")))),
        "the baker dances with Anna's old aunt",
        "der Bäcker tanzt mit Annas alter Tante",
    ),
    (
        Statement(
            Clause(
                replace(one(THE, "bottle"), possessor=one(THE, "man", "old")),
                BE,
                complement=at(IN_FRONT_OF, one(A, "church")),
            )
        ),
        "the bottle of the old man is in front of a church",
        "die Flasche des alten Mannes ist vor einer Kirche",
    ),
    (
        Statement(Clause(many(THE, "lamp"), BE, complement=Expression("very old", "sehr alt"), negated=True)),
        "the lamps are not very old",
        "die Lampen sind nicht sehr alt",
    ),
    (
        Statement(
            Clause(I, BE, complement=Expression("tired", "müde"), tense=Tense.PAST, circumstance=YESTERDAY),
            Role.CIRCUMSTANCE,
        ),
        "yesterday I was tired",
        "gestern war ich müde",
    ),
    (
        Statement(Clause(one(THE, "dog"), BE, complement=Comparison(adjective("big"), one(MY, "cat")))),
        "the dog is bigger than my cat",
        "der Hund ist größer als meine Katze",
    ),
    (
        Statement(Clause(HE, verb("lesen"), object=one(THE, "letter"), frequency=Expression("often", "oft"))),
        "he often reads the letter",
        "er liest den Brief oft",
    ),
    (
        Statement(Clause(HE, verb("lesen"), object=one(A, "letter"), frequency=Expression("often", "oft"))),
        "he often reads a letter",
        "er liest oft einen Brief",
    ),
    (
        Statement(Clause(Conjunct(one(THE, "man"), one(HIS, "son")), verb("singen"))),
        "the man and his son sing",
        "der Mann und sein Sohn singen",
    ),
    (
        Statement(
            Clause(
                relative(one(THE, "car"), Role.OBJECT, Clause(named("Emil"), verb("kaufen"))),
                COST,
                complement=Expression("$12.50", "12,50 $"),
            )
        ),
        "the car that Emil buys costs $12.50",
        "das Auto, das Emil kauft, kostet 12,50 $",
    ),
    (
        Statement(
            Clause(
                SHE,
                verb("hören"),
                object=relative(one(THE, "boy"), Role.SUBJECT, replace(ANNA_GETS_UP, tense=Tense.PERFECT)),
            )
        ),
        "she hears the boy who has gotten up",
        "sie hört den Jungen, der aufgestanden ist",
    ),
    (
        PolarQuestion(
            Clause(SHE, verb("hören"), object=relative(many(THE, "child"), Role.OBJECT, Clause(HE, verb("helfen"))))
        ),
        "does she hear the children whom he helps?",
        "hört sie die Kinder, denen er hilft?",
    ),
    (
        Subordination(CHILD_SLEEPS, Expression("because", "weil"), ANNA_GETS_UP),
        "the child sleeps because Anna gets up",
        "das Kind schläft, weil Anna aufsteht",
    ),
    (
        Subordination(CHILD_SLEEPS, Expression("when", "wenn"), Clause(IT, RAIN), subordinate_first=True),
        "when it rains, the child sleeps",
        "wenn es regnet, schläft das Kind",
    ),
    (
        Subordination(Clause(I, verb("wissen")), THAT, replace(MAN_BUYS, tense=Tense.PERFECT)),
        "I know that the old man has bought a red car",
        "ich weiß, dass der alte Mann ein rotes Auto gekauft hat",
    ),
    (
        Coordination(Statement(CHILD_SLEEPS), AND, Statement(ANNA_GETS_UP)),
        "the child sleeps, and Anna gets up",
        "das Kind schläft und Anna steht auf",
    ),
    (
        Coordination(Statement(CHILD_SLEEPS), BUT, Statement(ANNA_GETS_UP)),
        "the child sleeps, but Anna gets up",
        "das Kind schläft, aber Anna steht auf",
    ),
    (PolarQuestion(DOG_SEES), "does the small dog see three red houses?", "sieht der kleine Hund drei rote Häuser?"),
    (
        PolarQuestion(replace(MAN_BUYS, tense=Tense.PERFECT)),
        "has the old man bought a red car?",
        "hat der alte Mann ein rotes Auto gekauft?",
    ),
    (
        ContentQuestion(replace(MAN_BUYS, subject=WHO), Role.SUBJECT),
        "who buys a red car?",
        "wer kauft ein rotes Auto?",
    ),
    (
        ContentQuestion(Clause(named("Paul"), verb("helfen"), object=WHO), Role.OBJECT),
        "whom does Paul help?",
        "wem hilft Paul?",
    ),
    (
        ContentQuestion(replace(CHILD_SLEEPS, complement=WHERE), Role.COMPLEMENT),
        "where does the child sleep?",
        "wo schläft das Kind?",
    ),
    (
        ContentQuestion(replace(ANNA_GETS_UP, circumstance=WHEN, tense=Tense.PAST), Role.CIRCUMSTANCE),
        "when did Anna get up?",
        "wann ist Anna aufgestanden?",
    ),
    (
        ContentQuestion(replace(MAN_BUYS, object=many(HOW_MANY, "house")), Role.OBJECT),
        "how many houses does the old man buy?",
        "wie viele Häuser kauft der alte Mann?",
    ),
    (
        ContentQuestion(replace(MAN_BUYS, object=one(WHICH, "coat")), Role.OBJECT),
        "which coat does the old man buy?",
        "welchen Mantel kauft der alte Mann?",
    ),
    (
        Statement(
            Clause(one(THE, "city"), HAVE, object=NounPhrase(cardinal(312_405), INHABITANT, Number.PLURAL)),
        ),
        "the city has three hundred and twelve thousand four hundred and five inhabitants",
        "die Stadt hat dreihundertzwölftausendvierhundertfünf Einwohner",
    ),
]


@pytest.mark.parametrize(("meaning", "english", "german"), SENTENCES, ids=[english for _, english, _ in SENTENCES])
def test_sentence(meaning: Sentence, english: str, german: str) -> None:
    assert (english_sentence(meaning), german_sentence(meaning)) == (english, german)


@pytest.mark.parametrize("number", [1, 101, 5_201])
def test_a_cardinal_determiner_never_needs_an_inflected_ein(number: int) -> None:
    with pytest.raises(ValueError, match="inflected form of ein"):
        cardinal(number)


def test_a_fresh_noun_is_another_one_if_there_is_one() -> None:
    random, tree, river = Random(1), one(THE, "tree"), one(THE, "river")
    assert {fresh_noun(random, (SemanticClass.WATERS,), [river]) for _ in range(50)} == {noun("lake")}
    assert fresh_noun(random, (SemanticClass.PLANT,), [tree]) is noun("tree")


def test_every_noun_has_the_forms_of_its_number() -> None:
    for each in NOUNS:
        assert bool(each.english_plural) == bool(each.german_plural)
        assert each.english != each.english_plural
        assert each.german_genitive.endswith("s") or each.gender is not Gender.NEUTER


def test_english_words_have_one_german_noun_or_adjective() -> None:
    for words in (NOUNS, (*QUALITIES, *COLOURS)):
        assert len({word.english for word in words}) == len({word.german for word in words}) == len(words)


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    random = Random(7)
    return [sentence_pair(random) for _ in range(20_000)]


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in PATTERNS.alternatives])
def test_every_pattern_draws_sentences(pattern) -> None:
    random = Random(3)
    for _ in range(100):
        meaning = pattern(random)
        english, german = english_sentence(meaning), german_sentence(meaning)
        assert english.endswith("?") == german.endswith("?")


def test_an_english_sentence_has_one_translation(pairs: list[tuple[str, str]]) -> None:
    translations: dict[str, set[str]] = defaultdict(set)
    for english, german in pairs:
        translations[english].add(german)
    assert [english for english, germans in translations.items() if len(germans) > 1] == []


def test_sentences_are_well_formed_text(pairs: list[tuple[str, str]]) -> None:
    for pair in pairs:
        for text in pair:
            assert text == unicodedata.normalize("NFC", text)
            assert text == " ".join(text.split())
            assert not any(flaw in text for flaw in (",,", " ,", " ?", ",?"))
            assert not text.endswith((".", ","))


def test_sentences_are_of_moderate_length(pairs: list[tuple[str, str]]) -> None:
    lengths = [len(english.split()) for english, _ in pairs]
    assert max(lengths) <= MAX_WORDS
    assert min(lengths) >= 2
    assert 8 <= sum(lengths) / len(lengths) <= 12


def test_nobody_is_called_by_name_beside_their_own_genitive(pairs: list[tuple[str, str]]) -> None:
    for english, _ in pairs:
        words = set(english.split())
        assert not any({name, f"{name}'s"} <= words for name in NAMES)


def test_showcase_is_in_the_language(pairs: list[tuple[str, str]]) -> None:
    english_words = {word for english, _ in pairs for word in english.split()}
    german_words = {word for _, german in pairs for word in german.split()}
    assert english_words.issuperset(SHOWCASE[0].split())
    assert german_words.issuperset(SHOWCASE[1].split())


def test_corpus_is_a_function_of_its_arguments() -> None:
    corpus = demo_corpus(5, n_train=300, n_validation=20, n_test=30)
    assert corpus == demo_corpus(5, n_train=300, n_validation=20, n_test=30)
    assert corpus != demo_corpus(6, n_train=300, n_validation=20, n_test=30)
    larger = demo_corpus(5, n_train=400, n_validation=20, n_test=30)
    assert (larger.validation, larger.test, larger.train[:300]) == (corpus.validation, corpus.test, corpus.train)


def test_corpus_repeats_no_sentence_and_holds_out_the_showcase() -> None:
    corpus = demo_corpus(n_train=4_000)
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (4_000, 500, 1_000)
    pairs = [*corpus.train, *corpus.validation, *corpus.test, SHOWCASE]
    assert len({english for english, _ in pairs}) == len({german for _, german in pairs}) == len(pairs)
