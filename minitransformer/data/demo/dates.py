"""Dates, times of day and the adverbials made of them, as pairs of fixed expressions.

Conventions: "on May 3, 1987" is "am 3. Mai 1987", "on the third of May" is "am dritten Mai"; "at half past seven" is
"um halb acht", "at a quarter to nine" is "um Viertel vor neun", "at 14:35" is "um 14:35 Uhr".
"""

from random import Random

from minitransformer.data.demo.lexicon import Case
from minitransformer.data.demo.meaning import Expression
from minitransformer.data.demo.numbers import english_number, german_number

MONTHS = (
    Expression("January", "Januar"),
    Expression("February", "Februar"),
    Expression("March", "März"),
    Expression("April", "April"),
    Expression("May", "Mai"),
    Expression("June", "Juni"),
    Expression("July", "Juli"),
    Expression("August", "August"),
    Expression("September", "September"),
    Expression("October", "Oktober"),
    Expression("November", "November"),
    Expression("December", "Dezember"),
)
DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
WEEKDAYS = (
    Expression("Monday", "Montag"),
    Expression("Tuesday", "Dienstag"),
    Expression("Wednesday", "Mittwoch"),
    Expression("Thursday", "Donnerstag"),
    Expression("Friday", "Freitag"),
    Expression("Saturday", "Samstag"),
    Expression("Sunday", "Sonntag"),
)
_ENGLISH_IRREGULAR_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
    "twenty": "twentieth",
    "thirty": "thirtieth",
}
_GERMAN_IRREGULAR_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
_MINUTES = (5, 10, 20)


def english_ordinal(number: int) -> str:
    """The ordinal of a day of the month in words: third, twenty-first."""
    *tens, last = english_number(number).split("-")
    return "-".join([*tens, _ENGLISH_IRREGULAR_ORDINALS.get(last, f"{last}th")])


def german_ordinal_stem(number: int) -> str:
    """The stem of the ordinal of a day of the month, without its adjective ending: dritt, einundzwanzigst."""
    return _GERMAN_IRREGULAR_ORDINALS.get(number, german_number(number) + ("t" if number < 20 else "st"))


def clock_hour(hour: int) -> Expression:
    """An hour on the clock's face: two o'clock, zwei Uhr; at one o'clock the German drops the -s of eins."""
    return Expression(f"{english_number(hour)} o'clock", f"{german_number(hour).replace('eins', 'ein')} Uhr")


def half_past(hour: int) -> Expression:
    """Half past an hour, which German counts as half of the next one."""
    return Expression(f"half past {english_number(hour)}", f"halb {german_number(hour % 12 + 1)}")


def minutes_past(minutes: int, hour: int) -> Expression:
    """Some minutes or a quarter past an hour."""
    amount = _clock_minutes(minutes)
    return Expression(f"{amount.english} past {english_number(hour)}", f"{amount.german} nach {german_number(hour)}")


def minutes_to(minutes: int, hour: int) -> Expression:
    """Some minutes or a quarter to an hour."""
    amount = _clock_minutes(minutes)
    return Expression(f"{amount.english} to {english_number(hour)}", f"{amount.german} vor {german_number(hour)}")


def digital_time(hour: int, minute: int) -> Expression:
    """A time of day in digits: 14:35, 14:35 Uhr."""
    digits = f"{hour}:{minute:02d}"
    return Expression(digits, f"{digits} Uhr")


def calendar_date(day: int, month: int, year: int) -> Expression:
    """A date in digits: May 3, 1987, 3. Mai 1987."""
    return Expression(f"{MONTHS[month].english} {day}, {year}", f"{day}. {MONTHS[month].german} {year}")


def day_of_month(day: int, month: int, case: Case) -> Expression:
    """A date in words, in German without its article and weakly declined: the third of May, dritte(n) Mai."""
    name, ending = MONTHS[month], "e" if case is Case.NOMINATIVE else "en"
    english = f"the {english_ordinal(day)} of {name.english}"
    return Expression(english, f"{german_ordinal_stem(day)}{ending} {name.german}")


def draw_spoken_time(random: Random) -> Expression:
    """A random time of day in words."""
    hour = random.randint(1, 12)
    match random.randrange(4):
        case 0:
            return clock_hour(hour)
        case 1:
            return half_past(hour)
        case 2:
            return minutes_past(random.choice((*_MINUTES, 15)), hour)
        case _:
            return minutes_to(random.choice((*_MINUTES, 15)), hour)


def draw_time(random: Random) -> Expression:
    """A random time of day, in words or in digits."""
    if random.random() < 0.3:
        return digital_time(random.randint(1, 23), random.randint(1, 59))
    return draw_spoken_time(random)


def draw_day(random: Random) -> tuple[int, int]:
    """A random day of the year: the day of the month and the month, from 0."""
    month = random.randrange(12)
    return random.randint(1, DAYS_IN_MONTH[month]), month


def draw_date(random: Random, first_year: int, last_year: int) -> Expression:
    """A random date within some years."""
    return calendar_date(*draw_day(random), random.randint(first_year, last_year))


def prefixed(english: str, german: str, expression: Expression) -> Expression:
    """The expression after a preposition or an adverb of each language."""
    return Expression(f"{english} {expression.english}", f"{german} {expression.german}")


def _clock_minutes(minutes: int) -> Expression:
    if minutes == 15:
        return Expression("a quarter", "Viertel")
    return Expression(english_number(minutes), german_number(minutes))
