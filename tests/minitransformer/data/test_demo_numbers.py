"""The demo corpus: numbers, dates and times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.data.demo import english_number, german_number
from minitransformer.data.demo.dates import (
    calendar_date,
    clock_hour,
    day_of_month,
    digital_time,
    half_past,
    minutes_past,
    minutes_to,
)
from minitransformer.data.demo.lexicon import Case
from minitransformer.data.demo.meaning import Expression
from minitransformer.data.demo.numbers import english_numeral, german_numeral
from minitransformer.data.demo.phrases import cardinal

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


@pytest.mark.parametrize("number", [1, 101, 5_201])
def test_a_cardinal_determiner_never_needs_an_inflected_ein(number: int) -> None:
    with pytest.raises(ValueError, match="inflected form of ein"):
        cardinal(number)
