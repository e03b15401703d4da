"""The program of the page that computes finds what Python finds: pieces, translations, log p, and every number."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from live_pages import computed, nearest_int8, needs_node

import minitransformer.data.tokenizer as tokenizer_module
from autograd.packed_weight import nearest_bfloat16
from minitransformer import ModelConfig, Transformer, Translator
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.report import live as live_module
from minitransformer.extras.report.errors import ReportError
from minitransformer.extras.report.live import model_data
from minitransformer.extras.report.sentence import sentence_numbers
from minitransformer.inference.search import SearchConfig

LINES = ["one two three", "two one", "three <b>two</b> two", "café naïve 12 Ａ", "zwei\u00adx ﬁve"] * 4
SYLLABLES = ["ka", "lo", "mir", "tes", "u", "é", "nd", "stra", "pol", "wi", "zor"]
CONFIG = ModelConfig(n_layers=2, n_decoder_layers=1, d_model=8, d_ff=12, n_heads=2, d_k=4, d_v=3)
VARIATIONS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre norm, biases": {"norm": "pre", "attention_bias": True, "softmax_bias": True, "normalisation": "length"},
    "gelu, learned positions": {"activation": "gelu_tanh", "positions": "learned", "max_positions": 14},
    "start from zero": {"start": "zero", "tied": "none", "positions": "halves", "activation": "swish"},
    "neighbourhood": {"start": "end", "tied": "target", "neighbourhood": 1, "first_position": 1},
}
ODD_LINES = [
    "",
    "  ",
    "one  two",
    " three two one ",
    "▁two▁",
    "x☃☃y\u00ad",
    "12 cafe\u0301 ＡＢ ﬁ",
    "tree 💡 <0x41>",
    "a\u3000b\tc",
]


def made_up_lines(n: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join("".join(random.choice(SYLLABLES, n)) for n in random.integers(1, 5, 6)) for _ in range(n)]


def translator_of(weights: Any = None, **changes: Any) -> Translator:
    """A translator whose random weights are large enough for clear preferences; in float64, for exact searches."""
    tokenizer = Tokenizer.train([(line, line.upper()) for line in LINES], vocabulary_size=60)
    config = dataclasses.replace(CONFIG, vocabulary_size=tokenizer.n_target_words, **changes)
    arrays = {name: 2 * values.astype(np.float32) for name, values in Transformer(config, seed=1).weights().items()}
    model = Transformer(config, dtype="float64", seed=None)
    model.set_weights({name: weights(each) if weights and each.ndim == 2 else each for name, each in arrays.items()})
    return Translator(model, tokenizer)


def assert_same(found: list[dict[str, Any]], translator: Translator, lines: list[str], **settings: Any) -> None:
    tokenizer = translator.tokenizer
    assert [each["ids"] for each in found] == tokenizer.encode_source(lines)
    assert [each["pieces"] for each in found] == [tokenizer.source_pieces(line) for line in lines]
    expected = translator.n_best(lines, SearchConfig(**settings))
    for each, all_best in zip(found, expected, strict=True):
        best = all_best if each["ids"] else []
        assert [one["text"] for one in each["translations"]] == [one.text for one in best]
        for kind, values in (("logP", [b.log_probability for b in best]), ("score", [b.score for b in best])):
            np.testing.assert_allclose([one[kind] for one in each["translations"]], values, rtol=1e-6, atol=1e-6)


@needs_node
@pytest.mark.parametrize("name", VARIATIONS)
def test_translations_are_those_of_the_command(name: str) -> None:
    translator, lines = translator_of(**VARIATIONS[name]), ["one two", "three two one", *ODD_LINES]
    data = model_data(translator, "float32")
    assert_same(computed(data, lines), translator, lines, n_best=4)
    assert_same(computed(data, lines[:3], beam=1, n_best=1, alpha=0), translator, lines[:3], beam=1, alpha=0.0)
    assert_same(computed(data, lines[:2], beam=6, n_best=2), translator, lines[:2], beam=6, n_best=2)


@needs_node
@pytest.mark.parametrize(
    ("kind", "rule", "spells_bytes"),
    [("bpe", "keep", False), ("unigram", "nmt_nfkc", False), ("bpe", "nfc", True), ("unigram", "keep", True)],
)
def test_pieces_are_those_of_sentencepiece(
    kind: Any, rule: Any, spells_bytes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spells_bytes:
        monkeypatch.setattr(tokenizer_module, "LARGE_VOCABULARY", 300)
    size = 320 if spells_bytes else 60
    pairs = [(line, line.upper()) for line in [*made_up_lines(300, seed=1), *LINES]]
    tokenizer = Tokenizer.train(pairs, vocabulary_size=size, kind=kind, normalisation=rule, joint=False)
    config = dataclasses.replace(CONFIG, vocabulary_size=size, source_vocabulary_size=size, tied="none")
    translator = Translator(Transformer(config, dtype="float64", seed=1), tokenizer)
    lines = [*LINES[:5], *ODD_LINES, *made_up_lines(5, seed=2)]
    found = computed(model_data(translator, "float32"), lines, beam=1, n_best=1)
    assert_same(found, translator, lines, beam=1)


@needs_node
def test_rounded_weights_are_the_nearest() -> None:
    for dtype, rounded in (("bfloat16", nearest_bfloat16), ("int8", nearest_int8)):
        data = model_data(translator_of(), dtype)  # type: ignore[arg-type]
        assert_same(computed(data, ["one two"]), translator_of(rounded), ["one two"], n_best=4)


@needs_node
def test_temperature_and_switches_change_the_model_as_their_names_say() -> None:
    translator, lines = translator_of(tied="none"), ["one two three"]
    data, weights = model_data(translator, "float32"), translator.model.weights()

    def changed(config: ModelConfig, **arrays: Any) -> Translator:
        model = Transformer(config, dtype="float64", seed=None)
        model.set_weights({name: (weights | arrays)[name] for name in model.weights()})
        return Translator(model, translator.tokenizer)

    warm = changed(translator.model.config, **{"projection.weight": weights["projection.weight"] / 3})
    assert_same(computed(data, lines, temperature=3), warm, lines, n_best=4)
    output = "encoder.layers.1.self_attention.output.weight"
    headless = weights[output].copy()
    headless[:3] = 0  # the rows of head 0
    without_head = changed(translator.model.config, **{output: headless})
    found = computed(data, lines, off=["encoder.1.self_attention.0"])
    assert_same(found, without_head, lines, n_best=4)
    assert found[0]["translations"] != computed(data, lines)[0]["translations"]
    shallow = changed(dataclasses.replace(translator.model.config, n_layers=1, n_decoder_layers=1))
    assert_same(computed(data, lines, off=["encoder.1"]), shallow, lines, n_best=4)
    assert computed(data, lines, off=["decoder.0", "encoder.0"])[0]["translations"], (
        "nothing is left but the embeddings"
    )


@needs_node
@pytest.mark.parametrize("name", VARIATIONS)
def test_the_numbers_of_a_sentence_are_those_of_the_model(name: str) -> None:
    translator = translator_of(**VARIATIONS[name])
    (found,) = computed(model_data(translator, "float32"), ["one two"], numbers=True)
    expected = sentence_numbers(translator.model, found["ids"], found["target"])
    np.testing.assert_allclose(found["logits"], expected.logits, rtol=1e-5, atol=1e-4)
    arrays = expected.arrays()
    assert found["numbers"].keys() <= arrays.keys()
    assert len(found["numbers"]) == 4 + 2 * 11 + 19 + (2 if translator.model.config.norm == "pre" else 0)
    for key in found["numbers"]:
        array = arrays[key]
        rows = found["numbers"][key]
        if key.endswith((".scores", ".weights")):  # a row for each query and head; later words have no number
            rows = np.array([row + [None] * (array.shape[2] - len(row)) for row in rows], float)
            rows = rows.reshape(array.shape[1], array.shape[0], -1).swapaxes(0, 1)
            empty = -np.inf if key.endswith(".scores") else 0
            rows = np.where(np.isnan(rows), empty, rows)
        np.testing.assert_allclose(np.reshape(rows, array.shape), array, rtol=1e-5, atol=1e-4, err_msg=key)


@needs_node
def test_every_hypothesis_of_a_step_has_a_fate() -> None:
    (found,) = computed(model_data(translator_of(), "float32"), ["one two three"], beam=3, n_best=2)
    steps = found["fates"]
    assert {len(step) for step in steps[:-1]} == {6}, "at the greatest length each hypothesis can only end"
    fates = [fate for step in steps for fate in step]
    assert set(fates) <= {"kept", "cut", "ended", "worse", "left"}
    assert fates.count("ended") >= 2, "the translations"
    assert all(step.count("kept") + step.count("left") <= 3 for step in steps)


def test_models_that_the_page_cannot_compute_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(translator: Translator) -> str:
        with pytest.raises(ReportError, match="^live: the page cannot") as refused:
            model_data(translator, "float32")
        return str(refused.value)

    assert "its activation is gelu; the page has relu, swish, gelu_tanh" in refusal(translator_of(activation="gelu"))
    assert "it appends no end symbol" in refusal(translator_of(source_end=False))
    diverged = translator_of()
    diverged.model.parameters.values[0] = np.nan
    assert "take another checkpoint" in refusal(diverged)
    own = translator_of()
    own.tokenizer = Tokenizer.train([(f">>de<< {a}", a) for a in LINES], vocabulary_size=60, languages=["de"])
    assert "symbols of its own, such as tags of languages" in refusal(own)

    class Louder(Transformer):
        def project(self, decoded: Any) -> Any:
            return super().project(decoded) * 2

    plain = translator_of()
    louder = Louder(dataclasses.replace(plain.model.config, implementation=None), seed=1)
    assert "operation" in refusal(Translator(louder, plain.tokenizer))
    monkeypatch.setattr(live_module, "MOST_PARAMETERS", 1_000)
    assert "parameters, and the page at most 1,000" in refusal(translator_of())
