"""Tests of what pages show of a pair, also with pieces merged into words."""

import dataclasses
from typing import Any, get_args

import numpy as np
import pytest
from attended import pair_of

from minitransformer import ModelConfig, Transformer, Translator
from minitransformer.config import TokenizerType
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.parsing.linear import linearised, tree_of
from minitransformer.extras.report.attended import Kind, attended_pair, shown_pieces
from minitransformer.extras.report.errors import ReportError
from minitransformer.extras.report.merging import merge_words
from minitransformer.inference.attention import attention_weights
from minitransformer.inference.search import SearchConfig

KINDS: tuple[Kind, ...] = get_args(Kind)
WORDS = ["one two three", "two one", "three two two", "one"] * 5
CONFIG = ModelConfig(n_layers=2, d_model=8, d_ff=8, n_heads=2, d_k=4, d_v=4)


@pytest.fixture(scope="module")
def translator() -> Translator:
    tokenizer = Tokenizer.train([(line, line.upper()) for line in WORDS], vocabulary_size=24)
    config = dataclasses.replace(CONFIG, vocabulary_size=tokenizer.n_target_words)
    return Translator(Transformer(config, seed=1), tokenizer)


def test_the_target_is_the_models_own_translation(translator: Translator) -> None:
    sentence, search = "one two", SearchConfig(beam=2, alpha=1.0, max_extra_tokens=4)
    pair = attended_pair(translator, sentence, search=search)
    assert pair.translation == translator.n_best([sentence], search)[0][0].text
    assert pair.source[:-1] == shown_pieces(translator.tokenizer.source_pieces(sentence))
    given = attended_pair(translator, sentence, sentence)
    assert given.inputs[1:] == pair.source[:-1]
    assert (pair.source[-1], pair.inputs[0], pair.outputs[-1]) == ("<EOS>", "<BOS>", "<EOS>")
    assert pair.inputs[1:] == pair.outputs[:-1]


@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_the_target_of_a_parser_is_a_tree_over_the_words(kind: TokenizerType) -> None:
    """Whatever the model has learnt, which is nothing here: each word has its leaf, one with another space, too."""
    pairs = [(line, "(S (NP XX )NP XX )S") for line in WORDS]
    size = {"bpe": 14, "word": 18}[kind]
    tokenizer = Tokenizer.train(pairs, vocabulary_size=size, kind=kind, joint=False, symbols=True)
    config = dataclasses.replace(
        CONFIG, vocabulary_size=tokenizer.n_target_words, source_vocabulary_size=tokenizer.n_source_words, tied="none"
    )
    model = Transformer(config, seed=1)
    pair = attended_pair(Translator(model, tokenizer), "one two\u00a0two seven", search=SearchConfig(beam=3))
    assert [symbol for symbol in pair.outputs if symbol == "XX"] == ["XX"] * 3
    assert linearised(tree_of(pair.outputs[:-1], ["one", "two\u00a0two", "seven"])) == pair.outputs[:-1]


def varied(translator: Translator, **changes: Any) -> Translator:
    config = dataclasses.replace(translator.model.config, **changes)
    return Translator(Transformer(config, seed=1), translator.tokenizer)


def test_a_model_that_diverged_is_refused(translator: Translator) -> None:
    model = Transformer(translator.model.config, seed=1)
    model.encoder.layers[0].self_attention.query.weight.value[...] = np.nan
    with pytest.raises(ReportError, match="weights are not finite numbers; the model has diverged"):
        attended_pair(Translator(model, translator.tokenizer), "one two", "TWO")


def test_a_given_target_is_read_and_the_weights_are_those_of_its_tokens(translator: Translator) -> None:
    pair = attended_pair(translator, "one two", "TWO ONE")
    source, target = (translator.tokenizer.source.encode(text) for text in ("one two", "TWO ONE"))
    expected = attention_weights(translator.model, source, target)
    for kind in KINDS:
        queries, keys, got = pair.of_kind(kind)
        np.testing.assert_array_equal(got, getattr(expected, kind.replace("-", "_")))
        assert got.shape[2:] == (len(queries), len(keys))
    assert "".join(pair.outputs[:-1]).replace("·", "").replace("▁", "") == "TWOONE"


def test_words_begin_at_the_texts_blanks_and_unknown_characters_are_shown_as_written(translator: Translator) -> None:
    pair = merge_words(attended_pair(translator, "one three", "TWO ONE THREE"))
    assert (pair.source, pair.outputs) == (["one", "three", "<EOS>"], ["TWO", "ONE", "THREE", "<EOS>"])
    assert "<§§>" in "".join(attended_pair(translator, "one <§§>", "ONE").source).replace("·", "")
    pieces = ["▁h", "ous", "es", "▁", ",", "▁▁", "▁<script>"]
    assert shown_pieces(pieces) == ["h", "·ous", "·es", "▁", "·,", "▁", "<script>"]


def test_a_decoder_of_another_depth_has_its_own_layers(translator: Translator) -> None:
    pair = attended_pair(varied(translator, n_layers=1, n_decoder_layers=3), "one", "ONE")
    assert [len(pair.of_kind(kind)[2]) for kind in KINDS] == [1, 3, 3]
    assert pair.origin.startswith("1 + 3 layers")


LEARNED = {"positions": "learned", "max_positions": 9}


@pytest.mark.parametrize(("changes", "sentence", "target", "problem"), [
    ({}, "", None, "the sentence is empty"), ({}, " ", None, "is empty"), ({}, "one", "", "the target is empty"),
    ({}, "one " * 300, None, "the sentence has [0-9,]+ tokens; give one of 1 to 256"),
    ({}, "one", "ONE " * 300, "the target has"), (LEARNED, "one", "ONE" * 5, "the target has .* 1 to 8 tokens"),
    (LEARNED, "one two three one two three", None, "the sentence has .* 1 to 8 tokens"),
    ({"source_end": False}, "one two", "TWO", "appends no end symbol"),
])  # fmt: skip
def test_nothing_and_too_much_and_sources_without_an_end_symbol_are_refused(
    translator: Translator, changes: dict[str, Any], sentence: str, target: str | None, problem: str
) -> None:
    translator = varied(translator, **changes)
    with pytest.raises(ReportError, match=problem):
        attended_pair(translator, sentence, target)


PAIR = pair_of(["the", "h", "·ous", "·es"], ["H", "·äuser", ",", "·a"])


def test_the_pieces_of_a_word_are_one_token_and_marks_remain() -> None:
    merged = merge_words(PAIR)
    assert merged.source == ["the", "houses", "<EOS>"]
    assert merged.inputs == ["<BOS>", "Häuser", ",a"]
    assert merged.outputs == ["Häuser", ",a", "<EOS>"]
    assert (merged.sentence, merged.translation) == (PAIR.sentence, PAIR.translation)


def test_attended_pieces_are_added_and_attending_pieces_averaged() -> None:
    merged, pieces = merge_words(PAIR).weights, PAIR.weights
    source = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])  # the, h, ·ous, ·es, <EOS>
    outputs = np.array([[0.5, 0.5, 0, 0, 0], [0, 0, 0.5, 0.5, 0], [0, 0, 0, 0, 1]])  # H, ·äuser, ",", ·a, <EOS>
    np.testing.assert_allclose(merged.encoder_decoder[1, 2], outputs @ pieces.encoder_decoder[1, 2] @ source)
    inputs = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])  # <BOS>, H, ·äuser, ",", ·a
    np.testing.assert_allclose(merged.decoder[0, 1], (inputs / inputs.sum(0)).T @ pieces.decoder[0, 1] @ inputs)


def test_words_of_one_piece_stay_as_they_are_and_merged_words_are_not_merged_again() -> None:
    for pair in (pair_of(["a", "b"], ["c"]), merge_words(PAIR)):
        merged = merge_words(pair)
        assert (merged.source, merged.outputs) == (pair.source, pair.outputs)
        np.testing.assert_array_equal(merged.weights.encoder, pair.weights.encoder)
        np.testing.assert_array_equal(merged.weights.decoder, pair.weights.decoder)


def test_a_dot_of_the_text_and_a_blank_of_its_own_are_not_mistaken_for_marks() -> None:
    """A word that is a dot begins a word; sentencepiece's mark may be a piece of its own."""
    pair = pair_of(["·", "a", "▁", "··"], ["▁"])  # pieces ▁·  ▁a  ▁ ·
    merged = merge_words(dataclasses.replace(pair, source_starts=[0, 1, 2, 4], target_starts=[0]))
    assert merged.source == ["·", "a", "·", "<EOS>"]
    assert merged.outputs == ["▁", "<EOS>"]
