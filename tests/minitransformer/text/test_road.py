"""Texts on the road: sentences, capitals, unknown characters, numbers, terms and repetitions."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from roads import copied, road_of, translate_segments

from minitransformer.config import ConfigError
from minitransformer.data.profile import TextProfile
from minitransformer.text.road import STEPS, Sentences, translated
from minitransformer.text.terms import Terms
from minitransformer.text.translation import Translation

BLANK = st.text(" \t\n\u3000\xa0", max_size=3)


def notes_of(found: Translation) -> list[str]:
    return [note.kind + "!" * note.is_uncertain for note in found.notes]


class Spy:
    """A translator that notes its lines; it writes capitals for lower case, or what a dictionary says."""

    def __init__(self, **dictionary: str) -> None:
        self.dictionary, self.lines = dictionary, list[str]()

    def __call__(self, texts: Sequence[str]) -> list[Translation]:
        self.lines += texts
        words = [[self.dictionary.get(word, word.swapcase()) for word in text.split()] for text in texts]
        return [Translation(" ".join(some), -1.0, -1.0, tuple((i, i) for i in range(len(some)))) for some in words]


@given(texts=st.lists(st.text("ab.!? \n\t\u3000{}<>&%@1", max_size=20), max_size=4))
def test_copies_of_sentences_are_the_texts(texts: list[str]) -> None:
    """Whatever stands there: whitespace, codes and line ends stay; only runs of blanks within a sentence are one."""
    found = translate_segments(texts, copied)
    for text, one in zip(texts, found, strict=True):
        assert one.text.split() == text.split()
        assert one.text.count("\n") == text.count("\n")


@given(sentences=st.lists(st.tuples(BLANK, st.integers(20, 99)), min_size=1, max_size=4), last=BLANK)
def test_translations_stand_between_the_whitespace_of_the_source(sentences: list[tuple[str, int]], last: str) -> None:
    text = "".join(f"{blank or ' '}It is X{number}." for blank, number in sentences) + last
    (found,) = translate_segments([text], lambda lines: [Translation(f"({line})", 0, 0) for line in lines])
    assert found.text == "".join(f"{blank or ' '}(It is X{number}.)" for blank, number in sentences) + last


def test_a_text_has_the_sum_of_its_sentences_scores_and_as_many_alternatives() -> None:
    def n_best(sentences: Sentences) -> list[list[Translation]]:
        return [
            [Translation(f"{line}{k}", -k - 1.0, -k) for k in range(3 if "dog" in line else 2)]
            for line in sentences.lines
        ]

    steps = road_of(skip=["loops"]).steps(["One dog. Two cats.", ""])
    first, empty = translated(steps, n_best)
    assert [(each.text, each.log_probability, each.score) for each in first] == [
        ("One dog.0 Two cats.0", -2.0, 0), ("One dog.1 Two cats.1", -4.0, -2), ("One dog.2 Two cats.1", -5.0, -3),
    ]  # fmt: skip
    assert [each.text for each in empty] == [""]


def test_rules_of_another_language_are_no_secret() -> None:
    for source, is_uncertain in (("en", False), ("de-AT", False), (None, True), ("und", True)):
        (found,) = translate_segments(["One dog. Two cats."], Spy(), road_of(profile=TextProfile(source)))
        assert [(note.kind, note.is_uncertain, "English" in note.message) for note in found.notes] == [
            ("sentences", is_uncertain, is_uncertain)
        ]


def test_a_text_that_is_no_longer_wanted_has_no_translation() -> None:
    steps = road_of().steps(["One dog. Two dogs.", "Three."])
    found = translated(steps, lambda sentences: [[], *([each] for each in copied(sentences.lines[1:]))])
    assert [len(each) for each in found] == [0, 1]


def test_lines_like_those_of_training_stay_whole() -> None:
    text = "One dog. Two dogs. Three dogs.\nFour dogs. Five."
    for sentences, tokens, lines in ((1, None, 5), (2, 4, 3), (2, 3, 4), (9, 99, 2)):
        spy = Spy()
        (found,) = translate_segments([text], spy, road_of(profile=TextProfile("en", "de", sentences, tokens)))
        assert (len(spy.lines), found.text) == (lines, text.swapcase())
    spy = Spy()
    translate_segments([text], spy, road_of(skip=["sentences"]))
    assert spy.lines == text.split("\n")


def test_each_sentence_has_the_language_code_of_its_text() -> None:
    spy = Spy()
    found = translate_segments([">>fra<< One cat.  Two cats. Three cats.", "Four cats."], spy)
    assert spy.lines == [">>fra<< One cat.", ">>fra<< Two cats.", ">>fra<< Three cats.", "Four cats."]
    assert found[1].text == "fOUR CATS."


@pytest.mark.parametrize(("text", "kinds"), [
    ("One cat. Two cats.", ["language!", "sentences"]), (">>fr<< One cat.", ["language!"]), (">>fra<< One cat.", []),
    ("", []), ("12.5", []),
])  # fmt: skip
def test_a_text_without_the_code_of_one_of_the_models_languages_is_noted(text: str, kinds: list[str]) -> None:
    """A model of OPUS-MT, for example, would choose a language itself, or read ``>>fr<<`` as characters."""
    (found,) = translate_segments([text], copied, road_of(languages=("fra", "spa")))
    assert notes_of(found) == kinds
    road = road_of(languages=("fra", "spa"), profile=TextProfile("en"), to_language="fra")
    (found,) = translate_segments(["One cat."], copied, road)
    assert notes_of(found) == []


@pytest.mark.parametrize(("text", "read", "expected"), [
    ("THE SMALL DOG.", "The small dog.", "THE SMALL DOG."), ("The Small Dog Sees It", "The small dog sees it",
     "The Small Dog Sees It"), ("The Man of the House", "The Man of the House", "The Man of the House"),
    ("I AM. AM I?", "I am.", "I AM. AM I?"), ("I", "I", "I"), ("A B C", "A B C", "A B C"), ("Dog", "Dog", "Dog"),
    ("<b>THE DOG</b> {x}", "The dog {x}", "<b>THE DOG</b> {x}"), ("犬が寝る", "犬が寝る", "犬が寝る"),
])  # fmt: skip
def test_capitals_are_read_as_a_sentence_and_shown_as_they_came(text: str, read: str, expected: str) -> None:
    lines = list[str]()

    def copy(texts: Sequence[str]) -> list[Translation]:
        lines.extend(texts)
        return copied(texts)

    (found,) = translate_segments([text], copy)
    assert (lines[0], found.text) == (read, expected)
    assert ("capitals" in notes_of(found)) == (read != text.replace("<b>", "").replace("</b>", ""))


def test_capitals_follow_the_rules_of_both_languages() -> None:
    seen = list[str]()

    def translate(texts: Sequence[str]) -> list[Translation]:
        seen.extend(texts)
        return [Translation("izmir ist groß", 0, 0)] * len(texts)

    (turkish,) = translate_segments(["İZMİR ISLAK"], translate, road_of(profile=TextProfile("tr", "tr")))
    (german,) = translate_segments(["İZMİR"], translate, road_of(profile=TextProfile("tr", "de")))
    assert (seen[0], turkish.text, german.text) == ("İzmir ıslak", "İZMİR İST GROSS", "IZMIR IST GROẞ")


@pytest.mark.parametrize(("text", "unknown", "read", "expected"), [
    ("(a dog)", "()", "a dog", "(A DOG)"), ("a ♥ dog", "♥", "a dog", "A ♥ DOG"),
    ("@anna is", "@", "anna is", "@anna IS"), ("3 < 5 dogs", "<", "3 5 dogs", "3 < 5 DOGS"),
    ("a dog 😀", "😀", "a dog", "A DOG 😀"), ("see Łódź now", "Łóź", "see now", "SEE Łódź NOW"),
    ("a 👩\u200d👧 b", "👩👧", "a b", "A 👩\u200d👧 B"), ("have {0} dogs", "{}", "have 0 dogs", "HAVE {0} DOGS"),
    ("a\xa0dog", "\xa0", "a dog", "A DOG"), ("see\xa0{0}", "\xa0", "see {0}", "SEE {0}"),
])  # fmt: skip
def test_unknown_characters_are_copied_where_they_stood(text: str, unknown: str, read: str, expected: str) -> None:
    spy = Spy(anna="anna")
    (found,) = translate_segments([text], spy, road_of(unknown))
    assert (" ".join(spy.lines[-1].split()), " ".join(found.text.split())) == (read, expected)
    assert notes_of(found) == ["unknown"]
    (as_is,) = translate_segments([text], Spy(), road_of(unknown, skip=STEPS))
    assert notes_of(as_is) == ["unknown!"]


@pytest.mark.parametrize(
    ("text", "read"), [("SEE ŁÓDŹ NOW", "See now"), ("See Łódź In The Red House", "See in the red house")]
)
def test_unknown_words_are_written_as_the_text_around_them(text: str, read: str) -> None:
    spy = Spy(See="See", now="now", **{"in": "in", "the": "the", "red": "red", "house": "house"})
    (found,) = translate_segments([text], spy, road_of("Łółź"))
    assert (" ".join(spy.lines[-1].split()), " ".join(found.text.split())) == (read, text)


@pytest.mark.parametrize("text", ["Привет", "Привет, 5!", "♥ ♥", "12.5", "---"])
def test_text_without_known_letters_is_copied(text: str) -> None:
    spy = Spy()
    (found,) = translate_segments([text, "a"], spy, road_of("Привет♥"))[:1]
    assert (found.text, spy.lines) == (text, ["a"])


def test_numbers_that_a_translation_changes_are_copied_and_others_are_named() -> None:
    def translate(texts: Sequence[str]) -> list[Translation]:
        lines.extend(texts)
        return copied([text.replace("1181", "181").replace("€2.50", "€3,50").replace("3 ", "drei ") for text in texts])

    lines = list[str]()
    first, price, small = translate_segments(["see 1181 dogs", "for €2.50", "3 dogs"], translate)
    assert (first.text, notes_of(first)) == ("see 1181 dogs", [])
    assert lines == ["see 1181 dogs", "for €2.50", "3 dogs", "see 35 dogs"]
    assert [(note.kind, note.words) for note in price.notes] == [("numbers", "2.50")]
    assert (small.text, notes_of(small)) == ("drei dogs", [])


def test_terms_replace_the_words_that_they_are_aligned_with() -> None:
    terms = Terms({"dog": "Köter", "old House": "Altbau", "C++": "C++"})
    road = road_of(terms=terms, skip=["loops"])
    texts = ["The Dog sees an old House.", "dogs and an old house", "<b>a dog</b>, C++!", "A DOG"]
    found = translate_segments(texts, Spy(), road)
    expected = ["tHE Köter SEES AN Altbau.", "DOGS AND AN OLD HOUSE", "<b>A Köter</b>, C++!", "A KÖTER"]
    assert [each.text for each in found] == expected
    (unplaced,) = translate_segments(["a dog"], lambda texts: [Translation("x", 0, 0)], road)
    assert (unplaced.text, notes_of(unplaced)) == ("x Köter", ["codes!", "terms!"])
    for wrong in ({"": "x"}, {"a": " "}, {"a\nb": "x"}):
        with pytest.raises(ConfigError, match="terms: expected two texts of one line; got"):
            Terms(wrong)


class Repeating:
    """A translator that repeats itself unless it must not; ``always``, even then."""

    def __init__(self, *, always: bool) -> None:
        self.always, self.asked = always, list[bool]()

    def __call__(self, sentences: Sentences) -> list[list[Translation]]:
        self.asked.append(sentences.no_repeat)
        is_loop = self.always or not sentences.no_repeat
        return [[Translation("to be or not " * (3 if is_loop else 1), 0, 0)] for _ in sentences.lines]


@pytest.mark.parametrize(("always", "skip", "asked", "notes"), [
    (False, [], [False, True], ["loop"]), (True, [], [False, True], ["loop!"]), (True, ["loops"], [False], []),
])  # fmt: skip
def test_a_translation_that_repeats_itself_is_searched_again(
    always: bool, skip: list[str], asked: list[bool], notes: list[str]
) -> None:
    translator = Repeating(always=always)
    ((found,),) = translated(road_of(skip=skip).steps(["That is the question."]), translator)
    assert (translator.asked, notes_of(found)) == (asked, notes)


@pytest.mark.parametrize(("source", "translation", "is_loop"), [
    ("a b c d e f", "on her lap and the other one on her lap and", False), ("a b c", "x x x x x x", True),
    ("a b a b a b", "one two one two one two one two", False), ("a b c", "one two three four one two three four", True),
    ("我", "的的的的的的的的的的", True), ("no", "no", False), ("", "", False),
])  # fmt: skip
def test_a_repetition_is_what_the_source_does_not_warrant(source: str, translation: str, is_loop: bool) -> None:
    def once(sentences: Sentences) -> list[list[Translation]]:
        asked.append(sentences.no_repeat)
        return [[Translation(translation, 0, 0)] for _ in sentences.lines]

    asked = list[bool]()
    translated(road_of(skip=["codes", "sentences"]).steps([source]), once)
    assert (True in asked) == is_loop


def test_tags_within_each_other_are_all_kept_however_many() -> None:
    text = "<b>" * 1_200 + "a dog" + "</b>" * 1_200
    (found,) = translate_segments([text], copied)
    assert (found.text.count("<b>"), found.text.count("</b>"), found.text.count("a dog")) == (1_200, 1_200, 1)


def test_other_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match="skip: expected steps among sentences, codes, .*; got 'all'"):
        road_of(skip=["all"])
