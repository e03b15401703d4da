"""The page of training runs in a real browser: curves, values by mouse and keys, narrow windows, dark themes."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from logged_runs import ODD, finish, training_line, write_logged_run
from matplotlib.image import imread

from minitransformer.extras.report.colours import head_colours
from minitransformer.extras.report.run_page import run_page
from minitransformer.extras.report.run_record import read_runs


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    one = finish(
        write_logged_run(folder / "runs" / "one", data={"languages": ["en", "de"]}), ["eins zwei", "drei", ODD, "fünf"]
    )
    other = finish(write_logged_run(folder / "runs" / "other", seed=2), ["zwei", "vier", "<b>acht</b>", "fünf"])
    begun = write_logged_run(folder / "runs" / "begun", [training_line(10)])
    long = write_logged_run(folder / "runs" / "long", [training_line(10), training_line(100_000)])
    for name, runs in (("one", [one]), ("two", [one, other]), ("begun", [begun]), ("long", [long])):
        (folder / f"{name}.html").write_text(run_page(read_runs(runs)), encoding="utf-8")
    return {path.stem: path for path in folder.glob("*.html")}


def texts(browser: Browser, selector: str) -> list[str]:
    return list(browser.evaluate(f"[...document.querySelectorAll({selector!r})].map((found) => found.textContent)"))


def test_words_are_told_apart_in_scripts_without_blanks_too(opened: Any) -> None:
    browser = opened("one")
    assert browser.evaluate("partsOf('我喜欢猫。').length") > 2
    assert browser.evaluate("partsOf(' a b')") == ["", " ", "a", " ", "b"]
    assert browser.evaluate("document.querySelector('.sample dd bdi').lang") == "en"


def test_the_last_tick_is_not_cut(opened: Any) -> None:
    browser = opened("long")
    assert "100,000" in texts(browser, ".panel svg text")
    cut = """[...document.querySelectorAll('.panel svg text')].filter((text) =>
        text.getBoundingClientRect().right > text.ownerSVGElement.getBoundingClientRect().right)"""
    assert browser.evaluate(f"{cut}.map((text) => text.textContent)") == []


READING = ".panel .reading:not([hidden]) p"


def test_words_stand_on_the_page_as_they_are(opened: Any) -> None:
    browser = opened("two")
    assert ODD in texts(browser, ".sample dd bdi")
    assert "<b>acht</b>" in texts(browser, ".sample dd bdi")
    assert browser.evaluate("document.querySelectorAll('script').length") == 2
    assert browser.evaluate("document.querySelectorAll('main b').length") == 0
    assert texts(browser, ".other") == ["vier", "<b>acht</b>"]


def test_the_pointer_reads_the_nearest_values_of_all_curves(opened: Any) -> None:
    browser = opened("two")
    x, y = browser.evaluate("""(({right, top}) => [right - 20, top + 20])(
        document.querySelector('.panel svg').getBoundingClientRect())""")
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert texts(browser, READING) == [
        "update 40",
        "one, training 0.25",
        "one, validation 0.2",
        "other, training 0.25",
        "other, validation 0.2",
    ]
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    assert texts(browser, READING) == []


def test_arrow_keys_read_every_point_and_a_screen_reader_hears_where_curves_begin_and_end(opened: Any) -> None:
    browser = opened("one")
    browser.evaluate("document.querySelector('.panel svg').focus()")
    browser.press("ArrowRight")
    assert texts(browser, READING) == ["update 10", "training 1", "validation 0.4 (update 20)"]
    browser.press("ArrowRight", "End", "ArrowLeft")
    assert texts(browser, READING)[:2] == ["update 30", "training 0.3333"]
    browser.press("Escape")
    assert texts(browser, READING) == []
    assert browser.evaluate("document.querySelector('.panel svg').getAttribute('aria-label')") == (
        "Loss nats per target token. one, training: 1 at update 10, 0.25 at update 40;"
        " one, validation: 0.4 at update 20, 0.2 at update 40. Arrow keys read the values."
    )


def test_a_curve_can_be_seen_over_training_time_and_on_another_scale(opened: Any) -> None:
    browser = opened("one")
    paths = "[...document.querySelectorAll('.panel path')].map((path) => path.getAttribute('d'))"
    units = """[...document.querySelectorAll('.panel svg > text:last-of-type')].map((text) => text.textContent)"""
    before = browser.evaluate(paths)
    assert set(browser.evaluate(units)) == {"updates"}
    browser.evaluate("document.querySelector('input[value=seconds]').click()")
    assert set(browser.evaluate(units)) == {"seconds"}
    browser.evaluate("document.querySelector('.panel input').click()")
    after = browser.evaluate(paths)
    assert before[0] != after[0]
    assert before[2:] == after[2:]  # times are proportional to updates here


def test_a_run_with_a_single_line_shows_its_point(opened: Any) -> None:
    browser = opened("begun")
    browser.evaluate("document.querySelector('.panel svg').focus()")
    browser.press("Home")
    assert texts(browser, READING) == ["update 10", "training 1"]
    assert browser.evaluate("document.querySelectorAll('.panel:first-child .point').length") == 1
    assert not browser.evaluate("document.getElementById('samples-section').checkVisibility()")


def test_a_narrow_window_scrolls_down_and_never_aside(opened: Any) -> None:
    for name in ("one", "two", "begun"):
        browser = opened(name)
        browser.show(width=340, height=700)
        browser.evaluate("new Promise(requestAnimationFrame)")
        assert browser.evaluate("document.documentElement.scrollWidth") <= 340
        assert browser.evaluate("document.querySelector('.panel svg').clientWidth") > 250


@pytest.mark.parametrize(("theme", "ground"), [("light", "#f5f6f8"), ("dark", "#1a1f28")])
def test_runs_are_drawn_in_their_colours_on_either_ground(opened: Any, theme: str, ground: str) -> None:
    browser = opened("two")
    browser.show(theme=theme)
    browser.evaluate("document.querySelector('header').remove()")  # which shows all colours
    browser.evaluate("new Promise(requestAnimationFrame)")
    pixels = imread(io.BytesIO(browser.screenshot()))[..., :3]
    for colour in (head_colours(2)[1], ground):  # the curves of the second run lie on those of the first
        wanted = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        assert (np.abs(pixels - wanted).max(-1) < 0.05).any()
