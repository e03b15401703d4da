"""The page that learns computes the loss, the gradients and the updates of the project's own model."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from live_pages import in_node, needs_node
from waiting import wait_until

from autograd import backward
from autograd.optim import Adam
from minitransformer import Batch, Transformer
from minitransformer.extras.report.learning import CONFIG, TRAINING, learning_page
from minitransformer.model.masks import BatchMasks, encoder_decoder_mask, self_attention_mask
from minitransformer.model.positions import PositionalEncoding
from minitransformer.model.symbols import START
from minitransformer.training.update import learning_rate
from tests.minitransformer.extras.report.test_page import assert_loads_nothing

DATA = {"model": dataclasses.asdict(CONFIG), "training": dataclasses.asdict(TRAINING)}
SCRIPTS = ("learning_page/operations.js", "learning_page/learner.js")
PROGRAM = """
const learner = new Learner(data, data.off, 1), named = (kind) => (
  Object.fromEntries(Object.entries(learner.parameters).map(([name, parameter]) => [name, [...parameter[kind]]])));
for (const [name, values] of Object.entries(data.weights)) learner.parameters[name].values.set(values);
const updates = data.batches.map((lines) => ({...learner.update(lines), gradients: named("grad")}));
console.log(JSON.stringify({updates, weights: named("values"), written: learner.write(data.batches[0])}));
"""
LEARNING = """
const learner = new Learner(data, data.off, 1), updates = range(data.n).map(() => learner.update());
const loss = updates.slice(-50).reduce((sum, {loss}) => sum + loss / 50, 0);
console.log(JSON.stringify({loss, share: learner.share()}));
"""


class NoPositions(PositionalEncoding):
    def table_and_rows(self, positions: Any, dtype: Any, device: Any) -> Any:
        return np.zeros((1, CONFIG.d_model), dtype), np.zeros_like(positions)


class WithoutMask(Batch):
    def masks(self, neighbourhood: int | None) -> BatchMasks:
        every, source = self_attention_mask(self.target), encoder_decoder_mask(self.target, self.source)
        return BatchMasks(self_attention_mask(self.source), every, source)


def batches(n: int) -> list[list[list[int]]]:
    """Batches of three lines of digits; the ids of digits begin with 3."""
    random = np.random.default_rng(2)
    return [random.integers(3, 13, (3, length)).tolist() for length in random.integers(2, 9, n)]


def computed(model: Transformer, lines: list[list[list[int]]], off: list[str] = []) -> dict[str, Any]:  # noqa: B006
    weights = {name: values.ravel().tolist() for name, values in model.weights().items()}
    return dict(in_node(SCRIPTS, PROGRAM, {**DATA, "off": off, "weights": weights, "batches": lines}))


def assert_close(found: dict[str, list[float]], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values.ravel(), rtol=1e-8, atol=1e-12, err_msg=name)


@needs_node
@pytest.mark.parametrize("off", ["", "warm-up", "positions", "mask", "scale", "smoothing"])
def test_loss_and_gradients_of_an_update_are_those_of_the_model(off: str) -> None:
    config = dataclasses.replace(CONFIG, label_smoothing=0.0) if off == "smoothing" else CONFIG
    model, (lines,) = Transformer(config, dtype="float64", seed=3), batches(1)
    (update,) = computed(model, [lines], [off] if off else [])["updates"]
    queries = [name for name in model.weights() if name.endswith("query.weight")]
    if off == "positions":
        model.source_positions = model.target_positions = NoPositions()
    if off == "scale":  # queries that are √d_k times as long have scores without 1/√d_k
        longer = {name: 4 * values if name in queries else values for name, values in model.weights().items()}
        model.set_weights({name: values.copy() for name, values in longer.items()})
    batch = (WithoutMask if off == "mask" else Batch).from_token_ids(lines, [line[::-1] for line in lines])
    loss = model.loss(batch)
    backward(loss)
    gradients = {
        name: parameter.grad * (4 if off == "scale" and name in queries else 1) / batch.n_target_tokens
        for name, parameter in model.named_parameters()
    }
    assert update["loss"] == pytest.approx(float(loss.value) / batch.n_target_tokens, rel=1e-12)
    assert_close(update["gradients"], gradients)
    norm = np.sqrt(sum((values**2).sum() for values in gradients.values()))
    assert np.linalg.norm(list(update["norms"].values())) == pytest.approx(norm)


@needs_node
def test_updates_and_the_learning_rate_are_those_of_the_training() -> None:
    model, given = Transformer(CONFIG, dtype="float64", seed=4), batches(4)
    found, optimizer = computed(model, given), Adam(model.parameters)
    for step, (lines, update) in enumerate(zip(given, found["updates"], strict=True), 1):
        batch = Batch.from_token_ids(lines, [line[::-1] for line in lines])
        backward(model.loss(batch))
        rate = learning_rate(step, CONFIG.d_model, TRAINING)
        optimizer.step(rate, step=step, n_tokens=batch.n_target_tokens)
        assert update["rate"] == pytest.approx(rate, rel=1e-12)
    assert_close(found["weights"], model.weights())
    for line, written in zip(given[0], found["written"], strict=True):  # the best word after those before
        scores = model.log_probabilities(Batch.from_token_ids([line], [written[:-1]]))
        scores[:, START] = -np.inf
        assert scores.argmax(1).tolist() == written


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize(
    ("off", "n", "is_right", "is_sure"),
    [([], 1_000, True, True), (["mask"], 400, False, True), (["positions"], 300, False, False)],
)
def test_it_learns_and_without_the_mask_it_reads_the_answer_and_without_positions_it_knows_no_order(
    off: list[str], n: int, is_right: bool, is_sure: bool
) -> None:
    found = in_node(SCRIPTS, LEARNING, {**DATA, "off": off, "n": n})
    assert (found["share"] > 0.9) == is_right
    assert (found["loss"] < 0.7) == is_sure, "the least possible loss is 0.57"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("pages") / "learning.html"
    path.write_text(learning_page(), encoding="utf-8")
    return {"learning": path}


def paused(opened: Any) -> Browser:
    """Open the page, and begin again without running."""
    browser: Browser = opened("learning")
    browser.evaluate("(timer && pause(), begin())")
    return browser


def text(browser: Browser, id: str) -> str:
    return str(browser.evaluate(f"byId('{id}').textContent"))


def test_the_page_loads_nothing_and_digits_are_all_that_is_read_of_a_line(opened: Any, pages: dict[str, Path]) -> None:
    assert_loads_nothing(pages["learning"].read_text("utf-8"))
    browser = paused(opened)
    line = "Object.assign(byId('line'), {value: '<b>9</b>x07'}).dispatchEvent(new Event('input'))"
    browser.evaluate(line)
    signs = "[...document.querySelectorAll('#positions span')].map(({textContent}) => textContent).join('')"
    assert browser.evaluate(signs) == "709⊣"
    assert browser.evaluate("document.querySelectorAll('#written b, #attention b').length") == 3  # titles of figures
    browser.evaluate("Object.assign(byId('line'), {value: '-'}).dispatchEvent(new Event('input'))")
    assert text(browser, "written") == ""


def test_it_runs_by_itself_pauses_and_makes_one_update(opened: Any) -> None:
    browser = opened("learning")
    wait_until(lambda: browser.evaluate("run.learner.step > 3"))
    browser.evaluate("byId('run').click()")
    step = browser.evaluate("run.learner.step")
    assert text(browser, "run") == "Run"
    assert text(browser, "status").startswith(f"Update {step}, complete: loss ")
    browser.evaluate("byId('once').click()")
    assert browser.evaluate("run.learner.step") == step + 1
    assert browser.evaluate("document.querySelectorAll('#panels .curve').length") == 9
    browser.evaluate("byId('reset').click()")
    assert browser.evaluate("run.learner.step") == 0
    assert browser.evaluate("run.curves.loss.steps.length") == 0
    assert browser.evaluate("former.learner.step") == step + 1
    browser.evaluate("byId('run').click()")
    wait_until(lambda: browser.evaluate("run.learner.step > 1"))
    browser.evaluate("byId('run').click()")


def test_a_seed_gives_the_same_run_and_a_switch_another_beside_the_run_before(opened: Any) -> None:
    browser, once = paused(opened), "(byId('once').click(), run.loss)"
    loss = browser.evaluate(once)
    browser.evaluate("byId('reset').click()")
    assert browser.evaluate(once) == loss
    browser.evaluate("Object.assign(byId('seed'), {value: 2}).dispatchEvent(new Event('change'))")
    assert browser.evaluate(once) != loss
    for name in ("warm-up", "positions", "mask", "scale", "smoothing"):
        browser.evaluate(f"(document.querySelector('#switches input[value={name}]').click(), pause())")
        assert browser.evaluate("[...run.learner.off]") == [name]
        assert text(browser, "status") == f"Update 0, without {name}"
        browser.evaluate("byId('once').click()")
        assert browser.evaluate("document.querySelectorAll('#panels path.curve').length") >= 10
        browser.evaluate(f"(document.querySelector('#switches input[value={name}]').click(), pause())")
        assert f"grey: the run before, without {name}" in text(browser, "panels")


def test_tables_show_the_weights_and_the_target_of_the_chosen_position(opened: Any) -> None:
    browser = paused(opened)
    sums = "[...document.querySelectorAll('#attention tbody tr')].map((row) => [...row.querySelectorAll('td')]" \
        ".reduce((sum, cell) => sum + Number(cell.style.getPropertyValue('--weight')), 0))"  # fmt: skip
    found = browser.evaluate(sums)
    assert len(found) == 3 * 2 * 9
    assert all(abs(total - 1) < 0.01 for total in found)
    assert browser.evaluate("document.querySelectorAll('#attention td.later').length") == 2 * 36
    target = "[...document.querySelectorAll('#bars tr')].map((row) => Number(row.lastChild.textContent))"
    assert browser.evaluate(target).index(0.9) == 3 + 6, "31415926, backwards, begins with 6"
    browser.evaluate("document.querySelectorAll('#positions input')[8].click()")
    assert browser.evaluate(target).index(0.9) == 2, "the end symbol"
    assert text(browser, "after") == "after ⊢ 6 2 9 5 1 4 1 3"


@pytest.mark.parametrize("width", [390, 1_280, 1_920])
def test_the_page_fits_the_window_and_controls_have_names(opened: Any, width: int) -> None:
    browser = paused(opened)
    browser.show(width=width)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    named = "({labels, ariaLabel, textContent}) => labels?.length || ariaLabel || textContent"
    assert browser.evaluate(f"[...document.querySelectorAll('button, input:not([type=hidden])')].every({named})")
    browser.evaluate("document.querySelector('#switches input').focus()")
    browser.press(" ")
    assert browser.evaluate("[...run.learner.off]") == ["warm-up"]
