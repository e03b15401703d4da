"""The page of one sentence: its numbers are the model's, and a browser shows every step."""

import base64
import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minitransformer import Batch, ModelConfig, Transformer, Translator
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.report import sentence_page as page_module
from minitransformer.extras.report.errors import ReportError
from minitransformer.extras.report.sentence import SentenceNumbers, sentence_numbers
from minitransformer.extras.report.sentence_page import sentence_page
from minitransformer.inference.attention import attention_weights
from tests.minitransformer.extras.report.test_page import Structure

CONFIG = ModelConfig(n_layers=2, n_decoder_layers=1, d_model=8, d_ff=12, n_heads=2, d_k=4, d_v=3)
SOURCE, TARGET = [3, 5, 4], [6, 3]
VARIATIONS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre norm, biases": {"norm": "pre", "attention_bias": True, "softmax_bias": True},
    "gelu, learned positions": {"activation": "gelu", "positions": "learned", "max_positions": 20},
    "start from zero, nothing tied": {"start": "zero", "tied": "none"},
}


def translator_of(**changes: Any) -> Translator:
    lines = ["one two three", "two one", "three <b>two</b> two"] * 5
    tokenizer = Tokenizer.train([(line, line.upper()) for line in lines], vocabulary_size=30)
    config = dataclasses.replace(CONFIG, vocabulary_size=tokenizer.n_target_words, **changes)
    return Translator(Transformer(config, seed=1), tokenizer)


@pytest.fixture(params=VARIATIONS, scope="module")
def translator(request: pytest.FixtureRequest) -> Translator:
    return translator_of(**VARIATIONS[request.param])


@pytest.fixture
def numbers(translator: Translator) -> SentenceNumbers:
    return sentence_numbers(translator.model, SOURCE, TARGET)


def test_logits_and_weights_are_those_of_the_model(translator: Translator, numbers: SentenceNumbers) -> None:
    model = Transformer(translator.model.config, seed=1)
    logits = model.logits(Batch.from_token_ids([SOURCE], [TARGET])).value
    np.testing.assert_allclose(numbers.logits, logits, rtol=1e-5, atol=1e-5)
    weights = attention_weights(model, SOURCE, TARGET)
    for layer in range(2):
        found = numbers.attention[f"encoder.layers.{layer}.self_attention"].weights
        np.testing.assert_allclose(found, weights.encoder[layer], atol=1e-6)
    for sublayer, expected in (("self", weights.decoder), ("source", weights.encoder_decoder)):
        found = numbers.attention[f"decoder.layers.0.{sublayer}_attention"].weights
        np.testing.assert_allclose(found, expected[0], atol=1e-6)


def test_each_step_follows_from_those_before(translator: Translator, numbers: SentenceNumbers) -> None:
    weights, name = translator.model.weights(), "encoder.layers.1.self_attention"
    heads, x = numbers.attention[name], numbers.inputs[f"{name}.query.weight"]
    bias = weights.get(f"{name}.query.bias", 0)
    np.testing.assert_allclose(heads.queries.reshape(len(x), -1), x @ weights[f"{name}.query.weight"] + bias, atol=1e-5)
    np.testing.assert_allclose(heads.mixed, np.einsum("hts,shv->thv", heads.weights, heads.values), atol=1e-5)
    joined = heads.mixed.reshape(len(x), -1) @ weights[f"{name}.output.weight"] + weights.get(f"{name}.output.bias", 0)
    np.testing.assert_allclose(numbers.results[f"{name}.output.weight"], joined, atol=1e-5)
    hidden, network = numbers.results["encoder.layers.1.feed_forward.hidden.weight"], "encoder.layers.1.feed_forward"
    result = hidden @ weights[f"{network}.output.weight"] + weights[f"{network}.output.bias"]
    np.testing.assert_allclose(numbers.results[f"{network}.output.weight"], result, atol=1e-5)
    norm, before = "decoder.layers.0.self_attention_residual.norm.gain", "decoder.layers.0.self_attention.query.weight"
    read = numbers.inputs[norm if translator.model.config.norm == "pre" else before]
    np.testing.assert_allclose(sum(numbers.embedded[1]), read, atol=1e-5)
    assert (hidden.min() >= 0) == (translator.model.config.activation == "relu")


def test_the_page_has_every_step_in_order_with_its_numbers(translator: Translator) -> None:
    page, translation = sentence_page(translator, "one two", "TWO")
    data, is_pre = json.loads(Structure(page).of("script")[0]), translator.model.config.norm == "pre"
    assert translation == data["translation"] == "TWO"
    names = [block["name"] for block in data["blocks"]]
    assert names == ["source words", "encoder 1", "encoder 2", "target words", "decoder 1", "prediction"]
    attention, network = ["projections", "scores", "weights", "mixed", "joined"], ["hidden", "network"]
    sublayers = [["pre-norm", *part] if is_pre else [*part, "norm"] for part in (attention, attention, network)]
    kinds = [[step["kind"] for step in block["steps"]] for block in data["blocks"]]
    assert kinds[4] == [*itertools.chain(*sublayers), *["last-norm"] * is_pre]
    assert ["last-norm" in each for each in kinds[1:3]] == [False, is_pre]
    assert kinds[3] == ["target-pieces", "embedding"]
    (scores,) = next(step for step in data["blocks"][4]["steps"] if step["kind"] == "scores")["figures"]
    tokens = translator.tokenizer.encode_source(["one two"])[0], translator.tokenizer.encode_target(["TWO"])[0]
    expected = sentence_numbers(translator.model, *tokens).attention["decoder.layers.0.self_attention"].scores
    matrix = data["arrays"][scores["array"]]
    steps = np.frombuffer(base64.b64decode(matrix["steps"]), "<i2").reshape(matrix["shape"])
    found = np.where(steps == -32768, -np.inf, steps / 32767 * matrix["greatest"])
    assert (np.isneginf(found) == np.isneginf(expected)).all()
    finite = np.isfinite(expected)
    np.testing.assert_allclose(found[finite], expected[finite], atol=np.abs(expected[finite]).max() / 32_767)
    places = data["places"]
    assert [sum(word["chosen"] for word in place) for place in places] == [1] * (len(tokens[1]) + 1)
    assert all(a["p"] >= b["p"] for place in places for a, b in itertools.pairwise(place))


def test_too_many_numbers_and_numbers_that_are_not_finite_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = translator_of()
    with monkeypatch.context() as small:
        small.setattr(page_module, "MOST_NUMBERS", 500)
        with pytest.raises(ReportError, match="more than 500 numbers are too many for a page; give a shorter sentence"):
            sentence_page(translator, "one two", "TWO")
    model = Transformer(translator.model.config, seed=1)
    model.encoder.layers[0].self_attention.query.weight.value[...] = np.nan
    with pytest.raises(ReportError, match="not finite numbers; the model has diverged"):
        sentence_page(Translator(model, translator.tokenizer), "one two", "TWO")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    odd = "three <b>two</b> two two two two two two"
    for name, sentence, norm in (("short", "one two", "post"), ("odd", odd, "pre")):
        page, _ = sentence_page(translator_of(norm=norm), sentence, "TWO ONE <B>THREE</B>")
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {path.stem: path for path in folder.iterdir()}


@pytest.mark.parametrize(("name", "width", "n_titles"), [("short", 1_280, 12), ("odd", 390, 13)])
def test_every_step_is_shown_within_the_window(opened: Any, name: str, width: int, n_titles: int) -> None:
    browser = opened(name)
    browser.show(width=width)
    n_steps = browser.evaluate("steps.length")
    titles = set()
    for _ in range(n_steps):
        titles.add(browser.evaluate("document.getElementById('title').textContent"))
        assert browser.evaluate("document.querySelectorAll('#figures > *').length") >= 1
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        browser.evaluate("document.getElementById('next').click()")
    assert len(titles) == n_titles
    assert browser.evaluate("document.getElementById('next').disabled")
    assert browser.evaluate("document.querySelectorAll('main b:not(figcaption b), script').length") == 2
    heights = "[...document.querySelectorAll('.bars tr')].map((row) => row.offsetHeight)"
    assert len(browser.evaluate(heights)) == 10
    assert max(browser.evaluate(heights)) < 40, "each on one line"


def test_the_address_keeps_step_head_and_row_and_the_keys_move(opened: Any) -> None:
    browser = opened("short", "step=5&head=2&row=2")
    assert browser.evaluate("document.getElementById('title').textContent") == "Weights"
    assert browser.evaluate("document.querySelectorAll('#head [aria-pressed=true]')[0].textContent") == "2"
    cells = "[...document.querySelectorAll('.words tbody tr:first-child td')].map((cell) => cell.textContent)"
    row = browser.evaluate(cells)
    assert sum(map(float, row)) == pytest.approx(1, abs=0.05)
    browser.press("ArrowRight")
    assert browser.evaluate("location.hash") == "#step=6&head=2&row=2"


def test_buttons_that_are_drawn_again_keep_the_focus(opened: Any) -> None:
    browser = opened("short", "step=4")
    for selector, n in (("#steps button", 2), (".words th button", 1)):
        browser.evaluate(f"document.querySelectorAll({selector!r})[{n}].focus()")
        browser.press("Enter")
        assert browser.evaluate(f"document.querySelectorAll({selector!r})[{n}] === document.activeElement")
    assert browser.evaluate("location.hash") == "#step=5&head=1&row=2"


def test_a_tap_reads_a_number_and_arrows_in_a_wide_figure_scroll_it(opened: Any) -> None:
    browser = opened("odd", "step=5")
    browser.show(width=390)
    browser.evaluate("document.querySelector('#figures .scroll').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate("location.hash") == "#step=5"
    browser.evaluate("change({step: steps.findIndex((step) => step.kind === 'projections')})")
    browser.evaluate("document.querySelector('canvas').scrollIntoView({block: 'center'})")
    browser.tap("canvas")
    assert browser.evaluate("document.getElementById('number').textContent").startswith("queries, ")
