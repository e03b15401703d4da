"""Random adverbials of time and cause, as far as they suit a tense."""

from collections.abc import Callable
from random import Random

from minitransformer.data.demo.dates import (
    MONTHS,
    WEEKDAYS,
    day_of_month,
    draw_date,
    draw_day,
    draw_time,
    prefixed,
)
from minitransformer.data.demo.lexicon import Case
from minitransformer.data.demo.meaning import Expression
from minitransformer.data.demo.numbers import english_number, german_number
from minitransformer.data.demo.weighted import Weighted

Circumstance = Callable[[Random], Expression]

_PRESENT_ADVERBS = (
    Expression("today", "heute"),
    Expression("now", "jetzt"),
    Expression("every day", "jeden Tag"),
    Expression("every evening", "jeden Abend"),
    Expression("in the morning", "am Morgen"),
    Expression("in the evening", "am Abend"),
    Expression("in summer", "im Sommer"),
    Expression("in winter", "im Winter"),
    Expression("during the night", "während der Nacht"),
    Expression("because of the rain", "wegen des Regens"),
    Expression("because of the snow", "wegen des Schnees"),
    Expression("after the meal", "nach dem Essen"),
)
_FUTURE_ADVERBS = (
    Expression("tomorrow", "morgen"),
    Expression("tomorrow", "morgen"),
    Expression("soon", "bald"),
    Expression("next week", "nächste Woche"),
    Expression("next year", "nächstes Jahr"),
)
_PAST_ADVERBS = (
    Expression("yesterday", "gestern"),
    Expression("yesterday", "gestern"),
    Expression("last week", "letzte Woche"),
    Expression("last year", "letztes Jahr"),
)
_UNITS = (
    Expression("days", "Tagen"),
    Expression("weeks", "Wochen"),
    Expression("months", "Monaten"),
    Expression("years", "Jahren"),
)


def at_time(random: Random) -> Expression:
    """At a time of day: at half past seven, um halb acht."""
    return prefixed("at", "um", draw_time(random))


def weekday(random: Random) -> Expression:
    """On a day of the week: on Monday, am Montag."""
    return prefixed("on", "am", random.choice(WEEKDAYS))


def _present_adverb(random: Random) -> Expression:
    return random.choice(_PRESENT_ADVERBS)


def _future_adverb(random: Random) -> Expression:
    return random.choice(_FUTURE_ADVERBS)


def _past_adverb(random: Random) -> Expression:
    return random.choice(_PAST_ADVERBS)


def _every_weekday(random: Random) -> Expression:
    return prefixed("every", "jeden", random.choice(WEEKDAYS))


def _next_weekday(random: Random) -> Expression:
    return prefixed("next", "nächsten", random.choice(WEEKDAYS))


def _last_weekday(random: Random) -> Expression:
    return prefixed("last", "letzten", random.choice(WEEKDAYS))


def _in_month(random: Random) -> Expression:
    return prefixed("in", "im", random.choice(MONTHS))


def _weekday_at_time(random: Random) -> Expression:
    return _at_once(weekday(random), at_time(random))


def _tomorrow_at_time(random: Random) -> Expression:
    return _at_once(_FUTURE_ADVERBS[0], at_time(random))


def _yesterday_at_time(random: Random) -> Expression:
    return _at_once(_PAST_ADVERBS[0], at_time(random))


def _day_of_month(random: Random) -> Expression:
    return prefixed("on", "am", day_of_month(*draw_day(random), Case.DATIVE))


def _future_date(random: Random) -> Expression:
    return prefixed("on", "am", draw_date(random, 2031, 2079))


def _past_date(random: Random) -> Expression:
    return prefixed("on", "am", draw_date(random, 1950, 2019))


def _past_year(random: Random) -> Expression:
    year = random.randint(1950, 2019)
    return Expression(f"in the year {year}", f"im Jahr {year}")


def _span(random: Random) -> Expression:
    number, unit = random.randint(2, 12), random.choice(_UNITS)
    return Expression(f"{english_number(number)} {unit.english}", f"{german_number(number)} {unit.german}")


def _after_span(random: Random) -> Expression:
    return prefixed("in", "in", _span(random))


def _span_ago(random: Random) -> Expression:
    span = _span(random)
    return Expression(f"{span.english} ago", f"vor {span.german}")


def _at_once(day: Expression, time: Expression) -> Expression:
    return Expression(f"{day.english} {time.english}", f"{day.german} {time.german}")


_PRESENT = Weighted[Circumstance](
    (_present_adverb, 8), (_every_weekday, 2), (_in_month, 2), (weekday, 2), (at_time, 3), (_weekday_at_time, 1)
)
_FUTURE = Weighted[Circumstance](
    (_future_adverb, 6),
    (_next_weekday, 2),
    (_tomorrow_at_time, 2),
    (_day_of_month, 4),
    (_future_date, 2),
    (_after_span, 2),
)
_PAST = Weighted[Circumstance](
    (_past_adverb, 6), (_last_weekday, 2), (_yesterday_at_time, 1), (_past_date, 5), (_past_year, 2), (_span_ago, 3)
)
_TIMETABLE = Weighted[Circumstance]((at_time, 3), (_weekday_at_time, 1))


def present(random: Random) -> Expression:
    """An adverbial that suits the present."""
    return _PRESENT.draw(random)(random)


def past(random: Random) -> Expression:
    """An adverbial of a past time, which the English simple past needs."""
    return _PAST.draw(random)(random)


def future(random: Random) -> Expression:
    """An adverbial of a future time, beside a modal verb."""
    return _FUTURE.draw(random)(random)


def time_of_day(random: Random) -> Expression:
    """An adverbial of a time of day, perhaps with the day of the week."""
    return _TIMETABLE.draw(random)(random)
