"""Characters: every script survives a tokenizer, separators become blanks, invisible characters go."""

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripts import LINES, SCRIPTS, SIZE, tokenizer_of

from minitransformer.config import TextNormalisation
from minitransformer.data.normalisation import LostCharacters
from minitransformer.data.tokenizer import Tokenizer

RULES: tuple[TextNormalisation, ...] = ("keep", "nfc", "nmt_nfkc")


def written(tokenizer: Tokenizer, line: str) -> str:
    """What a model writes that knows the pieces of the line by heart."""
    return tokenizer.decode_target(tokenizer.encode_target([line]))[0]


@pytest.mark.parametrize("script", SCRIPTS)
def test_text_of_every_script_is_written_byte_for_byte_or_in_normalisation_form_c(script: str) -> None:
    for kind in ("bpe", "unigram"):
        assert written(tokenizer_of("keep", kind), SCRIPTS[script]) == SCRIPTS[script]
    assert written(tokenizer_of("nfc"), SCRIPTS[script]) == unicodedata.normalize("NFC", SCRIPTS[script])


def test_nfc_joins_what_unicode_has_joined() -> None:
    normalize = tokenizer_of("nfc").source.normalize
    joined = [c for c in map(chr, range(0x30000)) if unicodedata.normalize("NFD", c) != c]
    for form in ("NFD", "NFC"):
        text = [f"x{unicodedata.normalize(form, character)}" for character in joined]
        assert normalize(text) == [f"▁{unicodedata.normalize('NFC', line)}" for line in text]


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_of_a_tokenizer_is_known_and_its_model_is_a_function_of_the_text(rule: TextNormalisation) -> None:
    first = tokenizer_of(rule)
    again = Tokenizer.train([(line, line) for line in LINES], vocabulary_size=SIZE, normalisation=rule)
    assert (first.normalisation, again.models) == (rule, first.models)


def test_the_rule_of_sentencepiece_changes_letters() -> None:
    assert written(tokenizer_of("nmt_nfkc"), "３％ 2⁵ …") == "3% 25 ..."


@pytest.mark.parametrize("rule", ["keep", "nfc"])
def test_control_characters_that_separate_words_are_blanks(rule: TextNormalisation) -> None:
    for separator in "\t\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029":
        line = f"the{separator}fox{separator}{separator} box{separator}"
        ids = tokenizer_of(rule).encode_source([line, "the fox box"])
        assert ids[0] == ids[1], ascii(separator)


def test_invisible_characters_that_the_text_does_not_need_are_removed() -> None:
    tokenizer = Tokenizer.train([("the fox", "box")] * 20, vocabulary_size=14)
    for invisible in "\xad\u200b\u2060\ufeff\ufffd\u200e\u034f\x01\x7f\ufe00\U000e0020\U000e0100":
        found = tokenizer.encode_source([f"{invisible}the {invisible} f{invisible}ox{invisible}", "the fox"])
        assert found[0] == found[1], ascii(invisible)
        assert 0 not in found[0]


@pytest.mark.parametrize("n_lines", [998, 1_000])
def test_an_invisible_character_is_kept_if_the_text_needs_it(n_lines: int) -> None:
    """One in a thousand lines is stray; joiners of a script are in far more of its lines."""
    pairs = [("mi\u200ckonam", "box")] + [("mikonam", "box")] * (n_lines // 2 - 1)
    tokenizer = Tokenizer.train(pairs, vocabulary_size=13)
    assert written(tokenizer, "mi\u200ckonam") == ("mi\u200ckonam" if n_lines < 1_000 else "mikonam")


@settings(max_examples=50, deadline=None)
@given(line=st.text(st.sampled_from("abc é\u0301，\u00a0\u3000\u200c▁\x85\xadx"), max_size=20))
@example("\u00ad")
def test_what_a_line_loses_is_named(line: str) -> None:
    tokenizer, lost = tokenizer_of("keep"), LostCharacters()
    lost.compare([line], [written(tokenizer, line)], str)
    gone = set(line) & set("▁\xad")
    assert lost.found.count == bool(gone)
    assert all((c if c == "▁" else "U+00AD") in lost.description for c in gone)


def test_lost_characters_are_counted_by_lines_and_located() -> None:
    lost = LostCharacters()
    lost.compare(["a b", "，a，", "é"], ["a b", ",a,", "é"], lambda i: f"train.en:{i + 1}")
    later = LostCharacters()
    later.compare(["，\xad", "a  b "], [",", "a b"], lambda i: f"train.en:{i + 4}")
    lost.extend(later)
    assert lost.description == (
        "target lines that no model can write, because their pieces lose characters: 2 of 5 (train.en:2, train.en:4);"
        " lost: ， 2, U+00AD 1"
    )
