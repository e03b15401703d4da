"""The program of the page that computes finds what Python finds: pieces, translations, log p, and every number."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from live_pages import computed, nearest_int8, needs_node
from waiting import wait_until

import minitransformer.data.tokenizer as tokenizer_module
from autograd.packed_weight import nearest_bfloat16
from minitransformer import Batch, ModelConfig, Transformer, Translator
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.report import live as live_module
from minitransformer.extras.report.attended import END_MARK, shown_pieces
from minitransformer.extras.report.errors import ReportError
from minitransformer.extras.report.live import live_page, model_data
from minitransformer.extras.report.sentence import sentence_numbers
from minitransformer.extras.report.sentence_page import blocks_of
from minitransformer.inference.search import SearchConfig
from minitransformer.model.symbols import END
from tests.minitransformer.extras.report.test_page import assert_loads_nothing

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
    config = SearchConfig(**settings).for_model(translator.model.config)
    for each, (best,) in zip(found, translator.n_best(lines, SearchConfig(**settings)), strict=True):
        if not each["ids"]:
            assert each["translations"] == []
            continue
        assert each["translations"][0]["text"] == best.text
        for one in each["translations"]:  # its log p is that of a forward pass
            pair = each["ids"][: translator.longest_source], one["ids"]
            rows = translator.model.log_probabilities(Batch.from_token_ids([pair[0]], [pair[1]]))
            log_p = rows[np.arange(len(rows)), [*pair[1], END]].sum()
            assert one["logP"] == pytest.approx(log_p, rel=1e-6, abs=1e-6)
            assert one["score"] == pytest.approx(log_p / config.length_penalty(len(rows)), rel=1e-6, abs=1e-6)
        assert each["translations"][0]["logP"] == pytest.approx(best.log_probability, rel=1e-6, abs=1e-6)


@needs_node
@pytest.mark.parametrize("name", VARIATIONS)
def test_translations_are_those_of_the_command(name: str) -> None:
    translator, lines = translator_of(**VARIATIONS[name]), ["one two", "three two one", *ODD_LINES]
    data = model_data(translator, "float32")
    assert_same(computed(data, lines), translator, lines)
    assert_same(computed(data, lines[:3], beam=1, alpha=0), translator, lines[:3], beam=1, alpha=0.0)
    assert_same(computed(data, lines[:2], beam=6), translator, lines[:2], beam=6)


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
    found = computed(model_data(translator, "float32"), lines, beam=1)
    assert_same(found, translator, lines, beam=1)


@needs_node
def test_rounded_weights_are_the_nearest() -> None:
    for dtype, rounded in (("bfloat16", nearest_bfloat16), ("int8", nearest_int8)):
        data = model_data(translator_of(), dtype)  # type: ignore[arg-type]
        assert_same(computed(data, ["one two"]), translator_of(rounded), ["one two"])


@needs_node
def test_temperature_and_switches_change_the_model_as_their_names_say() -> None:
    translator, lines = translator_of(tied="none"), ["one two three"]
    data, weights = model_data(translator, "float32"), translator.model.weights()

    def changed(config: ModelConfig, **arrays: Any) -> Translator:
        model = Transformer(config, dtype="float64", seed=None)
        model.set_weights({name: (weights | arrays)[name] for name in model.weights()})
        return Translator(model, translator.tokenizer)

    warm = changed(translator.model.config, **{"projection.weight": weights["projection.weight"] / 3})
    assert_same(computed(data, lines, temperature=3), warm, lines)
    output = "encoder.layers.1.self_attention.output.weight"
    headless = weights[output].copy()
    headless[:3] = 0  # the rows of head 0
    without_head = changed(translator.model.config, **{output: headless})
    found = computed(data, lines, off=["encoder.1.self_attention.0"])
    assert_same(found, without_head, lines)
    assert found[0]["translations"] != computed(data, lines)[0]["translations"]
    shallow = changed(dataclasses.replace(translator.model.config, n_layers=1, n_decoder_layers=1))
    assert_same(computed(data, lines, off=["encoder.1"]), shallow, lines)
    assert computed(data, lines, off=["decoder.0", "encoder.0"])[0]["translations"], (
        "nothing is left but the embeddings"
    )


@needs_node
@pytest.mark.parametrize("name", VARIATIONS)
def test_the_numbers_of_a_sentence_are_those_of_the_model(name: str) -> None:
    translator = translator_of(**VARIATIONS[name])
    (found,) = computed(model_data(translator, "float32"), ["one two"], numbers=True)
    expected = sentence_numbers(translator.model, found["ids"], found["target"])
    best = [row[0] for row in found["places"]]
    assert [one["piece"] for one in best] == [shown_token(translator, int(row.argmax())) for row in expected.logits]
    np.testing.assert_allclose([one["logit"] for one in best], expected.logits.max(1), rtol=1e-5, atol=1e-4)
    arrays, shown = expected.arrays(), found["numbers"]
    named = {figure["array"] for block in blocks_of(translator.model.config) for step in block["steps"]
             for figure in step["figures"]}  # fmt: skip
    assert shown.keys() == named <= arrays.keys()
    for key in shown:
        numbers = np.array(shown[key]["values"], float).reshape(shown[key]["shape"])  # −∞ is None in JSON, here NaN
        numbers[np.isnan(numbers)] = -np.inf
        np.testing.assert_allclose(numbers, arrays[key], rtol=1e-5, atol=1e-4, err_msg=key)
    weights = np.concatenate([arrays[f"encoder.layers.{i}.self_attention.weights"].ravel() for i in range(2)])
    np.testing.assert_allclose(list(found["attention"]["encoder"]["weights"].values()), weights, rtol=1e-5, atol=1e-4)


def shown_token(translator: Translator, token: int) -> str:
    return END_MARK if token == END else shown_pieces(["x", translator.tokenizer.target.id_to_piece(token)])[1]


@needs_node
def test_every_hypothesis_of_a_step_has_a_fate() -> None:
    (found,) = computed(model_data(translator_of(), "float32"), ["one two three"], beam=3)
    steps = found["fates"]
    assert {len(step) for step in steps[:-1]} == {6}, "at the greatest length each hypothesis can only end"
    assert {fate for step in steps for fate in step} <= {"kept", "cut", "ended", "worse", "left"}
    assert sum(step.count("ended") for step in steps) == 1, "the best translation"
    assert all(step.count("kept") == 3 for step in steps[:-1])


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


ODD_TEXT = "</script><img src=x onerror=alert(1)><b>two</b> one"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("pages") / "live.html"
    path.write_text(live_page(translator_of(), ["one two", ODD_TEXT], "int8"), encoding="utf-8")
    return {"live": path}


TRANSLATION = "document.getElementById('translation').textContent"


def typed(browser: Browser, text: str) -> str:
    """Type a sentence; return its translation."""
    browser.evaluate(
        f"(byId('sentence').value = {json.dumps(text)}, byId('sentence').dispatchEvent(new Event('input')))"
    )
    wait_until(lambda: browser.evaluate("timer === null"))
    return str(browser.evaluate(TRANSLATION))


def test_the_page_translates_what_is_typed_and_text_is_never_markup(opened: Any) -> None:
    browser, translator = opened("live"), translator_of(nearest_int8)
    tags = "[...document.querySelectorAll('b, img, script')].map(({tagName}) => tagName)"
    assert browser.evaluate(TRANSLATION) == translator.n_best(["one two"], SearchConfig())[0][0].text
    for tab in range(3):
        browser.evaluate(f"document.querySelectorAll('#tabs input')[{tab}].click()")
        assert typed(browser, ODD_TEXT) == translator.n_best([ODD_TEXT], SearchConfig())[0][0].text
        found = browser.evaluate(tags)
        assert found.count("SCRIPT") == 2
        assert "IMG" not in found
        assert "B" not in found or tab == 2  # titles of figures
    assert "The vocabulary lacks" in browser.evaluate("byId('found').textContent")
    assert typed(browser, " ") == ""
    refused = "fetch('data:,x').then(() => 'fetched', () => 'refused')"
    assert browser.evaluate(refused) == "refused"
    browser.events.clear()  # its refusal


def test_the_page_loads_nothing(pages: dict[str, Path]) -> None:
    assert_loads_nothing(pages["live"].read_text("utf-8"))


@pytest.mark.parametrize("width", [390, 1_280])
def test_every_view_fits_the_window(opened: Any, width: int) -> None:
    browser = opened("live")
    browser.show(width=width)
    for name in ("search", "attention", "numbers"):
        browser.evaluate(f"document.querySelector('#tabs input[value={name}]').click()")
        assert browser.evaluate(f"byId('{name}').checkVisibility()")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
    named = "({labels, ariaLabel, textContent}) => labels?.length || ariaLabel || textContent"
    assert browser.evaluate(f"[...document.querySelectorAll('button, input, select')].every({named})")
    identical = "(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(({id}) => id))"
    assert browser.evaluate(identical) == 0


def test_switches_and_settings_change_the_translation_at_once(opened: Any) -> None:
    browser = opened("live")
    score = "document.querySelector('#best tr').textContent"
    before = browser.evaluate(score)
    browser.evaluate("document.querySelector('#switches button').click()")
    assert browser.evaluate(score) != before
    assert browser.evaluate("document.querySelector('#switches button').ariaPressed") == "false"
    browser.evaluate("document.querySelector('#switches button').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate("document.activeElement.ariaLabel") == "head 1 of self-attention, encoder 1"
    assert browser.evaluate("document.querySelectorAll('#switches [tabindex=\"0\"]').length") == 1
    browser.evaluate("byId('reset').click()")
    assert browser.evaluate(score) == before
    for name, value in (("alpha", 0), ("temperature", 2), ("beam", 1)):
        browser.evaluate(f"(byId('{name}').value = {value}, byId('{name}').dispatchEvent(new Event('input')))")
        wait_until(lambda: browser.evaluate("timer === null"))
        assert browser.evaluate(score) != before
        before = browser.evaluate(score)
    assert browser.evaluate("state.found.steps.every((step) => step.length === 1)"), "greedy"


def test_a_long_translation_is_cut_where_others_stand_below(opened: Any) -> None:
    browser = opened("live")
    browser.show(width=390)
    browser.evaluate("document.querySelector('#best span').textContent = 'word '.repeat(200)")
    assert browser.evaluate("document.querySelector('#best button').offsetHeight") < 120


def test_the_tree_grows_step_by_step_and_keys_move_in_it(opened: Any) -> None:
    browser = opened("live")
    n_nodes, reading = "document.querySelectorAll('#tree button').length", "byId('why').textContent"
    assert "Ended: the best translation" in browser.evaluate(reading)
    all_nodes = browser.evaluate(n_nodes)
    browser.evaluate("document.querySelector('#tree [aria-pressed=true]').focus()")
    browser.press("ArrowLeft")
    assert "Kept" in browser.evaluate(reading)
    browser.press("Home")
    assert " after “<BOS>”: " in browser.evaluate(reading)
    browser.press("Home", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown")
    assert "Cut: the last one that goes on has" in browser.evaluate(reading)
    browser.evaluate("(byId('step').value = 1, byId('step').dispatchEvent(new Event('input')))")
    assert browser.evaluate(n_nodes) == 8 < all_nodes
    browser.evaluate("byId('play').click()")
    assert browser.evaluate(n_nodes) == 0
    wait_until(lambda: 0 < browser.evaluate(n_nodes) < all_nodes)
    browser.evaluate("byId('play').click()")
    browser.evaluate("document.querySelectorAll('#best button')[1].click()")
    assert browser.evaluate("state.selected === state.found.translations[1]")
