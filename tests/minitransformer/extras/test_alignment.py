"""Word alignments of models whose attention is set by hand."""

from typing import Any

import numpy as np
import pytest
from small_sentences import small_tokenizer

from minitransformer import ModelConfig, Transformer, Translator
from minitransformer.extras.alignment import align_words, word_links, words_of_pieces, words_of_source, words_of_target
from minitransformer.extras.attention import attention_weights, source_attention_weights, word_starts
from minitransformer.extras.files.stream import pharaoh
from minitransformer.inference.prefix import NO_PREFIX
from minitransformer.inference.search import SearchConfig

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


SOURCE, TARGET = [3, 4, 5, 6], [7, 8, 9]


def links(models: list[Transformer], source_words: list[int], target_words: list[int]) -> Any:
    source, target = (np.stack([np.arange(len(words)), words]) for words in (source_words, target_words))
    return word_links(models, SOURCE, TARGET, source, target)


def test_one_layers_weights_are_those_of_all() -> None:
    model = looking({0: [2, 0, 3], 1: [1, 1, 1]}, n_layers=2)
    every = attention_weights(model, SOURCE, TARGET).encoder_decoder
    for layer in (0, 1):
        np.testing.assert_array_equal(source_attention_weights(model, SOURCE, TARGET, layer), every[layer])


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
    assert word_links([looking({})], [], TARGET, none, none) == ()
    assert word_links([looking({})], SOURCE, [], none, none) == ()
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


def test_pieces_of_a_translation_belong_to_its_words(translator: Translator) -> None:
    for text in ("ein Hund sieht 12 rote Häuser", "rote", "12"):
        ids = translator.tokenizer.encode_target([text])[0]
        numbers = words_of_target(translator.prefixer, ids, NO_PREFIX)
        assert pieces_of_words([translator.prefixer.pieces[i] for i in ids], numbers) == text.split()


def test_words_of_a_beginning_count_as_they_are_given(translator: Translator) -> None:
    """No sign of the first word is known, so the ids begin with the second one."""
    prefix = translator.prefixer("漢字 ein Hun")
    ids = [*prefix.ids, *translator.tokenizer.encode_target(["Hund rote"])[0]]
    assert translator.tokenizer.decode_target([ids]) == ["ein Hund rote"]
    numbers = words_of_target(translator.prefixer, ids, prefix)
    found = pieces_of_words([translator.prefixer.pieces[i] for i in ids], numbers)
    assert found == ["", "ein", "Hund", "rote"]


def test_in_scripts_without_blanks_characters_are_words() -> None:
    pieces = ["▁红的", "车", "。", "▁BMW", "▁", "<0xE8>", "<0xBD>", "<0xA6>", "กี่"]
    found = words_of_pieces(np.array([0, 0, 0, 1, 2, 2, 2, 2, 2]), pieces, ["红的车。", "BMW", "车กี่"])
    assert found.T.tolist() == [[0, 0], [0, 1], [1, 2], [2, 2], [3, 3], *([i, 4] for i in (4, 5, 6, 7)), [8, 5]]


def test_alignments_come_with_translations_if_they_are_asked_for(translator: Translator) -> None:
    lines, search = ["a dog sees 3 red houses", "", "dog"], SearchConfig(beam=3, n_best=2)
    plain, aligned = translator.n_best(lines, search), translator.n_best(lines, search, align=align_words)
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
