"""Sentences and profiles of text: nothing is lost, and a model knows the lines of its training text."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_run import write_parallel_text

from minitransformer.config import ConfigError, DataConfig
from minitransformer.data.languages import LANGUAGES
from minitransformer.data.prepare import prepare
from minitransformer.data.profile import LineCounts, TextProfile, profile_of, splitter_for
from minitransformer.data.sentences import SentenceSplitter, needs_blank
from minitransformer.extras.serve.languages import NAMES


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
    assert list(map(str.strip, SentenceSplitter(language)(text))) == sentences


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
    assert splitter_for(code)("Mr. Fox runs. It rains.") == ["Mr. Fox runs. ", "It rains."]


def test_lines_end_sentences_and_blanks_belong_to_the_sentence_before() -> None:
    text = "\n  One. Two.  \n\nno stop\nThree.\n"
    assert SentenceSplitter("en")(text) == ["\n  One. ", "Two.  \n\n", "no stop\n", "Three.\n"]
    assert SentenceSplitter("en")("") == []


@pytest.mark.parametrize(("sentence", "translation", "expected"), [
    ("犬。", "A dog.", True), ("犬。", "狗。", False), ("a.", "x.", False), ("他说：“买！”。", "He said: “Buy!”", True),
    ("犬。", "", False),
])  # fmt: skip
def test_translations_from_scripts_without_blanks_get_blanks(sentence: str, translation: str, expected: bool) -> None:
    assert needs_blank(sentence, translation) == expected


def test_usual_lines_have_the_sentences_of_half_of_them_and_the_tokens_of_nearly_all() -> None:
    counts = LineCounts("en", Counter({1: 6, 2: 3, 3: 1}), Counter({10: 99, 40: 1}))
    assert counts.usual() == {"sentences": 1, "tokens": 10}
    counts.add(LineCounts("en", Counter({3: 5}), Counter({40: 100})))
    assert counts.usual() == {"sentences": 2, "tokens": 40}
    assert LineCounts("en").usual() == {"sentences": 1, "tokens": 0}


def test_prepared_data_counts_the_sentences_of_its_lines(tmp_path: Path) -> None:
    write_parallel_text(tmp_path, "t", 60, seed=1)
    for code in ("en", "de"):
        path = tmp_path / f"t.{code}"
        path.write_text("".join(f"{line}. {line}.\n" for line in path.read_text().splitlines()))
    config = DataConfig(raw=tmp_path, train_source=("t.en",), train_target=("t.de",), vocabulary_size=40)
    manifest = prepare(config, tmp_path / "data").manifest
    profile = profile_of(manifest, {"data": {"train_source": ["t.en"], "train_target": ["t.de"]}})
    assert (profile.source, profile.target, profile.sentences) == ("en", "de", 2)
    assert (profile.tokens or 0) > 5
    assert profile_of({}, {}) == TextProfile()


@pytest.mark.parametrize(("code", "n_sentences"), [("de", 1), ("en", 2)])
def test_prepared_data_counts_sentences_by_the_rules_of_the_source(code: str, n_sentences: int, tmp_path: Path) -> None:
    """In German, an ordinal number ends no sentence."""
    write_parallel_text(tmp_path, "t", 60, seed=1)
    text = "".join(f"Am 3. Oktober {line}.\n" for line in (tmp_path / "t.de").read_text().splitlines())
    (tmp_path / f"dates.{code}").write_text(text)
    config = DataConfig(raw=tmp_path, train_source=(f"dates.{code}",), train_target=("t.en",), vocabulary_size=40)
    assert prepare(config, tmp_path / "data").manifest["usual_lines"]["sentences"] == n_sentences


def test_a_profile_is_read_beside_its_model_or_from_the_run_of_an_earlier_version(tmp_path: Path) -> None:
    assert TextProfile.load(tmp_path) == TextProfile()
    (tmp_path / "run.json").write_text('{"data": {"train_source": [], "train_trees": []}}')
    assert TextProfile.load(tmp_path) == TextProfile("en", "de")
    profile = TextProfile("fr", "en", sentences=3, tokens=60)
    profile.save(tmp_path)
    assert TextProfile.load(tmp_path) == profile
    (tmp_path / "text.json").write_text(json.dumps({"source": "cs", "new": 1}))
    assert TextProfile.load(tmp_path) == TextProfile("cs")
