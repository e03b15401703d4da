"""The page in a real browser: what it shows, by mouse, keyboard and address, and what it does not do."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attended import ODD_PAIR, ODD_WORDS, pair_of
from browser import CHROMIUM, Browser
from matplotlib.image import imread

from minitransformer.inference.attention import without_key
from minitransformer.report.colours import head_colours
from minitransformer.report.page import attention_page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt install chromium)")

PAIR = pair_of(["the", "small", "dog", "sees"], ["der", "kleine", "Hund", "sieht", "ihn"])
WORDS = '[...document.querySelectorAll("#{} button")].map((button) => button.textContent)'


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    long = pair_of([f"word{i}" for i in range(60)], [f"Wort{i}" for i in range(60)], n_layers=6, n_heads=8)
    shallow = pair_of(["the", "dog"], ["der", "Hund"], n_layers=3, n_decoder_layers=1)
    for name, pair in (("plain", PAIR), ("odd", ODD_PAIR), ("long", long), ("shallow decoder", shallow)):
        (folder / f"{name}.html").write_text(attention_page(pair), encoding="utf-8")
    return {path.stem: path for path in folder.iterdir()}


@pytest.fixture
def opened(browser: Browser, pages: dict[str, Path]) -> Any:
    """A function that opens a page at an address's fragment; afterwards nothing may have been complained about."""
    browser.show()

    def at(name: str, fragment: str = "") -> Browser:
        browser.open(f"{pages[name].as_uri()}#{fragment}")
        return browser

    yield at
    methods = {"Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening"}
    assert [event for event in browser.events if event.get("method") in methods] == []


def pixels_of(browser: Browser) -> Any:
    """What is seen, (height, width, 3) of 0 … 1."""
    return imread(io.BytesIO(browser.screenshot()))[..., :3]


def is_like(pixels: Any, colour: str) -> Any:
    """Which pixels come close to a colour."""
    return np.abs(pixels - [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]).max(-1) < 0.12


def test_words_stand_on_the_page_as_they_are(opened: Any) -> None:
    browser = opened("odd")
    assert browser.evaluate(WORDS.format("queries")) == [*ODD_WORDS, "<EOS>"]
    assert browser.evaluate("document.getElementById('sentence').textContent") == ODD_PAIR.sentence
    assert browser.evaluate("document.title").startswith("Attention: <script>alert(1)</script> </script> <!-- ")
    assert browser.evaluate("document.querySelectorAll('script').length") == 2
    assert browser.evaluate("document.querySelectorAll('img, b').length") == 0


@pytest.mark.parametrize("fragment", ["kind=decoder", "kind=encoder-decoder&word=q2", "kind=alignment&end=off"])
def test_odd_words_do_no_harm_in_any_view(opened: Any, fragment: str) -> None:
    browser = opened("odd", fragment)
    assert browser.evaluate("document.querySelectorAll('script').length") == 2


def test_nothing_is_fetched_and_no_other_script_runs(opened: Any) -> None:
    browser = opened("plain")
    requests = [e["params"]["request"]["url"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"]
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    browser.evaluate("""{
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        document.body.insertAdjacentHTML("beforeend", "<img src=data:, onerror='window.ran = true'>");
    }""")
    assert browser.evaluate("typeof window.ran") == "undefined"
    fetched = browser.evaluate("fetch('data:,x').then(() => 'fetched', () => 'refused')")
    assert fetched == "refused"
    browser.events.clear()  # the browser's complaints about these


def test_the_sentence_below_the_title_tells_the_weights(opened: Any) -> None:
    browser = opened("plain", "kind=encoder-decoder&layer=2&heads=1,3&word=q3")
    weights = PAIR.weights.encoder_decoder[1, [0, 2], 2].mean(0)
    best = int(weights.argmax())
    sentence = browser.evaluate("document.getElementById('reading').textContent").translate(
        {0x2068: None, 0x2069: None}
    )
    assert sentence.startswith(f"Hund attends to {PAIR.source[best]} {round(100 * weights[best])} %, ")
    assert sentence.endswith("; mean of heads 1, 3.")
    shades = browser.evaluate(
        '[...document.querySelectorAll("#keys button")].map((b) => Number(b.style.getPropertyValue("--weight")))'
    )
    np.testing.assert_allclose(shades, weights, atol=2e-5)


def test_the_alignment_is_the_mean_over_heads_and_the_end_symbol_can_be_left_out(opened: Any) -> None:
    cells = """[...document.querySelectorAll("#alignment tbody tr")].map(
        (row) => [...row.cells].slice(1).map((cell) => Number(cell.style.getPropertyValue("--weight"))))"""
    browser = opened("plain", "kind=alignment&layer=2")
    np.testing.assert_allclose(browser.evaluate(cells), PAIR.weights.encoder_decoder[1].mean(0), atol=2e-5)
    browser.evaluate("document.getElementById('end').click()")
    without_end = without_key(PAIR.weights.encoder_decoder[1], 4).mean(0)
    np.testing.assert_allclose(browser.evaluate(cells), without_end, atol=1e-4)
    headings = browser.evaluate('[...document.querySelectorAll("#alignment thead th")].map((th) => th.textContent)')
    assert headings == PAIR.source[:-1]
    assert browser.evaluate("location.hash") == "#kind=alignment&layer=2&end=off"


def test_a_decoder_with_fewer_layers_offers_no_others(opened: Any) -> None:
    browser = opened("shallow decoder", "kind=encoder&layer=3")
    enabled = """[...document.querySelectorAll("#layers input")].map((input) => !input.disabled)"""
    thumbnails = "document.querySelectorAll('#overview button').length"
    assert (browser.evaluate(enabled), browser.evaluate(thumbnails)) == ([True] * 3, 3 * 3)
    browser.evaluate("""document.querySelector("input[value='encoder-decoder']").click()""")
    assert browser.evaluate("location.hash") == "#kind=encoder-decoder&layer=1"
    assert (browser.evaluate(enabled), browser.evaluate(thumbnails)) == ([True, False, False], 3)
    browser = opened("shallow decoder", "kind=decoder&layer=2")
    assert browser.evaluate("document.getElementById('figure-title').textContent") == "Decoder attention, layer 1"


def test_everything_can_be_chosen_with_keys_alone(opened: Any) -> None:
    browser = opened("plain")
    browser.press("Tab", "ArrowRight", "ArrowRight")  # the kinds
    assert browser.evaluate("location.hash") == "#kind=encoder-decoder&layer=1"
    browser.press("Tab", "ArrowRight")  # the layers
    browser.press("Tab", "Tab", " ")  # the second head
    assert browser.evaluate("location.hash") == "#kind=encoder-decoder&layer=2&heads=1,3"
    browser.press("Tab", "Tab", "Tab", "Tab", " ")  # past the third head, all and none: the end symbol
    assert browser.evaluate("location.hash") == "#kind=encoder-decoder&layer=2&heads=1,3&end=off"
    browser.press(
        "Tab", "ArrowRight", "ArrowUp", "Enter"
    )  # the overview: from the first head of layer 2 to head 2 of 1
    assert browser.evaluate("location.hash") == "#kind=encoder-decoder&layer=1&heads=2&end=off"
    browser.press("Tab", "ArrowDown", "ArrowDown")  # the words
    assert browser.evaluate("location.hash").endswith("&word=q3&end=off")
    for held in (1, 2, 4):
        browser.press("ArrowUp", "Home", modifiers=held)  # the browser's keys
    assert browser.evaluate("location.hash").endswith("&word=q3&end=off")
    browser.press("Tab", "End")
    assert browser.evaluate("location.hash").endswith("&word=k4&end=off")
    browser.press("Escape")
    assert "word" not in browser.evaluate("location.hash")


def test_a_word_is_shown_under_the_mouse_and_kept_by_a_click(opened: Any) -> None:
    browser = opened("plain")
    point = browser.evaluate(
        "(({x, y}) => ({x: x + 5, y: y + 5}))(document.querySelector('#queries button').getBoundingClientRect())"
    )
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", **point)
    assert "the" in browser.evaluate("document.getElementById('reading').textContent")
    for kind in ("mousePressed", "mouseReleased"):
        browser.ask("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **point)
    assert browser.evaluate("location.hash").endswith("&word=q1")


def test_a_click_is_where_the_tab_key_comes_back_to(opened: Any) -> None:
    browser = opened("plain", "kind=encoder")
    browser.evaluate("(({focus}, b) => { b.focus(); b.click(); })({}, document.querySelectorAll('#queries button')[2])")
    stops = "[...document.querySelectorAll('#queries button')].map((button) => button.tabIndex)"
    assert browser.evaluate(stops)[:4] == [-1, -1, 0, -1]


def test_an_alignment_of_no_head_says_what_to_do(opened: Any) -> None:
    browser = opened("plain", "kind=alignment")
    browser.evaluate("document.getElementById('no-heads').click()")
    assert browser.evaluate("document.getElementById('reading').checkVisibility()")
    assert browser.evaluate("document.getElementById('reading').textContent") == "Choose a head."
    assert not browser.evaluate("document.getElementById('alignment').checkVisibility()")
    browser.evaluate("document.getElementById('all-heads').click()")
    assert browser.evaluate("document.getElementById('alignment').checkVisibility()")
    assert not browser.evaluate("document.getElementById('reading').checkVisibility()")


LUMINANCE = """(colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map((x) => {
        const part = colour.startsWith('rgb') ? x / 255 : x;
        return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_numbers_can_be_read_on_any_weight(opened: Any, theme: str) -> None:
    """At least 4.5 to 1, as WCAG 2.2 asks (1.4.3), where there are numbers."""
    browser = opened("plain", "kind=alignment")
    browser.show(theme=theme)
    contrasts = browser.evaluate(f"""(() => {{
        const luminance = {LUMINANCE}, cell = document.querySelector('.alignment td');
        return [0.095, 0.3, 0.54, 0.55, 0.8, 1].map((weight) => {{
            cell.className = weight >= 0.55 ? 'strong' : '';
            cell.style.setProperty('--weight', weight);
            const {{color, backgroundColor}} = getComputedStyle(cell);
            const [low, high] = [luminance(color), luminance(backgroundColor)].sort((a, b) => a - b);
            return (high + 0.05) / (low + 0.05);
        }});
    }})()""")
    assert min(contrasts) >= 4.5


@pytest.mark.parametrize(
    "fragment",
    [
        "kind=nonsense&layer=9&heads=0,7&word=q99",
        "layer=x&word=z1&heads=",
        "%%&=&",
        "kind=constructor",
        "kind=__proto__",
    ],
)
def test_an_address_that_makes_no_sense_is_no_error(opened: Any, fragment: str) -> None:
    browser = opened("plain", fragment)
    assert browser.evaluate("document.querySelectorAll('#queries button').length") == 5


def test_another_address_shows_its_own_view_whatever_was_shown_before(opened: Any) -> None:
    """One without heads is of all of them: so it is written."""
    browser = opened("plain", "kind=decoder&layer=2&heads=2&word=q1&end=off")
    browser.evaluate(
        "new Promise((done) => { addEventListener('hashchange', done); location.hash = 'kind=encoder&layer=1'; })"
    )
    checked = (
        "[...document.querySelectorAll('#controls input')].filter((input) => input.checked).map((input) => input.name)"
    )
    assert browser.evaluate(checked) == ["kind", "layer", "head", "head", "head", ""]
    assert browser.evaluate("document.getElementById('reading').textContent").startswith("Choose a word")


def test_leaving_the_end_symbol_out_costs_no_more_than_dividing(opened: Any) -> None:
    """For every weight its row was added up: of 61 numbers here, of 257 at most."""
    browser = opened("long")
    seconds = browser.evaluate("""(() => {
        const once = () => {
            const start = performance.now(), view = shown();
            for (let head = 0; head < nHeads; head++)
                for (let q = 0; q < view.queries.length; q++)
                    for (let k = 0; k < view.keys.length; k++) view.weight(head, q, k);
            return performance.now() - start;
        };
        const best = (end) => { state.end = end; return Math.min(...Array.from({length: 15}, once)); };
        return [best(true), best(false)];
    })()""")
    assert seconds[1] < 4 * seconds[0] + 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_heads_are_drawn_in_their_colours_on_either_ground(opened: Any, theme: str) -> None:
    browser = opened("plain", "kind=encoder&layer=1&heads=1")
    browser.show(theme=theme)
    browser.evaluate("document.getElementById('controls').remove()")  # which shows all colours
    browser.evaluate("new Promise(requestAnimationFrame)")
    pixels = pixels_of(browser)
    assert [bool(is_like(pixels, colour).any()) for colour in head_colours(3)] == [True, False, False]
    assert is_like(pixels[0, 0], {"light": "#ffffff", "dark": "#12151b"}[theme])


@pytest.mark.parametrize("fragment", ["kind=encoder", "kind=alignment"])
@pytest.mark.parametrize("name", ["plain", "odd", "long"])
def test_a_narrow_window_scrolls_down_and_never_aside(opened: Any, name: str, fragment: str) -> None:
    browser = opened(name, fragment)
    browser.show(width=340, height=700)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 340
    assert browser.evaluate("document.documentElement.scrollHeight") > 700


def test_a_screen_reader_finds_names_for_everything_that_can_be_pressed(opened: Any) -> None:
    browser = opened("plain", "kind=encoder&word=q2")
    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    pressable = [n for n in nodes if n.get("role", {}).get("value") in ("button", "radio", "checkbox", "toggle button")]
    names = [node["name"]["value"] for node in pressable]
    assert all(names)
    assert {"layer 2, head 3", "Encoder–decoder", "small", "2"} <= set(names)
    status = [n["role"]["value"] for n in nodes if n.get("role", {}).get("value") == "status"]
    assert status == ["status"]
