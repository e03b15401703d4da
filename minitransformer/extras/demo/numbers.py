"""Numbers, dates and times in words and in digits.

English has "and" before tens and ones that follow hundreds or thousands: "one thousand and five".  German joins the
words: einhundertfünf, eintausendeins.  "At half past seven" is "um halb acht", "on May 3, 1987" is "am 3. Mai 1987".
"""

from datetime import date

from minitransformer.extras.demo.words import DATA, Text, texts

MILLION = 1_000_000
MONTHS = texts("months")
_SMALL, _TENS, _ORDINALS = texts("numbers"), texts("tens"), DATA["ordinals"]


def fill(english: str, german: str, *parts: Text, **named: Text) -> Text:
    """Fill the braces of a template in each language with ``parts`` and ``named``."""
    return Text(
        english.format(*(part.english for part in parts), **{name: part.english for name, part in named.items()}),
        german.format(*(part.german for part in parts), **{name: part.german for name, part in named.items()}),
    )


def in_words(number: int) -> Text:
    """Write a number from zero to one million in words; in German a final 1 is "eins", as in counting, not "ein".

    Raises: ValueError for other numbers.
    """
    if not 0 <= number <= MILLION:
        raise ValueError(f"number words reach from 0 to {MILLION}, not to {number}")
    if number < 20:
        return _SMALL[number]
    if number < 100:
        tens, unit = _TENS[number // 10 - 2], number % 10
        return fill("{0}-{1}", "{1}und{0}", tens, _before_noun(_SMALL[unit])) if unit else tens
    if number == MILLION:
        return Text("one million", "eine Million")
    size, names = (1000, Text("thousand", "tausend")) if number >= 1000 else (100, Text("hundred", "hundert"))
    count, rest = divmod(number, size)
    words = fill("{} {}", "{}{}", _before_noun(in_words(count)), names)
    return fill("{} and {}" if rest < 100 else "{} {}", "{}{}", words, in_words(rest)) if rest else words


def in_digits(number: float, decimals: int = 0) -> Text:
    """Write a number in digits: 1,250.5, in German 1.250,5."""
    digits = f"{number:,.{decimals}f}"
    return Text(digits, digits.translate(str.maketrans(",.", ".,")))


def spoken_time(hour: int, minute: int) -> Text:
    """Write a time in words; ``hour`` is from 1 to 12, ``minute`` a multiple of five."""
    this, following = in_words(hour), in_words(hour % 12 + 1)
    if minute == 0:
        return fill("{} o'clock", "{} Uhr", _before_noun(this))
    if minute == 30:
        return Text(f"half past {this.english}", f"halb {following.german}")
    minutes = min(minute, 60 - minute)
    amount = Text("a quarter", "Viertel") if minutes == 15 else in_words(minutes)
    past, to = ("{} past {}", "{} nach {}"), ("{} to {}", "{} vor {}")
    return fill(*past, amount, this) if minute < 30 else fill(*to, amount, following)


def digital_time(hour: int, minute: int) -> Text:
    """Write a time of day in digits: "14:35" and "14:35 Uhr"."""
    return Text(f"{hour}:{minute:02d}", f"{hour}:{minute:02d} Uhr")


def calendar_date(day: date) -> Text:
    """Write a date in digits: "May 3, 1987" and "3. Mai 1987"."""
    return fill(f"{{}} {day.day}, {day.year}", f"{day.day}. {{}} {day.year}", MONTHS[day.month - 1])


def day_of_month(day: date, ending: str) -> Text:
    """Write a date in words: "the third of May", "dritten Mai".

    The German text has no article; ``ending`` is the ending of its ordinal number.
    """
    number = in_words(day.day)
    *tens, last = number.english.split("-")
    english = "-".join([*tens, _ORDINALS.get(last, f"{last}th")])
    german = _ORDINALS.get(number.german, number.german + ("t" if day.day < 20 else "st"))
    return fill("the {} of {}", f"{{}}{ending} {{}}", Text(english, german), MONTHS[day.month - 1])


def _before_noun(words: Text) -> Text:
    """Return the form of a number before another word: a German "eins" becomes "ein"."""
    is_one = words.german.endswith("eins")
    return Text(words.english, words.german.removesuffix("s")) if is_one else words
