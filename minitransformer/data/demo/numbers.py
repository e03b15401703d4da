"""Numbers in words and in digits, prices and arithmetic, in English and in German.

Conventions, one for each language: "one hundred" and "one thousand" with "one", "and" only after the hundreds or before
a last group below one hundred (one thousand and five); einhundert and eintausend with ein-, never "und" after the
hundreds (einhundertfünf), final one is "eins", a million is "eine Million".
"""

_ENGLISH_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_ENGLISH_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_GERMAN_SMALL = (
    *("null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"),
    *("dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"),
)
_GERMAN_TENS = ("", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")

MILLION = 1_000_000


def english_number(number: int) -> str:
    """A cardinal number from zero to one million in English words."""
    _check(number)
    if number == MILLION:
        return "one million"
    thousands, rest = divmod(number, 1000)
    if not thousands:
        return _english_below_thousand(rest)
    words = f"{_english_below_thousand(thousands)} thousand"
    if not rest:
        return words
    return f"{words} {'and ' if rest < 100 else ''}{_english_below_thousand(rest)}"


def german_number(number: int) -> str:
    """A cardinal number from zero to one million in German words, as in counting: it ends in "eins", not in "ein"."""
    _check(number)
    if number == MILLION:
        return "eine Million"
    thousands, rest = divmod(number, 1000)
    if not thousands:
        return _german_below_thousand(rest)
    prefix = _as_prefix(_german_below_thousand(thousands)) + "tausend"
    return prefix + _german_below_thousand(rest) if rest else prefix


def english_numeral(number: float, decimals: int = 0) -> str:
    """A number in digits, with a comma between the thousands and a decimal point: 1,250.5."""
    return f"{number:,.{decimals}f}"


def german_numeral(number: float, decimals: int = 0) -> str:
    """A number in digits, with a point between the thousands and a decimal comma: 1.250,5."""
    return english_numeral(number, decimals).translate(str.maketrans(",.", ".,"))


def _check(number: int) -> None:
    if not 0 <= number <= MILLION:
        raise ValueError(f"number words reach from 0 to {MILLION}, not to {number}")


def _english_below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return _english_below_hundred(rest)
    words = f"{_ENGLISH_SMALL[hundreds]} hundred"
    return f"{words} and {_english_below_hundred(rest)}" if rest else words


def _english_below_hundred(number: int) -> str:
    if number < 20:
        return _ENGLISH_SMALL[number]
    tens, units = divmod(number, 10)
    return f"{_ENGLISH_TENS[tens]}-{_ENGLISH_SMALL[units]}" if units else _ENGLISH_TENS[tens]


def _german_below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return _german_below_hundred(rest)
    words = f"{_as_prefix(_GERMAN_SMALL[hundreds])}hundert"
    return words + _german_below_hundred(rest) if rest else words


def _german_below_hundred(number: int) -> str:
    if number < 20:
        return _GERMAN_SMALL[number]
    tens, units = divmod(number, 10)
    return f"{_as_prefix(_GERMAN_SMALL[units])}und{_GERMAN_TENS[tens]}" if units else _GERMAN_TENS[tens]


def _as_prefix(words: str) -> str:
    """The number as the first part of a longer one: eins becomes ein."""
    return words.removesuffix("s") if words.endswith("eins") else words
