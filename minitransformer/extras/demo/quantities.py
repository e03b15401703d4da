"""Random times and reasons, and clauses with quantities: numbers, prices, measures, ages, sums, dates."""

from datetime import date
from random import Random

from minitransformer.extras.demo import numbers, phrases, words
from minitransformer.extras.demo.meaning import Clause, NounPhrase
from minitransformer.extras.demo.numbers import fill, in_digits, in_words
from minitransformer.extras.demo.phrases import bare, cardinal, noun_phrase, participant, phrase_about
from minitransformer.extras.demo.words import BE, NOUNS, Text, texts, verb


def time(random: Random, table: str) -> Text:
    """Draw a time or a reason; ``table`` is an entry of "times" in `words.toml`."""
    day = _date(random, 2031, 2079) if table == "future" else _date(random, 1950, 2019)
    parts = {
        "weekday": random.choice(texts("weekdays")),
        "month": random.choice(texts("months")),
        "time": time_of_day(random),
        "day": numbers.day_of_month(day, "en"),
        "date": numbers.calendar_date(day),
        "year": Text(str(day.year), str(day.year)),
        "number": in_words(random.randint(2, 12)),
        "span": random.choice(texts("spans")),
    }
    rows = words.DATA["times"][table]
    _, english, german = random.choices(rows, [row[0] for row in rows])[0]
    return fill(english, german, **parts)


def time_of_day(random: Random) -> Text:
    """Draw a time of day, in words or in digits."""
    if random.random() < 0.3:
        return numbers.digital_time(random.randint(1, 23), random.randint(1, 59))
    minutes = random.choice(((0,), (30,), (5, 10, 15, 20), (40, 45, 50, 55)))
    return numbers.spoken_time(random.randint(1, 12), random.choice(minutes))


def day(random: Random) -> Clause:
    """Draw a clause that says the weekday or the date of today, tomorrow or yesterday."""
    kind, drawn = random.random(), _date(random, 1980, 2049)
    in_month = numbers.calendar_date(drawn) if kind < 0.6 else numbers.day_of_month(drawn, "e")
    answer = random.choice(texts("weekdays")) if kind < 0.3 else fill("{}", "der {}", in_month)
    adverb = random.choice((Text("today", "heute"), Text("tomorrow", "morgen"), Text("yesterday", "gestern")))
    return Clause(adverb, BE, complement=answer, tense="past" if adverb.english == "yesterday" else "present")


def counted(random: Random) -> Clause:
    """Draw a clause with a count: the inhabitants of a place, or the things that somebody has, buys, sees or counts."""
    noun = random.choice(words.nouns_of("animal reading clothing device object furniture vehicle"))
    people, act = participant(random, "person", "subject"), random.choice(("kaufen", "verkaufen", "sehen", "zählen"))
    city, village = phrase_about(random, random.choice(words.nouns_of("city")), "known"), NOUNS["village"]
    doer, act, noun, smallest, largest = random.choice(
        (
            (people, "haben", noun, 13, 9_999),
            (people, act, noun, 13, 9_999),
            (city, "haben", NOUNS["inhabitant"], 10_000, 999_999),
            (phrase_about(random, village, "known"), "haben", NOUNS["inhabitant"], 13, 9_999),
        )
    )
    number = _countable(random, smallest, largest)
    amount = cardinal(number, None if random.random() < 0.6 else in_digits(number))
    return Clause(doer, verb(act), object=NounPhrase(amount, noun, True, phrases.adjectives(random, noun)))


def number_written(random: Random) -> Clause:
    """Draw a clause that says which number somebody writes."""
    number = numbers.MILLION if random.random() < 0.02 else _number(random, 0, 999_999)
    written = fill("the number {}", "die Zahl {}", _in_words_or_digits(random, number))
    return Clause(participant(random, "person", "subject"), verb("schreiben"), object=written)


def arithmetic(random: Random) -> Clause:
    """Draw a sum, a difference or a product."""
    sign = random.choice((Text("plus", "plus"), Text("minus", "minus"), Text("times", "mal")))
    largest = 25 if sign.english == "times" else 5_000
    first, second = _number(random, 1, largest), _number(random, 1, largest)
    result = first * second if sign.english == "times" else first + second
    if sign.english == "minus":
        first, result = result, first
    term = fill("{} {} {}", "{} {} {}", in_words(first), sign, in_words(second))
    return Clause(term, BE, complement=in_words(result))


def price(random: Random) -> Clause:
    """Draw a clause that says what something costs, in euros in words, or in euros or dollars in digits."""
    prices = (("food drink reading", 20), ("clothing object", 300), ("device furniture", 900), ("vehicle", 20_000))
    kinds, highest = random.choice(prices)
    kind, symbol, whole = random.random(), random.choice("$€"), _countable(random, max(2, highest // 20), highest)
    if kind < 0.2:
        cost = fill("{} euros", "{} Euro", in_words(whole))
    elif kind < 0.4:
        cents = random.choice((10, 20, 25, 30, 40, 50, 60, 75, 80, 90, 95))
        cost = fill("{} euros {}", "{} Euro {}", in_words(whole), in_words(cents))
    else:
        cents = random.choice((25, 49, 50, 95, 99))
        amount = in_digits(whole) if kind < 0.58 else in_digits(whole + cents / 100, 2)
        cost = fill(f"{symbol}{{}}", f"{{}} {symbol}", amount)
    return Clause(noun_phrase(random, kinds, "known"), verb("kosten"), complement=cost)


def measured(random: Random) -> Clause:
    """Draw a clause that says how heavy, how long or how old something is, or how old somebody is."""
    years, meters = ("sein", "{} years old", "{} Jahre alt"), ("sein", "{} meters long", "{} Meter lang")
    rows = (
        (random.choice((random.choice(phrases.PERSONAL), phrases.name(random))), 12, 99, *years),
        (bare(noun_phrase(random, "building", "known")), 12, 900, *years),
        (noun_phrase(random, "device furniture", "known"), 2, 40, "wiegen", "{} kilograms", "{} Kilogramm"),
        (phrase_about(random, NOUNS["river"], "known"), 20, 900_000, *meters),
        (phrase_about(random, NOUNS["table"], "known"), 2, 5, *meters),
    )
    thing, smallest, largest, act, english, german = random.choice(rows)
    measure = _in_words_or_digits(random, _countable(random, smallest, largest))
    if largest <= 40 and random.random() < 0.5:
        tenths, hundredths = random.randint(1, 9), random.choice((0, 0, random.randint(1, 9)))
        whole = random.randint(smallest, largest)
        measure = in_digits(whole + tenths / 10 + hundredths / 100, 2 if hundredths else 1)
    return Clause(thing, verb(act), complement=fill(english, german, measure))


def _date(random: Random, first_year: int, last_year: int) -> date:
    first, last = date(first_year, 1, 1).toordinal(), date(last_year, 12, 31).toordinal()
    return date.fromordinal(random.randint(first, last))


def _number(random: Random, smallest: int, largest: int) -> int:
    """Draw a number, often a round one; numbers of one digit, two digits and so on are about equally frequent."""
    digits = random.randint(len(str(smallest)), len(str(largest)))
    number = random.randint(max(smallest, 10 ** (digits - 1)), min(largest, 10**digits - 1))
    if random.random() < 0.3:
        number -= number % 10 ** (digits // 2)
    return max(smallest, number)


def _countable(random: Random, smallest: int, largest: int) -> int:
    """Draw a number other than 1 that does not end in 01, because German would inflect its "ein" before a noun."""
    number = _number(random, smallest, largest)
    return number + (number % 100 == 1)


def _in_words_or_digits(random: Random, number: int) -> Text:
    return in_words(number) if random.random() < 0.5 else in_digits(number)
