"""Attention weights, those that the model's own attention uses, and the word alignments that follow from them."""

from typing import Any

import numpy as np
import pytest
from small_sentences import small_tokenizer

from autograd import KeyRanges, ops
from minitransformer import Batch, ModelConfig, Transformer, Translator
from minitransformer.extras.files.stream import pharaoh
from minitransformer.extras.report.merging import without_key
from minitransformer.inference.alignment import word_links, words_of_pieces, words_of_source, words_of_target
from minitransformer.inference.attention import (
    AttentionWeights,
    attention_weights,
    source_attention_weights,
    word_starts,
)
from minitransformer.inference.search import SearchConfig
from minitransformer.model.layers import MultiHeadAttention

SIZES = {"vocabulary_size": 30, "n_layers": 2, "d_model": 12, "d_ff": 20, "n_heads": 3, "d_k": 4, "d_v": 5}
CONFIGS = {
    "post-norm": ModelConfig(**SIZES),
    "pre-norm": ModelConfig(**SIZES, norm="pre"),
    "restricted": ModelConfig(**SIZES, neighbourhood=2),
    "with dropout of weights": ModelConfig(**SIZES, p_drop_attention=0.5),
}
SOURCE, TARGET = [4, 9, 9, 7, 11, 3, 5], [8, 6, 12, 3]


def model_of(name: str) -> Transformer:
    model = Transformer(CONFIGS[name], seed=3, dtype="float64")
    model.parameters.values[...] *= 3  # so that some keys matter more than others
    return model


def kinds_of(weights: AttentionWeights) -> list[Any]:
    return [weights.encoder, weights.decoder, weights.encoder_decoder]


@pytest.mark.parametrize("name", CONFIGS)
def test_weights_are_the_softmax_of_queries_and_keys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, computed = model_of(name), []

    def listening(q: Any, k: Any, v: Any, *, mask: KeyRanges, **dropout: Any) -> Any:
        scores = np.einsum("thk,shk->hts", q.value, k.value) / np.sqrt(q.shape[2])
        exponentials = np.where(mask.matrix(), np.exp(scores), 0)
        computed.append(exponentials / exponentials.sum(-1, keepdims=True))
        return attention(q, k, v, mask=mask, **dropout)

    attention = ops.attention
    with monkeypatch.context() as patch:
        patch.setattr(ops, "attention", listening)
        model.log_probabilities(Batch.from_token_ids([SOURCE], [TARGET]))
    weights = attention_weights(model, SOURCE, TARGET)
    decoder, encoder_decoder = computed[2::2], computed[3::2]
    for got, expected in zip(kinds_of(weights), (computed[:2], decoder, encoder_decoder), strict=True):
        np.testing.assert_allclose(got, np.stack(expected), atol=1e-14)
        np.testing.assert_allclose(got.sum(-1), 1, atol=1e-14)


def test_recording_leaves_the_model_as_it_was_and_gives_layers_heads_queries_keys_or_one_layer() -> None:
    model, batch = model_of("post-norm"), Batch.from_token_ids([SOURCE], [TARGET])
    before = model.log_probabilities(batch)
    weights = attention_weights(model, SOURCE, TARGET)
    assert [w.shape for w in kinds_of(weights)] == [(2, 3, 8, 8), (2, 3, 5, 5), (2, 3, 5, 8)]
    assert {type(layer.self_attention) for layer in model.encoder.layers} == {MultiHeadAttention}
    np.testing.assert_array_equal(model.log_probabilities(batch), before)
    for layer, expected in enumerate(weights.encoder_decoder):
        np.testing.assert_array_equal(source_attention_weights(model, SOURCE, TARGET, layer), expected)


def test_without_a_key_the_others_share_its_weight() -> None:
    weights = np.array([[[0.25, 0.25, 0.5], [0.0, 0.0, 1.0]]])
    np.testing.assert_array_equal(without_key(weights, 2), [[[0.5, 0.5], [0, 0]]])
    np.testing.assert_array_equal(without_key(weights, 0), [[[1 / 3, 2 / 3], [0, 1]]])


N = 8  # positions, and features: one for each position


def looking(order: dict[int, list[int]], n_layers: int = 1, sharpness: float = 30.0) -> Transformer:
    """A model whose decoder looks from step i to source token order[layer][i]; in other layers it looks evenly.

    All weights are zero, so a token is its position, one of N unit vectors, through all layers.
    """
    sizes = {"vocabulary_size": 30, "n_layers": n_layers, "d_model": N, "d_ff": 4, "n_heads": 1, "d_k": N, "d_v": N}
    config = ModelConfig.from_mapping(sizes | {"positions": "learned", "max_positions": N})
    model = Transformer(config, seed=None, dtype="float64")
    weights = model.weights()
    for name in weights:
        if name.endswith("norm.gain"):
            weights[name][...] = 1
    for side in ("source", "target"):
        weights[f"{side}_positions.weight"][...] = np.eye(N)
    for layer, steps in order.items():
        attention = f"decoder.layers.{layer}.source_attention"
        weights[f"{attention}.key.weight"][...] = np.eye(N)
        weights[f"{attention}.query.weight"][range(len(steps)), steps] = sharpness
    model.set_weights(weights)
    return model


def links(models: list[Transformer], source_words: list[int], target_words: list[int]) -> Any:
    source, target = (np.stack([np.arange(len(words)), words]) for words in (source_words, target_words))
    return word_links(models, [3, 4, 5, 6], [7, 8, 9], source, target)


def test_each_target_word_is_linked_to_the_word_that_gets_most_weight() -> None:
    model = looking({0: [2, 0, 3]})
    assert links([model], [0, 1, 2, 3], [0, 1, 2]) == ((2, 0), (0, 1), (3, 2))
    assert links([model], [0, 0, 1, 2], [0, 1, 2]) == ((1, 0), (0, 1), (2, 2))
    assert links([looking({0: [1, 1, 0]})], [0, 1, 2, 3], [0, 0, 1]) == ((1, 0), (0, 1))


def test_the_weights_of_a_words_pieces_are_added() -> None:
    """One piece of the target looks at token 0 and two at token 1; three pieces of the source outweigh one."""
    assert links([looking({0: [0, 1, 1]})], [0, 1, 2, 3], [0, 0, 0]) == ((1, 0),)
    weak = looking({0: [1, 1, 1]}, sharpness=0.2)
    assert links([weak], [0, 1, 2, 3], [0, 0, 0]) == ((1, 0),)
    assert links([weak], [0, 1, 0, 0], [0, 0, 0]) == ((0, 0),)
    assert links([looking({0: [4, 4, 4]})], [0, 1, 2, 3], [0, 1, 2])[0][0] in range(4)  # not the end of the source


@pytest.mark.parametrize(("n_layers", "chosen"), [(1, 0), (2, 1), (3, 2), (4, 2), (6, 4)])
def test_the_last_layer_of_few_and_the_last_but_one_of_many_aligns(n_layers: int, chosen: int) -> None:
    order = {layer: [3, 3, 3] for layer in range(n_layers)} | {chosen: [2, 0, 1]}
    assert links([looking(order, n_layers)], [0, 1, 2, 3], [0, 1, 2]) == ((2, 0), (0, 1), (1, 2))


def test_the_models_of_an_ensemble_are_averaged() -> None:
    sharp, even, other = looking({0: [2, 0, 3]}), looking({}), looking({0: [1, 1, 1]}, sharpness=1.0)
    for models in ([sharp, even], [other, sharp], [even, other, sharp]):
        assert links(models, [0, 1, 2, 3], [0, 1, 2]) == ((2, 0), (0, 1), (3, 2))


def test_the_format_is_pharaohs_and_nothing_is_aligned_with_nothing() -> None:
    assert pharaoh(((0, 0), (2, 1), (10, 2))) == "0-0 2-1 10-2"
    none = np.empty((2, 0), np.int64)
    assert word_links([looking({})], [], [7, 8, 9], none, none) == ()
    assert word_links([looking({})], [3, 4, 5, 6], [], none, none) == ()
    assert pharaoh(()) == ""


def pieces_of_words(texts: list[str], numbers: Any) -> list[str]:
    words = [""] * (1 + max(numbers, default=-1))
    for text, number in zip(texts, numbers, strict=True):
        words[number] += text
    return [word.replace("▁", "") for word in words]


@pytest.mark.parametrize(
    "line", ["a dog sees 12 red houses", "  dogs   see\u00a0reds ", "a\u3000do\u200bg see", "it\u00b4s a do", "½ a dog"]
)
@pytest.mark.parametrize("rule", ["keep", "nmt_nfkc"])
def test_pieces_of_a_source_line_belong_to_its_words_as_blanks_separate_them(line: str, rule: Any) -> None:
    """Also where the tokenizer's normalisation adds blanks (U+200B, U+00B4) or writes other signs (½)."""
    tokenizer = small_tokenizer(normalisation=rule)
    numbers = words_of_source(tokenizer, line)
    found = pieces_of_words(tokenizer.source_pieces(line), numbers)
    expected = [tokenizer.source_pieces(word) for word in filter(None, line.split(" "))]
    assert found == ["".join(pieces).replace("▁", "") for pieces in expected]


def test_pieces_across_blanks_begin_words_at_marks(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = translator.tokenizer.encode_source
    monkeypatch.setattr(
        translator.tokenizer, "encode_source", lambda lines: encode(lines) if len(lines) == 1 else [[3]] * len(lines)
    )
    line = "a dog sees"
    found = pieces_of_words(translator.tokenizer.source_pieces(line), words_of_source(translator.tokenizer, line))
    assert found == line.split()


@pytest.mark.parametrize(("given", "text", "words"), [
    ("", "ein Hund sieht 12 rote Häuser", ["ein", "Hund", "sieht", "12", "rote", "Häuser"]),
    ("", "rote", ["rote"]), ("", "12", ["12"]),
    ("漢字 ein Hun", "Hund rote", ["", "ein", "Hund", "rote"]),  # no sign of the first word is known
])  # fmt: skip
def test_pieces_of_a_translation_belong_to_its_words_as_those_of_its_beginning_are_given(
    translator: Translator, given: str, text: str, words: list[str]
) -> None:
    prefix = translator.prefixer(given)
    ids = [*prefix.ids, *translator.tokenizer.encode_target([text])[0]]
    numbers = words_of_target(translator.prefixer, ids, prefix)
    assert pieces_of_words([translator.prefixer.pieces[i] for i in ids], numbers) == words


def test_in_scripts_without_blanks_characters_are_words() -> None:
    pieces = ["▁红的", "车", "。", "▁BMW", "▁", "<0xE8>", "<0xBD>", "<0xA6>", "กี่"]
    found = words_of_pieces(np.array([0, 0, 0, 1, 2, 2, 2, 2, 2]), pieces, ["红的车。", "BMW", "车กี่"])
    assert found.T.tolist() == [[0, 0], [0, 1], [1, 2], [2, 2], [3, 3], *([i, 4] for i in (4, 5, 6, 7)), [8, 5]]


def test_alignments_come_with_translations_if_they_are_asked_for(translator: Translator) -> None:
    lines, search = ["a dog sees 3 red houses", "", "dog"], SearchConfig(beam=3, n_best=2)
    plain, aligned = translator.n_best(lines, search), translator.n_best(lines, search, aligned=[True] * 3)
    assert [[t.text for t in best] for best in aligned] == [[t.text for t in best] for best in plain]
    assert {t.alignment for best in plain for t in best} == {()}
    assert aligned[1][0].alignment == ()
    for line, best in zip(lines, aligned, strict=True):
        for translation in best:
            assert [target for _, target in translation.alignment] == list(range(len(translation.text.split())))
            assert all(source < len(line.split()) for source, _ in translation.alignment)


def test_words_begin_at_blanks_and_at_pieces_of_scripts_without_blanks() -> None:
    assert word_starts(["▁红的", "车", "。", "▁", "我", "BM", "W", "กี่", "▁a", "b"]) == [0, 1, 3, 5, 7, 8]
    assert word_starts(["▁h", "ous", "es", "▁", ",", "▁▁", "▁a"]) == [0, 3, 5, 6]
    assert word_starts(["no", "mark", "▁a"]) == [0, 2]
    assert word_starts(["▁a", "▁", "▁b", "c"]) == [0, 1]
    assert word_starts([]) == []
