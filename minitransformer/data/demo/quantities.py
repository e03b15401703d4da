"""Random statements with quantities: numbers in words and in digits, prices, measures, ages, sums, times and dates."""

from random import Random

from minitransformer.data.demo.dates import (
    WEEKDAYS,
    day_of_month,
    draw_date,
    draw_day,
    draw_time,
    prefixed,
)
from minitransformer.data.demo.lexicon import Case, Determiner, Number, Paradigm, Tense
from minitransformer.data.demo.meaning import IT, Clause, Expression, NounPhrase, Phrase
from minitransformer.data.demo.nouns import (
    ANIMAL,
    BUILDING,
    CITY,
    CLOTHING,
    DEVICE,
    DRINK,
    FOOD,
    FURNITURE,
    INHABITANT,
    OBJECT,
    PEOPLE,
    READING,
    RIVER,
    TABLE,
    TRAIN,
    VEHICLE,
    VILLAGE,
    nouns_of,
)
from minitransformer.data.demo.numbers import (
    MILLION,
    english_number,
    english_numeral,
    german_number,
    german_numeral,
)
from minitransformer.data.demo.phrases import (
    DEFINITE,
    PRONOUNS,
    adjectives,
    bare,
    cardinal,
    name,
    noun_phrase,
    phrase_about,
    subject,
)
from minitransformer.data.demo.verbs import (
    BE,
    BUY,
    COST,
    COUNT,
    HAVE,
    SEE,
    SELL,
    WEIGH,
    WRITE,
)

_COUNTED = (ANIMAL, READING, CLOTHING, DEVICE, OBJECT, FURNITURE, VEHICLE)
_HIGHEST_PRICES = (
    ((FOOD, DRINK, READING), 20),
    ((CLOTHING, OBJECT), 300),
    ((DEVICE, FURNITURE), 900),
    ((VEHICLE,), 20_000),
)
_WEIGHED = (DEVICE, FURNITURE)
_OPERATIONS = (Expression("plus", "plus"), Expression("minus", "minus"), Expression("times", "mal"))


def inhabitants(random: Random) -> Clause:
    """How many inhabitants a place has."""
    named = random.random() < 0.4
    noun = random.choice(nouns_of((CITY,))) if named else VILLAGE
    number = random_number(random, 10_000, 999_999) if named else random_number(random, 13, 9_999)
    people = NounPhrase(_amount(random, number), INHABITANT, Number.PLURAL)
    return Clause(phrase_about(random, noun, DEFINITE, Number.SINGULAR), HAVE, object=people)


def count(random: Random) -> Clause:
    """How many things somebody has, buys, sells, sees or counts."""
    noun = random.choice([noun for noun in nouns_of(_COUNTED) if noun.countable])
    number = random_number(random, 13, 9_999)
    counted = NounPhrase(_amount(random, number), noun, Number.PLURAL, adjectives(random, noun))
    return Clause(subject(random, PEOPLE), random.choice((HAVE, BUY, SELL, SEE, COUNT)), object=counted)


def number_written(random: Random) -> Clause:
    """Which number somebody writes."""
    number = MILLION if random.random() < 0.02 else random_number(random, 0, 999_999)
    written = prefixed("the number", "die Zahl", _in_words_or_digits(random, number))
    return Clause(subject(random, PEOPLE), WRITE, object=written)


def arithmetic(random: Random) -> Clause:
    """A sum, a difference or a product."""
    operation = random.choice(_OPERATIONS)
    match operation.english:
        case "plus":
            first, second = random_number(random, 1, 5_000), random_number(random, 1, 5_000)
            result = first + second
        case "minus":
            second, result = random_number(random, 1, 5_000), random_number(random, 0, 5_000)
            first = second + result
        case _:
            first, second = random.randint(2, 25), random.randint(2, 25)
            result = first * second
    left, right = in_words(first), in_words(second)
    term = Expression(
        f"{left.english} {operation.english} {right.english}", f"{left.german} {operation.german} {right.german}"
    )
    return Clause(term, BE, complement=in_words(result))


def price(random: Random) -> Clause:
    """What something costs."""
    classes, highest = random.choice(_HIGHEST_PRICES)
    return Clause(noun_phrase(random, classes, DEFINITE), COST, complement=_price(random, highest // 20, highest))


def weight(random: Random) -> Clause:
    """What something weighs."""
    thing = noun_phrase(random, _WEIGHED, DEFINITE)
    if random.random() < 0.5:
        kilograms = _countable(random, 2, 40)
        measure = in_words(kilograms)
    else:
        measure = _decimal(random, 2, 40)
    return Clause(thing, WEIGH, complement=_with_unit(measure, "kilograms", "Kilogramm"))


def length(random: Random) -> Clause:
    """How long a river, a train or a table is."""
    noun, longest = random.choice(((RIVER, 900_000), (TRAIN, 400), (TABLE, 5)))
    measure = _decimal(random, 1, longest) if noun is TABLE else in_digits(_countable(random, 20, longest))
    thing = phrase_about(random, noun, DEFINITE, Number.SINGULAR)
    return Clause(thing, BE, complement=_with_unit(measure, "meters long", "Meter lang"))


def age(random: Random) -> Clause:
    """How old somebody or some building is."""
    if random.random() < 0.6:
        aged: Phrase = random.choice(PRONOUNS) if random.random() < 0.4 else name(random)
        years = random.randint(12, 99)
    else:
        aged, years = bare(noun_phrase(random, (BUILDING,), DEFINITE)), _countable(random, 12, 900)
    measure = _with_unit(_in_words_or_digits(random, years), "years old", "Jahre alt")
    return Clause(aged, BE, complement=measure)


def clock(random: Random) -> Clause:
    """What time it is."""
    return Clause(IT, BE, complement=draw_time(random))


def day(random: Random) -> Clause:
    """Which day it is, was or will be."""
    adverb, tense = random.choice(
        (
            (Expression("today", "heute"), Tense.PRESENT),
            (Expression("tomorrow", "morgen"), Tense.PRESENT),
            (Expression("yesterday", "gestern"), Tense.PAST),
        )
    )
    return Clause(adverb, BE, complement=_name_of_day(random), tense=tense)


def random_number(random: Random, smallest: int, largest: int) -> int:
    """A random number, each number of digits being about as frequent, often a round one."""
    digits = random.randint(len(str(smallest)), len(str(largest)))
    number = random.randint(max(smallest, 10 ** (digits - 1)), min(largest, 10**digits - 1))
    if random.random() < 0.3:
        number -= number % 10 ** (digits // 2)
    return max(smallest, number)


def in_words(number: int) -> Expression:
    """A number in words."""
    return Expression(english_number(number), german_number(number))


def in_digits(number: float, decimals: int = 0) -> Expression:
    """A number in digits."""
    return Expression(english_numeral(number, decimals), german_numeral(number, decimals))


def _in_words_or_digits(random: Random, number: int) -> Expression:
    return in_words(number) if random.random() < 0.5 else in_digits(number)


def _amount(random: Random, number: int) -> Determiner:
    """The number as a determiner in words, or in digits."""
    number += number % 100 == 1
    if random.random() < 0.6:
        return cardinal(number)
    digits = in_digits(number)
    return Determiner("", digits.english, digits.german, Paradigm.UNINFLECTED)


def _countable(random: Random, smallest: int, largest: int) -> int:
    """A random number that does not end in 01, where German would inflect ein before a noun."""
    number = random_number(random, smallest, largest)
    return number + (number % 100 == 1)


def _decimal(random: Random, smallest: int, largest: int) -> Expression:
    decimals = random.choice((1, 1, 2))
    units, last = random.randint(smallest, largest), random.randint(1, 9)
    tenths = random.randint(0, 9) if decimals == 2 else 0
    return in_digits(units + (tenths * 10 + last) / 100 if decimals == 2 else units + last / 10, decimals)


def _with_unit(measure: Expression, english: str, german: str) -> Expression:
    return Expression(f"{measure.english} {english}", f"{measure.german} {german}")


def _price(random: Random, smallest: int, largest: int) -> Expression:
    """A price in euros in words, or in euros or dollars in digits."""
    if random.random() < 0.4:
        return _price_in_words(random, max(2, smallest), largest)
    symbol = random.choice("$€")
    if random.random() < 0.3:
        amount = in_digits(random_number(random, max(2, smallest), largest))
    else:
        amount = in_digits(random.randint(smallest, largest) + random.choice((25, 49, 50, 95, 99)) / 100, 2)
    return Expression(f"{symbol}{amount.english}", f"{amount.german} {symbol}")


def _price_in_words(random: Random, smallest: int, largest: int) -> Expression:
    euros = _with_unit(in_words(_countable(random, smallest, largest)), "euros", "Euro")
    if random.random() < 0.5:
        return euros
    cents = in_words(random.choice((10, 20, 25, 30, 40, 50, 60, 75, 80, 90, 95)))
    return _with_unit(euros, cents.english, cents.german)


def _name_of_day(random: Random) -> Expression:
    kind = random.random()
    if kind < 0.3:
        return random.choice(WEEKDAYS)
    date = draw_date(random, 1980, 2049) if kind < 0.6 else day_of_month(*draw_day(random), Case.NOMINATIVE)
    return Expression(date.english, f"der {date.german}")
