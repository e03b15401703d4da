"""The demo corpus: numbers, dates and times."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.extras.demo.numbers import (
    calendar_date,
    day_of_month,
    digital_time,
    in_digits,
    in_words,
    spoken_time,
)
from minitransformer.extras.demo.phrases import cardinal
from minitransformer.extras.demo.words import Text

NUMBER_WORDS = [
    (0, "zero", "null"), (1, "one", "eins"), (16, "sixteen", "sechzehn"), (17, "seventeen", "siebzehn"),
    (21, "twenty-one", "einundzwanzig"), (30, "thirty", "dreißig"), (70, "seventy", "siebzig"),
    (100, "one hundred", "einhundert"), (101, "one hundred and one", "einhunderteins"),
    (111, "one hundred and eleven", "einhundertelf"),
    (999, "nine hundred and ninety-nine", "neunhundertneunundneunzig"),
    (1_000, "one thousand", "eintausend"), (1_001, "one thousand and one", "eintausendeins"),
    (12_312, "twelve thousand three hundred and twelve", "zwölftausenddreihundertzwölf"),
    (100_000, "one hundred thousand", "einhunderttausend"),
    (101_000, "one hundred and one thousand", "einhunderteintausend"),
    (312_405, "three hundred and twelve thousand four hundred and five", "dreihundertzwölftausendvierhundertfünf"),
    (999_999, "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig"),
    (1_000_000, "one million", "eine Million"),
]  # fmt: skip


@pytest.mark.parametrize(("number", "english", "german"), NUMBER_WORDS)
def test_number_words(number: int, english: str, german: str) -> None:
    assert in_words(number) == Text(english, german)


@pytest.mark.parametrize("number", [-1, 1_000_001])
def test_number_words_end_at_a_million(number: int) -> None:
    with pytest.raises(ValueError, match="number words reach"):
        in_words(number)


@given(st.integers(0, 1_000_000), st.integers(0, 1_000_000))
def test_number_words_are_injective(first: int, second: int) -> None:
    assert (in_words(first).english == in_words(second).english) == (first == second)
    assert (in_words(first).german == in_words(second).german) == (first == second)


def test_small_number_words_are_all_different() -> None:
    words = [in_words(number) for number in range(30_000)]
    assert len({text.english for text in words}) == len({text.german for text in words}) == len(words)


def test_numerals_have_the_separators_of_their_language() -> None:
    assert in_digits(1250) == Text("1,250", "1.250")
    assert in_digits(3.5, 1) == Text("3.5", "3,5")
    assert in_digits(1_234_567.25, 2) == Text("1,234,567.25", "1.234.567,25")


@pytest.mark.parametrize(("text", "english", "german"), [
    (spoken_time(7, 30), "half past seven", "halb acht"), (spoken_time(12, 30), "half past twelve", "halb eins"),
    (spoken_time(8, 15), "a quarter past eight", "Viertel nach acht"),
    (spoken_time(8, 45), "a quarter to nine", "Viertel vor neun"),
    (spoken_time(1, 10), "ten past one", "zehn nach eins"), (spoken_time(1, 0), "one o'clock", "ein Uhr"),
    (spoken_time(5, 0), "five o'clock", "fünf Uhr"), (digital_time(14, 35), "14:35", "14:35 Uhr"),
    (digital_time(9, 5), "9:05", "9:05 Uhr"),
    (calendar_date(date(1987, 5, 3)), "May 3, 1987", "3. Mai 1987"),
    (day_of_month(date(2025, 1, 1), "e"), "the first of January", "erste Januar"),
    (day_of_month(date(2025, 5, 3), "en"), "the third of May", "dritten Mai"),
    (day_of_month(date(2025, 3, 7), "en"), "the seventh of March", "siebten März"),
    (day_of_month(date(2025, 3, 8), "en"), "the eighth of March", "achten März"),
    (day_of_month(date(2025, 3, 12), "en"), "the twelfth of March", "zwölften März"),
    (day_of_month(date(2025, 10, 20), "en"), "the twentieth of October", "zwanzigsten Oktober"),
    (day_of_month(date(2025, 12, 31), "e"), "the thirty-first of December", "einunddreißigste Dezember"),
])  # fmt: skip
def test_dates_and_times(text: Text, english: str, german: str) -> None:
    assert text == Text(english, german)


@pytest.mark.parametrize("number", [1, 101, 5_201])
def test_a_cardinal_determiner_never_needs_an_inflected_ein(number: int) -> None:
    with pytest.raises(ValueError, match="inflected form of ein"):
        cardinal(number)
