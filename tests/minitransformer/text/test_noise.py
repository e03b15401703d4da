"""Noise in a pair of lines, in several scripts."""

from collections import Counter
from random import Random
from typing import get_args

import pytest

from minitransformer.config import NoiseKind
from minitransformer.text.noise import NOISES, add_noise

GERMAN, CODED = "Der große Hund.", ">>fra<< a dog."


def noisy(kind: NoiseKind, source: str, target: str = "x", seed: int = 1, languages: str = "en de") -> tuple[str, str]:
    return add_noise((source, target), [kind], languages.split(), Random(seed))


def sources(kind: NoiseKind, source: str, n: int) -> list[str]:
    """The noisy sources of n seeds, whose target must stay."""
    found = [noisy(kind, source, "ein Hund", seed) for seed in range(n)]
    assert {target for _, target in found} == {"ein Hund"}
    return [line for line, _ in found]


def test_every_kind_that_settings_name_is_there() -> None:
    assert tuple(NOISES) == get_args(NoiseKind)


@pytest.mark.parametrize(("languages", "pair", "expected"), [
    ("en de", ("The big dog.", GERMAN), ("THE BIG DOG.", "DER GROẞE HUND.")),
    ("de en", (GERMAN, "The big dog."), ("DER GROẞE HUND.", "THE BIG DOG.")),
    ("en xx", ("The big dog.", GERMAN), ("THE BIG DOG.", "DER GROSSE HUND.")),
    ("tr en", ("iyi ılık", "good, mild"), ("İYİ ILIK", "GOOD, MILD")),
    ("el en", ("ο λόγος ς", "the word"), ("Ο ΛΌΓΟΣ Σ", "THE WORD")),
    ("ru uk", ("пять", "пʼять"), ("ПЯТЬ", "ПʼЯТЬ")),
    ("en zh", ("an iPhone", "一部 iPhone"), ("AN IPHONE", "一部 iPhone")),
    ("zh en", ("一部 iPhone", "an iPhone"), ("一部 iPhone", "an iPhone")),
    ("ar en", ("كلب", "a dog"), ("كلب", "a dog")),
    ("en de", ("A DOG.", "Ein Hund."), ("A DOG.", "Ein Hund.")),
    ("en fr", (CODED, "un chien."), (">>fra<< A DOG.", "UN CHIEN.")),
])  # fmt: skip
def test_capitals(languages: str, pair: tuple[str, str], expected: tuple[str, str]) -> None:
    """Both sides have them, unless the source has letters without capitals, or has capitals already."""
    assert noisy("capitals", *pair, languages=languages) == expected


@pytest.mark.parametrize(("languages", "pair", "expected"), [
    ("en de", ("the USA's old dog", "der alte Hund"), ("The USA's Old Dog", "Der Alte Hund")),
    ("tr de", ("iyi ılık", "gut"), ("İyi Ilık", "Gut")),
    ("el en", ("ο λόγος", "the word"), ("Ο Λόγος", "The Word")),
    ("zh en", ("一部 phone", "a phone"), ("一部 phone", "a phone")),
    ("en fr", (CODED, "un chien."), (">>fra<< A Dog.", "Un Chien.")),
])  # fmt: skip
def test_title_case(languages: str, pair: tuple[str, str], expected: tuple[str, str]) -> None:
    assert noisy("title", *pair, languages=languages) == expected


@pytest.mark.parametrize(("pair", "expected"), [
    (("A dog.", "Ein Hund."), ("A dog", "Ein Hund")), (("Who? ", "Qui ?"), ("Who", "Qui")),
    (("Oh...", "哦。"), ("Oh", "哦")), (("ماذا؟", "क्या।"), ("ماذا", "क्या")), (("No!", "Nein"), ("No", "Nein")),
    (("A dog", "Ein Hund."), ("A dog", "Ein Hund.")), (("3.5", "3,5"), ("3.5", "3,5")), (("...", "…"), ("...", "…")),
    (('"A dog."', "Hund."), ('"A dog."', "Hund.")), ((CODED, "un chien."), (">>fra<< a dog", "un chien")),
])  # fmt: skip
def test_no_end_mark(pair: tuple[str, str], expected: tuple[str, str]) -> None:
    """Both sides lose it, if the source has one."""
    assert noisy("no_end_mark", *pair) == expected


def test_a_typing_error_changes_one_or_two_letters_of_a_word() -> None:
    found, word = Counter[str](), "Hqrdq"
    swapped = {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(4)}
    for line in sources("typos", f"{word} 12 a !", 4_000):
        mistyped, rest = line[:-7], line[-7:]
        assert rest == " 12 a !"
        if len(mistyped) == len(word):
            kind = "swapped" if mistyped in swapped else "neighbour"
            if kind == "neighbour":
                ((old, new),) = [pair for pair in zip(word, mistyped, strict=True) if len(set(pair)) > 1]
                assert new in {"H": "GJ", "q": "w", "r": "et", "d": "sf"}[old]
        else:
            longer, shorter = sorted((word, mistyped), key=len, reverse=True)
            kind = "left out" if longer == word else "twice"
            assert any(longer[:i] + longer[i + 1 :] == shorter for i in range(len(longer)))
        found[kind] += 1
    assert all(abs(n - 1_000) < 150 for n in found.values()), found
    assert len(found) == 4


@pytest.mark.parametrize(("line", "most"), [("犬が寝る。", 1), ("собака спит", 1), ("llll", 1), ("a 12 B?", 0),
                                            (" ".join(["word"] * 25), 3), (">>fra<< dog", 1)])  # fmt: skip
def test_a_line_has_an_error_for_each_ten_words(line: str, most: int) -> None:
    """Letters whose neighbours on a keyboard are not known have errors of the other kinds."""
    for noisy_line in sources("typos", line, 200):
        pairs = list(zip(line.split(), noisy_line.split(), strict=True))
        n = sum(old != new for old, new in pairs)
        assert (n == 0) == (most == 0)
        assert n <= most
        assert not line.startswith(">>") or noisy_line.startswith(">>fra<< ")


def test_blanks_are_left_out_doubled_and_before_the_line() -> None:
    found = sources("blanks", "one two three four", 400)
    assert {line.replace(" ", "") for line in found} == {"onetwothreefour"}
    assert {len(line.split()) for line in found} == {3}  # one blank is left out
    for sign in (" ", "  "):
        n = sum(line.startswith(sign) if sign == " " else sign in line for line in found)
        assert 120 < n < 230, sign
    assert len({tuple(line.split()) for line in found}) == 3
    assert set(sources("blanks", "犬", 50)) == {"犬", " 犬"}
    assert set(sources("blanks", ">>fra<< dog", 50)) == {">>fra<< dog", ">>fra<<  dog"}


def test_kinds_are_combined() -> None:
    kinds: list[NoiseKind] = ["capitals", "blanks", "title", "no_end_mark"]
    found = add_noise(("a dog.", "ein Hund."), kinds, ["en", "de"], Random(1))
    assert (found[0].strip(), found[1]) == ("ADOG", "EIN HUND")
