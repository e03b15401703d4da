"""Texts cut into sentences and joined again: nothing is lost, and whitespace stays."""

import functools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitransformer.config import ConfigError
from minitransformer.extras.files.sentences import LANGUAGES, SentenceSplitter, SplitTexts, translate_texts
from minitransformer.extras.packages import MissingExtraError
from minitransformer.extras.serve.languages import NAMES
from minitransformer.inference.translator import Translator

BLANK = st.text(" \t\n\u3000\xa0", max_size=3)
SENTENCE = st.text(st.characters(codec="utf-8"), max_size=5).map(str.strip)


def before_stops(text: str, stop: str = ".") -> list[str]:
    """Cut after every full stop, so that whitespace begins a sentence."""
    *ended, last = text.split(stop)
    return [*(piece + stop for piece in ended), last]


before_wide_stops = functools.partial(before_stops, stop="。")


@given(texts=st.lists(st.lists(st.tuples(SENTENCE, BLANK), max_size=5), max_size=4))
def test_the_sentences_themselves_give_the_texts_again(texts: list[list[tuple[str, str]]]) -> None:
    whole = [".".join(sentence + blank for sentence, blank in text) for text in texts]
    parts = SplitTexts.of(whole, before_stops)
    assert all(sentence and sentence == sentence.strip() for sentence in parts.sentences)
    assert parts.joined(parts.sentences) == whole


@given(sentences=st.lists(st.tuples(BLANK, st.integers(0, 99)), min_size=1), last=BLANK)
def test_translations_stand_between_the_whitespace_of_the_source(sentences: list[tuple[str, int]], last: str) -> None:
    text = "".join(f"{blank}{number}." for blank, number in sentences) + last
    parts = SplitTexts.of(["", text, " "], before_stops)
    assert parts.sentences == [f"{number}." for _, number in sentences]
    assert set(parts.text_of) == {1}
    translated = parts.joined([f"<{sentence}>" for sentence in parts.sentences])
    assert translated == ["", "".join(f"{blank}<{number}.>" for blank, number in sentences) + last, " "]


@given(text=st.text(st.characters(codec="utf-8") | st.sampled_from(list(".!?。 \t\"')0123-•")), max_size=40))
def test_the_pieces_of_sentencex_are_the_text(text: str) -> None:
    for language in ("en", "de", "ja", "zu"):
        assert "".join(SentenceSplitter(language)(text)) == text


@pytest.mark.parametrize(("language", "text", "sentences"), [
    ("en", "Dr. Smith came at 3.30 p.m. yesterday.  He left!", ["Dr. Smith came at 3.30 p.m. yesterday.", "He left!"]),
    ("de", "Am 3. Oktober kam z. B. Dr. Maier. Er ging.", ["Am 3. Oktober kam z. B. Dr. Maier.", "Er ging."]),
    ("ja", "犬が寝る。「本当？」はい！", ["犬が寝る。", "「本当？」", "はい！"]),
    ("zh", "价格是3.5元。远吗？他说：“是的。”再见", ["价格是3.5元。", "远吗？", "他说：“是的。”", "再见"]),
    ("ar", "كيف حالك؟ بخير؛ نعم! شكرا.", ["كيف حالك؟", "بخير؛ نعم!", "شكرا."]),
    ("hi", "नमस्ते। क्या यह 3.5 है? हाँ।", ["नमस्ते।", "क्या यह 3.5 है?", "हाँ।"]),
    ("th", "สวัสดีครับ ผมชื่อสมชาย 3.5 ฯลฯ", ["สวัสดีครับ ผมชื่อสมชาย 3.5 ฯลฯ"]),  # nothing ends a sentence
])  # fmt: skip
def test_abbreviations_and_numbers_end_no_sentence(language: str, text: str, sentences: list[str]) -> None:
    assert SplitTexts.of([text], SentenceSplitter(language)).sentences == sentences


@pytest.mark.parametrize("code", ["de", "DE", "de-DE", "de_AT", "de-Latn-DE"])
def test_a_language_has_its_rules_however_its_code_is_written(code: str) -> None:
    splitter = SentenceSplitter(code)
    assert splitter("Am 3. Oktober. Vgl. Abb. 3.") == ["Am 3. Oktober. ", "Vgl. Abb. 3."]
    assert splitter.language == "de"


@pytest.mark.parametrize("code", ["", "xx", "deu", "german", "de,en", "-de"])
def test_what_is_no_code_of_a_language_is_refused(code: str) -> None:
    """For an unknown code sentencex would use English rules."""
    with pytest.raises(ConfigError, match=f'^language {code!r}: expected a code such as "en" or "de"; '):
        SentenceSplitter(code)
    assert len(LANGUAGES) == 183
    assert NAMES.keys() < LANGUAGES


def test_each_sentence_has_the_language_code_of_its_text() -> None:
    parts = SplitTexts.of([">>fra<< One.  Two. Three.", "Four. Five.", ">>deu<< Six. "], SentenceSplitter("en"))
    assert parts.sentences == [">>fra<< One.", ">>fra<< Two.", ">>fra<< Three.", "Four.", "Five.", ">>deu<< Six."]
    assert parts.joined(["Un.", "Deux.", "Trois.", "4.", "5.", "Sechs."]) == ["Un.  Deux. Trois.", "4. 5.", "Sechs. "]


def test_text_without_blanks_between_sentences_gets_them_in_another_script() -> None:
    parts = SplitTexts.of(["犬。猫。", "犬。 猫。", "a.b."], before_wide_stops)
    assert parts.joined(["A dog.", "A cat.", "A dog.", "A cat.", "x.y."]) == ["A dog. A cat.", "A dog. A cat.", "x.y."]
    assert parts.joined(["狗。", "貓。", "狗。", "貓。", "x"]) == ["狗。貓。", "狗。 貓。", "x"]
    quoted = SplitTexts.of(["他说：“买！”。好。"], before_wide_stops)
    assert quoted.joined(["He said: “Buy!”", "Good."]) == ["He said: “Buy!” Good."]
    assert SplitTexts.of(["买!”。好。"], lambda text: ["买!”", "。好。"]).joined(["A", "B"]) == ["A B"]


def test_without_sentencex_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    message = r'the extra "sentences" .*sentencex.* pip install -e "/.*\[sentences\]"'
    with pytest.raises(MissingExtraError, match=message):
        SentenceSplitter("en")


def test_texts_are_translated_sentence_by_sentence(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    def translate(lines: list[str], **_: object) -> list[str]:
        asked.extend(lines)
        return [line.upper() for line in lines]

    asked = list[str]()
    monkeypatch.setattr(translator, "translate", translate)
    texts = ["One dog. Two cats.\n\nA third.", "", "no stop"]
    assert translate_texts(translator, texts, SentenceSplitter("en")) == [text.upper() for text in texts]
    assert asked == ["One dog.", "Two cats.", "A third.", "no stop"]
    with pytest.raises(TypeError, match="translate_texts: expected a list of lines, got one str"):
        translate_texts(translator, "One dog.", SentenceSplitter("en"))
