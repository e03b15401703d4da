"""The demo corpus: its words and their inflection, every construction of a sentence, the ways in which people write."""

import re
from dataclasses import replace
from datetime import date
from random import Random
from typing import Any

import pytest

from minitransformer.extras.demo import SHOWCASE, numbers
from minitransformer.extras.demo.clauses import than
from minitransformer.extras.demo.english import english_sentence
from minitransformer.extras.demo.german import CASES, german_phrase, german_sentence
from minitransformer.extras.demo.invented import genitive, name, noun, word
from minitransformer.extras.demo.meaning import (
    Clause,
    Compound,
    Governed,
    NounPhrase,
    Pair,
    Phrase,
    Role,
    Sentence,
    Speech,
    Subject,
)
from minitransformer.extras.demo.phrases import any_noun, cardinal, fresh_noun, relative_pronoun
from minitransformer.extras.demo.words import (
    COLOURS,
    DATA,
    DETERMINERS,
    MODALS,
    MOODS,
    NAMES,
    NOUNS,
    PRONOUNS,
    QUALITIES,
    VERBS,
    Determiner,
    Text,
    classes,
    places,
    verb,
)
from minitransformer.extras.demo.writing import FORMS, Form, line, shortened, write_sentences

ANNAS = Determiner("Anna's", "Anna's", "Annas")
ADJECTIVES = {each.english: each for each in (*COLOURS, *MOODS, *QUALITIES)}


def one(determiner: str | Determiner, head: str, *adjectives: str) -> NounPhrase:
    article = DETERMINERS[determiner] if isinstance(determiner, str) else determiner
    return NounPhrase(article, NOUNS[head], adjectives=tuple(map(ADJECTIVES.__getitem__, adjectives)))


def many(determiner: str | Determiner, head: str, *adjectives: str) -> NounPhrase:
    return replace(one(determiner, head, *adjectives), plural=True)


def named(person: str) -> Text:
    return Text(person, person)


def clause(subject: Subject | str, infinitive: str, **others: Any) -> Clause:
    """A clause whose subject may be the word of a pronoun, or a name."""
    if isinstance(subject, str):
        subject = PRONOUNS.get(subject) or named(subject)
    return Clause(subject, verb(infinitive), **others)


def ask(asked: Clause, front: Role | None = None) -> Clause:
    return replace(asked, front=front, question=True)


DOG_SEES = clause(one("the", "dog", "small"), "sehen", object=many(cardinal(3), "house", "red"))
MAN_BUYS = clause(one("the", "man", "old"), "kaufen", object=one("a", "car", "red"))
CHILD_SLEEPS = clause(one("the", "child"), "schlafen")
ANNA_GETS_UP = clause("Anna", "aufstehen")
YESTERDAY = Text("yesterday", "gestern")


def at(preposition: str, phrase: Phrase) -> Governed:
    text, case, _ = places(f"{preposition}: person")[0]
    return Governed(text, case, phrase)


def relative(antecedent: NounPhrase, front: Role, inner: Clause) -> NounPhrase:
    pronoun = relative_pronoun(antecedent)
    return replace(antecedent, relative=replace(inner, front=front, **{front: pronoun}))


SENTENCES: list[tuple[Sentence, str, str]] = [
    (DOG_SEES, *SHOWCASE[0]),
    (clause("Obama", "sehen", object=one("the", "house", "red")), *SHOWCASE[3]),
    (clause(one("the", "train"), "abfahren", circumstance=Text("at half past seven", "um halb acht")), *SHOWCASE[4]),
    (replace(MAN_BUYS, circumstance=YESTERDAY, tense="past"), "the old man bought a red car yesterday",
        "der alte Mann hat gestern ein rotes Auto gekauft"),
    (replace(MAN_BUYS, object=one("this", "car"), modal=MODALS["want"], negated=True),
        "the old man does not want to buy this car", "der alte Mann will dieses Auto nicht kaufen"),
    (replace(MAN_BUYS, object=one("the", "car"), modal=MODALS["can"], negated=True), "the old man cannot buy the car",
        "der alte Mann kann das Auto nicht kaufen"),
    (replace(MAN_BUYS, object=one("the", "car"), negated=True), "the old man does not buy the car",
        "der alte Mann kauft das Auto nicht"),
    (replace(ANNA_GETS_UP, modal=MODALS["can"]), "Anna can get up", "Anna kann aufstehen"),
    (clause("we", "abholen", object=PRONOUNS["he"]), "we pick him up", "wir holen ihn ab"),
    (clause("we", "abholen", object=one("our", "uncle")), "we pick up our uncle", "wir holen unseren Onkel ab"),
    (clause("Paul", "geben", recipient=one("his", "sister"), object=one("a", "book", "new")),
        "Paul gives his sister a new book", "Paul gibt seiner Schwester ein neues Buch"),
    (clause(one("a", "dog"), "fressen", object=one("a", "apple")), "a dog eats an apple",
        "ein Hund frisst einen Apfel"),
    (replace(CHILD_SLEEPS, complement=at("in", one("the", "garden"))), "the child sleeps in the garden",
        "das Kind schläft im Garten"),
    (clause("they", "gehen", complement=at("into", one("the", "house"))), "they go into the house",
        "sie gehen ins Haus"),
    (clause("I", "gehen", complement=at("to", one("the", "school")), negated=True), "I do not go to the school",
        "ich gehe nicht zur Schule"),
    (clause("I", "reisen", complement=at("to/city", one("", "Vienna")), tense="perfect"), "I have traveled to Vienna",
        "ich bin nach Wien gereist"),
    (clause(one("the", "baker"), "tanzen", complement=at("with", one(ANNAS, "aunt", "old"))),
        "the baker dances with Anna's old aunt", "der Bäcker tanzt mit Annas alter Tante"),
    (clause(replace(one("the", "bottle"), possessor=one("the", "man", "old")), "sein",
        complement=at("in front of", one("a", "church"))), "the bottle of the old man is in front of a church",
        "die Flasche des alten Mannes ist vor einer Kirche"),
    (clause(many("the", "lamp"), "sein", complement=Text("very old", "sehr alt"), negated=True),
        "the lamps are not very old", "die Lampen sind nicht sehr alt"),
    (replace(clause("I", "sein", complement=Text("tired", "müde"), tense="past", circumstance=YESTERDAY),
        front="circumstance"), "yesterday I was tired", "gestern war ich müde"),
    (clause(one("the", "dog"), "sein", complement=than(ADJECTIVES["big"], one("my", "cat"))),
        "the dog is bigger than my cat", "der Hund ist größer als meine Katze"),
    (clause("he", "lesen", object=one("the", "letter"), frequency=Text("often", "oft")), "he often reads the letter",
        "er liest den Brief oft"),
    (clause("he", "lesen", object=one("a", "letter"), frequency=Text("often", "oft")), "he often reads a letter",
        "er liest oft einen Brief"),
    (clause("she", "helfen", object=PRONOUNS["you"], modal=MODALS["will"]), "she will help you", "sie wird dir helfen"),
    (clause(Pair(one("the", "man"), one("his", "son")), "singen"), "the man and his son sing",
        "der Mann und sein Sohn singen"),
    (clause(relative(one("the", "car"), "object", clause("Emil", "kaufen")), "kosten",
        complement=Text("$12.50", "12,50 $")), "the car that Emil buys costs $12.50",
        "das Auto, das Emil kauft, kostet 12,50 $"),
    (clause("she", "hören", object=relative(one("the", "boy"), "subject", replace(ANNA_GETS_UP, tense="perfect"))),
        "she hears the boy who has gotten up", "sie hört den Jungen, der aufgestanden ist"),
    (ask(clause("she", "hören", object=relative(many("the", "child"), "object", clause("he", "helfen")))),
        "does she hear the children whom he helps?", "hört sie die Kinder, denen er hilft?"),
    (Compound(CHILD_SLEEPS, Text("because", "weil"), ANNA_GETS_UP), "the child sleeps because Anna gets up",
        "das Kind schläft, weil Anna aufsteht"),
    (Compound(CHILD_SLEEPS, Text("when", "wenn"), clause("it", "regnen"), second_first=True),
        "when it rains, the child sleeps", "wenn es regnet, schläft das Kind"),
    (Compound(CHILD_SLEEPS, Text("and", "und"), ANNA_GETS_UP), "the child sleeps, and Anna gets up",
        "das Kind schläft und Anna steht auf"),
    (Compound(CHILD_SLEEPS, Text("but", "aber"), ANNA_GETS_UP), "the child sleeps, but Anna gets up",
        "das Kind schläft, aber Anna steht auf"),
    (ask(replace(MAN_BUYS, tense="perfect")), "has the old man bought a red car?",
        "hat der alte Mann ein rotes Auto gekauft?"),
    (Compound(clause("I", "wissen", negated=True), Text("whether", "ob"), clause(one("the", "girl"), "kaufen",
        object=one("the", "coat", "green"), tense="perfect")), *SHOWCASE[2]),
    (ask(clause(one("the", "girl"), "sein", complement=Text("where", "wo")), "complement"), "where is the girl?",
        "wo ist das Mädchen?"),
    (ask(clause(one("your", "sister"), "wohnen", complement=Text("where", "wo")), "complement"), *SHOWCASE[1]),
    (ask(clause("you", "helfen", object=PRONOUNS["I"], modal=MODALS["can"])), *SHOWCASE[5]),
    (ask(replace(MAN_BUYS, subject=PRONOUNS["who"]), "subject"), "who buys a red car?", "wer kauft ein rotes Auto?"),
    (ask(clause("Paul", "helfen", object=PRONOUNS["who"]), "object"), "whom does Paul help?", "wem hilft Paul?"),
    (ask(replace(ANNA_GETS_UP, circumstance=Text("when", "wann"), tense="past"), "circumstance"),
        "when did Anna get up?", "wann ist Anna aufgestanden?"),
    (ask(replace(MAN_BUYS, object=many("how many", "house")), "object"), "how many houses does the old man buy?",
        "wie viele Häuser kauft der alte Mann?"),
    (clause(Pair(named("Anna"), named("Paul"), Text("&", "&")), "singen"), "Anna & Paul sing", "Anna & Paul singen"),
    (Speech(clause("Anna", "fragen"), ask(DOG_SEES)), 'Anna asks: "does the small dog see three red houses?"',
        "Anna fragt: „sieht der kleine Hund drei rote Häuser?“"),
    (Speech(clause("he", "sagen"), CHILD_SLEEPS, speech_first=True), '"the child sleeps," he says',
        "„das Kind schläft“, sagt er"),
    (Speech(clause("Anna", "sagen"), CHILD_SLEEPS, speech_first=True, inverted=True), '"the child sleeps," says Anna',
        "„das Kind schläft“, sagt Anna"),
    (Text("good morning, Obama", "guten Morgen, Obama"), "good morning, Obama", "guten Morgen, Obama"),
]  # fmt: skip


@pytest.mark.parametrize(("meaning", "english", "german"), SENTENCES, ids=lambda value: str(value)[:60])
def test_sentence(meaning: Sentence, english: str, german: str) -> None:
    assert (english_sentence(meaning), german_sentence(meaning)) == (english, german)


@pytest.mark.parametrize(("infinitive", "german"), [
    ("sein", "du bist"), ("haben", "du hast"), ("sehen", "du siehst"), ("arbeiten", "du arbeitest"),
    ("waschen", "du wäschst"), ("lesen", "du liest"), ("tanzen", "du tanzt"), ("essen", "du isst"),
    ("wissen", "du weißt"), ("mögen", "du magst"), ("einladen", "du lädst ein"),
])  # fmt: skip
def test_a_verb_after_du(infinitive: str, german: str) -> None:
    assert german_sentence(clause("you", infinitive)) == german


ALL_VERBS = [verb for table in VERBS.values() for verb in table]


def test_tables_name_what_is_there_and_every_verb_has_all_forms() -> None:
    kinds = {noun.kind for noun in NOUNS.values()}
    named = [adjective.suits for adjective in (*COLOURS, *MOODS, *QUALITIES)]
    named += [names for verb in ALL_VERBS for names in (verb.subjects, verb.objects, verb.gifts)]
    named += [names for place in DATA["places"] for _, _, names in places(place)]
    assert {kind for names in named for kind in classes(names)} <= kinds
    assert {place for verb in ALL_VERBS for place in (verb.goal, verb.places) if place} <= set(DATA["places"])
    drawn = {word for tables in DATA["uses"].values() for table in tables for word in table}
    assert drawn <= {*DETERMINERS, "own", "mine", "number"}
    assert all(english.count("{name}") == german.count("{name}") == 1 for english, german in DATA["greetings"].items())
    for each in ALL_VERBS:
        assert (len(each.en.split(", ")), len(each.de.split(", "))) == (4, 3)
        assert each.de.split(", ")[2].startswith(each.prefix)


def test_invented_words_have_every_letter_and_beginnings_and_ends_of_known_words_but_are_none() -> None:
    random = Random(1)
    drawn = [word(random) for _ in range(20_000)]
    assert len(set(drawn[:3_000])) > 2_500
    assert all(each.isalpha() and each.islower() and 3 <= len(each) <= 11 for each in drawn)
    assert {letter for each in drawn for letter in each} == set("abcdefghijklmnopqrstuvwxyzäöü")
    long = [noun.english for noun in NOUNS.values() if len(noun.english) >= 5]
    for part in (slice(4), slice(-4, None)):
        parts = {each[part] for each in drawn}
        assert sum(each[part] in parts for each in long) > 0.8 * len(long)
    known = {text.lower() for each in NOUNS.values() for text in (each.english, each.english_plural, each.german)}
    known |= {each.lower() for names in NAMES.values() for each in names}
    assert not set(drawn) & known


def test_a_name_is_the_same_in_both_languages_and_begins_with_a_capital() -> None:
    random = Random(3)
    names = [name(random) for _ in range(200)]
    assert all(each.english == each.german == each.english.title() for each in names)
    assert {len(each.english.split()) for each in names} == {1, 2}


def test_the_genitive_of_a_name() -> None:
    for german in ("Obamas", "Hans'", "Max'", "Strauß'", "Liz'"):
        english = german[:-1]
        assert genitive(english) == Determiner(f"{english}'s", f"{english}'s", german)


def test_a_noun_is_a_neuter_loanword() -> None:
    random = Random(4)
    for _ in range(500):
        drawn = noun(random, "animal")
        assert drawn.german == drawn.english.capitalize()
        assert (drawn.article, drawn.kind, drawn.german_plural) == ("das", "animal", drawn.german + "s")
        assert drawn.english_plural == drawn.english + "s"
        assert drawn.english[-1] not in "sxzhy"
    city = noun(random, "city")
    assert (city.english, city.english_plural) == (city.german, city.german_plural + "")


@pytest.mark.parametrize(("kind", "least", "most"), [("person", 0, 0), ("animal", 0.03, 0.1), ("city", 0.3, 0.5)])
def test_some_nouns_that_are_drawn_are_invented(kind: str, least: float, most: float) -> None:
    random = Random(5)
    drawn = [any_noun(random, kind, ()) for _ in range(2_000)]
    assert least <= sum(each.english not in NOUNS for each in drawn) / len(drawn) <= most


STATEMENT, QUESTION = "the dog sleeps", "does it rain?"


@pytest.mark.parametrize(("capital", "mark", "statement", "question", "both"), [
    (True, ".", "The dog sleeps.", "Does it rain?", "Does it rain? The dog sleeps."),
    (True, "!", "The dog sleeps!", "Does it rain?", "Does it rain? The dog sleeps!"),
    (True, "", "The dog sleeps", "Does it rain", "Does it rain? The dog sleeps"),
    (False, ".", "the dog sleeps.", "does it rain?", "does it rain? the dog sleeps."),
    (False, "", "the dog sleeps", "does it rain", "does it rain? the dog sleeps"),
])  # fmt: skip
def test_forms(capital: bool, mark: str, statement: str, question: str, both: str) -> None:
    form = Form(capital, mark)
    assert form in FORMS
    assert write_sentences([STATEMENT], form) == statement
    assert write_sentences([QUESTION], form) == question
    assert write_sentences([QUESTION, STATEMENT], form) == both
    assert write_sentences(["über"], form)[0] == ("Ü" if capital else "ü")
    assert write_sentences([STATEMENT, STATEMENT], form) == f"{statement.rstrip('.!')}{mark or '.'} {statement}"


@pytest.mark.parametrize(("long", "short"), [
    ("the dog does not sleep", "the dog doesn't sleep"), ("we have not seen it", "we haven't seen it"),
    ("the king will not sing", "the king won't sing"), ("Anna cannot swim", "Anna can't swim"),
    ("I am tired", "I'm tired"), ("she is not sad", "she isn't sad"), ("it is five o'clock", "it's five o'clock"),
    ("you are old", "you're old"), ("they will come", "they'll come"), ("who is tired?", "who is tired?"),
    ("the man whom she is with", "the man whom she is with"),
])  # fmt: skip
def test_short_forms(long: str, short: str) -> None:
    assert shortened(long) == short


def test_a_line_has_one_form_in_both_languages_and_short_forms_in_some() -> None:
    random, pairs = Random(1), [("I am old", "ich bin alt"), ("does it rain?", "regnet es?")]
    lines = {line(random, pairs) for _ in range(900)}
    assert len(lines) == 2 * (len(FORMS) + 1)  # English quotation marks are of two kinds
    assert ("I'm old. Does it rain?", "Ich bin alt. Regnet es?") in lines
    assert ("I am old. does it rain", "ich bin alt. regnet es") in lines
    assert ('"I am old. Does it rain?"', "„Ich bin alt. Regnet es?“") in lines
    assert ("“I am old. Does it rain?”", "„Ich bin alt. Regnet es?“") in lines


def test_direct_speech_ends_inside_its_quotation_marks() -> None:
    said, asked = (
        ('Anna says: "I am old"', "Anna sagt: „ich bin alt“"),
        ('Anna asks: "is it?"', "Anna fragt: „ist es?“"),
    )
    form = Form(capital=True, mark=".")
    assert [write_sentences([text], form) for text in said] == ['Anna says: "I am old."', "Anna sagt: „Ich bin alt.“"]
    assert [write_sentences([text], form) for text in asked] == ['Anna asks: "Is it?"', "Anna fragt: „Ist es?“"]
    assert write_sentences([asked[0]], Form(capital=False, mark="")) == 'Anna asks: "is it"'
    assert write_sentences(['"I am old," says Anna'], form) == '"I am old," says Anna.'
    assert write_sentences(['she sees "Anna"'], form) == 'She sees "Anna".'
    begun = {re.split(r"\bI\b", line(Random(seed), [said])[0])[0] for seed in range(99)}
    assert begun >= {'Anna says: "', 'Anna says, "', "Anna says: “", "Anna says, “"}


@pytest.mark.parametrize(("singular", "plural", "declension"), [
    (one("the", "dog", "small"), many("the", "dog", "small"),
        "der kleine Hund, die kleinen Hunde\n" "den kleinen Hund, die kleinen Hunde\n"
        "dem kleinen Hund, den kleinen Hunden\n" "des kleinen Hundes, der kleinen Hunde"),
    (one("the", "woman", "young"), many("this", "woman", "young"),
        "die junge Frau, diese jungen Frauen\n" "die junge Frau, diese jungen Frauen\n"
        "der jungen Frau, diesen jungen Frauen\n" "der jungen Frau, dieser jungen Frauen"),
    (one("the", "house", "expensive"), many("all", "house", "dark"),
        "das teure Haus, alle dunklen Häuser\n" "das teure Haus, alle dunklen Häuser\n"
        "dem teuren Haus, allen dunklen Häusern\n" "des teuren Hauses, aller dunklen Häuser"),
    (one("a", "man", "old"), many("no", "man", "old"),
        "ein alter Mann, keine alten Männer\n" "einen alten Mann, keine alten Männer\n"
        "einem alten Mann, keinen alten Männern\n" "eines alten Mannes, keiner alten Männer"),
    (one("a", "cow", "black"), many("our", "cow", "black"),
        "eine schwarze Kuh, unsere schwarzen Kühe\n" "eine schwarze Kuh, unsere schwarzen Kühe\n"
        "einer schwarzen Kuh, unseren schwarzen Kühen\n" "einer schwarzen Kuh, unserer schwarzen Kühe"),
    (one("", "wine", "cold"), many("", "apple", "fresh"),
        "kalter Wein, frische Äpfel\n" "kalten Wein, frische Äpfel\n" "kaltem Wein, frischen Äpfeln\n"
        "kalten Weins, frischer Äpfel"),
    (one("", "milk", "warm"), many(cardinal(3), "garden", "big"),
        "warme Milch, drei große Gärten\n" "warme Milch, drei große Gärten\n" "warmer Milch, drei großen Gärten\n"
        "warmer Milch, drei großer Gärten"),
    (one(ANNAS, "horse", "white"), many(ANNAS, "horse", "white"),
        "Annas weißes Pferd, Annas weiße Pferde\n" "Annas weißes Pferd, Annas weiße Pferde\n"
        "Annas weißem Pferd, Annas weißen Pferden\n" "Annas weißen Pferdes, Annas weißer Pferde"),
    (one("which", "boy"), many("how many", "boy"),
        "welcher Junge, wie viele Jungen\n" "welchen Jungen, wie viele Jungen\n" "welchem Jungen, wie vielen Jungen\n"
        "welches Jungen, wie vieler Jungen"),
])  # fmt: skip
def test_declension(singular: NounPhrase, plural: NounPhrase, declension: str) -> None:
    rows = [", ".join(german_phrase(phrase, case) for phrase in (singular, plural)) for case in CASES]
    assert "\n".join(rows) == declension


def test_a_fresh_noun_is_another_one_if_there_is_one() -> None:
    random, tree, river = Random(1), one("the", "tree"), one("the", "river")
    assert {fresh_noun(random, "waters", [river]).english for _ in range(50)} == {"lake"}
    assert fresh_noun(random, "plant", [tree]).english == "tree"


def test_every_noun_has_the_forms_of_its_number() -> None:
    for each in NOUNS.values():
        assert bool(each.english_plural) == bool(each.german_plural)
        assert each.english != each.english_plural
        assert each.genitive.endswith("s") or each.article != "das"


def test_english_words_have_one_german_noun_or_adjective() -> None:
    for rows in (DATA["nouns"], [*DATA["moods"], *DATA["qualities"], *DATA["colours"]]):
        assert len({row[0] for row in rows}) == len({row[2] for row in rows}) == len(rows)


@pytest.mark.parametrize(("number", "english", "german"), [
    (0, "zero", "null"), (1, "one", "eins"), (16, "sixteen", "sechzehn"), (17, "seventeen", "siebzehn"),
    (21, "twenty-one", "einundzwanzig"), (30, "thirty", "dreißig"), (70, "seventy", "siebzig"),
    (111, "one hundred and eleven", "einhundertelf"),
    (999, "nine hundred and ninety-nine", "neunhundertneunundneunzig"),
    (1_001, "one thousand and one", "eintausendeins"),
    (12_312, "twelve thousand three hundred and twelve", "zwölftausenddreihundertzwölf"),
    (101_000, "one hundred and one thousand", "einhunderteintausend"),
    (312_405, "three hundred and twelve thousand four hundred and five", "dreihundertzwölftausendvierhundertfünf"),
    (999_999, "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig"),
    (1_000_000, "one million", "eine Million"),
])  # fmt: skip
def test_number_words(number: int, english: str, german: str) -> None:
    assert numbers.in_words(number) == Text(english, german)


def test_number_words_are_all_different() -> None:
    words = [numbers.in_words(number) for number in (*range(2_000), *range(2_000, 1_000_000, 997))]
    assert len({text.english for text in words}) == len({text.german for text in words}) == len(words)


def test_numerals_have_the_separators_of_their_language() -> None:
    assert numbers.in_digits(1250) == Text("1,250", "1.250")
    assert numbers.in_digits(3.5, 1) == Text("3.5", "3,5")
    assert numbers.in_digits(1_234_567.25, 2) == Text("1,234,567.25", "1.234.567,25")


@pytest.mark.parametrize(("text", "english", "german"), [
    (numbers.spoken_time(7, 30), "half past seven", "halb acht"),
    (numbers.spoken_time(12, 30), "half past twelve", "halb eins"),
    (numbers.spoken_time(8, 15), "a quarter past eight", "Viertel nach acht"),
    (numbers.spoken_time(8, 45), "a quarter to nine", "Viertel vor neun"),
    (numbers.spoken_time(1, 10), "ten past one", "zehn nach eins"),
    (numbers.spoken_time(1, 0), "one o'clock", "ein Uhr"), (numbers.spoken_time(5, 0), "five o'clock", "fünf Uhr"),
    (numbers.digital_time(14, 35), "14:35", "14:35 Uhr"), (numbers.digital_time(9, 5), "9:05", "9:05 Uhr"),
    (numbers.calendar_date(date(1987, 5, 3)), "May 3, 1987", "3. Mai 1987"),
    (numbers.day_of_month(date(2025, 1, 1), "e"), "the first of January", "erste Januar"),
    (numbers.day_of_month(date(2025, 5, 3), "en"), "the third of May", "dritten Mai"),
    (numbers.day_of_month(date(2025, 3, 7), "en"), "the seventh of March", "siebten März"),
    (numbers.day_of_month(date(2025, 3, 8), "en"), "the eighth of March", "achten März"),
    (numbers.day_of_month(date(2025, 3, 12), "en"), "the twelfth of March", "zwölften März"),
    (numbers.day_of_month(date(2025, 10, 20), "en"), "the twentieth of October", "zwanzigsten Oktober"),
    (numbers.day_of_month(date(2025, 12, 31), "e"), "the thirty-first of December", "einunddreißigste Dezember"),
])  # fmt: skip
def test_dates_and_times(text: Text, english: str, german: str) -> None:
    assert text == Text(english, german)


def test_number_words_end_at_a_million_and_a_cardinal_determiner_never_needs_an_inflected_ein() -> None:
    for number in (-1, 1_000_001):
        with pytest.raises(ValueError, match="number words reach"):
            numbers.in_words(number)
    for number in (1, 5_201):
        with pytest.raises(ValueError, match="inflected form of ein"):
            cardinal(number)
