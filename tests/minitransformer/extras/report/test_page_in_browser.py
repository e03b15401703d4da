"""Pages of attention and of runs in a real browser: what they show, by mouse, keyboard and address."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attended import ODD_PAIR, ODD_WORDS, pair_of
from browser import Browser
from logged_runs import ODD, finish, training_line, write_logged_run
from matplotlib.image import imread

from minitransformer.extras.report.colours import head_colours
from minitransformer.extras.report.merging import without_key
from minitransformer.extras.report.page import attention_page
from minitransformer.extras.report.run_page import run_page
from minitransformer.extras.report.run_record import read_runs

PAIR = pair_of(["the", "small", "dog", "sees"], ["der", "kleine", "Hund", "sieht", "ihn"])
PIECES = pair_of(["the", "h", "·ous", "·es"], ["die", "H", "·äuser", "·<script>"], n_layers=3)
ISOLATES = {0x2068: None, 0x2069: None}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    long = pair_of([f"word{i}" for i in range(60)], [f"Wort{i}" for i in range(60)], n_layers=6, n_heads=8)
    shallow = pair_of(["the", "dog"], ["der", "Hund"], n_layers=3, n_decoder_layers=1)
    pairs = {"plain": PAIR, "odd": ODD_PAIR, "long": long, "shallow decoder": shallow, "pieces": PIECES}
    pairs["hebrew"] = pair_of(["הכלב", "הקטן", "ישן"], ["the", "small", "dog", "sleeps"])
    for name, pair in pairs.items():
        (folder / f"{name}.html").write_text(attention_page(pair), encoding="utf-8")
    languages = {"languages": ["en", "de"]}
    one = finish(write_logged_run(folder / "runs" / "one", data=languages), ["eins zwei", "drei", ODD, "fünf"])
    other = finish(write_logged_run(folder / "runs" / "other", seed=2), ["zwei", "vier", "<b>acht</b>", "fünf"])
    begun = write_logged_run(folder / "runs" / "begun", [training_line(10)])
    far = write_logged_run(folder / "runs" / "far", [training_line(10), training_line(100_000)])
    for name, runs in (("one run", [one]), ("two runs", [one, other]), ("begun run", [begun]), ("far run", [far])):
        (folder / f"{name}.html").write_text(run_page(read_runs(runs)), encoding="utf-8")
    return {path.stem: path for path in folder.glob("*.html")}


def text(browser: Browser, name: str) -> str:
    """The text of the element with this id."""
    return str(browser.evaluate(f"document.getElementById({name!r}).textContent"))


def texts(browser: Browser, selector: str) -> list[str]:
    return list(browser.evaluate(f"[...document.querySelectorAll({selector!r})].map((found) => found.textContent)"))


def pixels_without(browser: Browser, selector: str, theme: str) -> Any:
    """Return the pixels of the page without an element that shows all colours, (height, width, 3) of 0 … 1."""
    browser.show(theme=theme)
    browser.evaluate(f"document.querySelector({selector!r}).remove()")
    browser.evaluate("new Promise(requestAnimationFrame)")
    return imread(io.BytesIO(browser.screenshot()))[..., :3]


def is_like(pixels: Any, colour: str, most: float = 0.12) -> Any:
    return np.abs(pixels - [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]).max(-1) < most


def test_words_stand_on_the_page_as_they_are(opened: Any) -> None:
    browser = opened("odd")
    assert texts(browser, "#keys button") == [*ODD_WORDS, "<EOS>"]
    assert text(browser, "sentence") == ODD_PAIR.sentence
    assert browser.evaluate("document.title").startswith("Attention: <script>alert(1)</script> </script> <!-- ")
    assert browser.evaluate("document.querySelectorAll('script').length") == 2
    assert browser.evaluate("document.querySelectorAll('img, b').length") == 0
    for view in ("kind=decoder", "kind=encoder-decoder&word=q2", "kind=alignment&end=off"):
        assert opened("odd", view).evaluate("document.querySelectorAll('script').length") == 2


def test_the_columns_of_an_alignment_are_in_the_order_of_reading(opened: Any) -> None:
    left = "[...document.querySelectorAll('#alignment thead th')].map((cell) => cell.getBoundingClientRect().left)"
    for name, order in (("hebrew", -1), ("plain", 1)):
        lefts = opened(name, "kind=alignment").evaluate(left)
        assert lefts == sorted(lefts, reverse=order < 0)


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
    sentence = text(browser, "reading").translate(ISOLATES)
    assert sentence.startswith(f"Hund attends to {PAIR.source[best]} {round(100 * weights[best])}%, ")
    assert sentence.endswith("; mean of heads 1, 3.")
    shades = browser.evaluate(
        '[...document.querySelectorAll("#keys button")].map((b) => Number(b.style.getPropertyValue("--weight")))'
    )
    np.testing.assert_allclose(shades, weights, atol=2e-5)


def test_the_alignment_is_the_mean_over_heads_and_the_end_symbol_can_be_left_out(opened: Any) -> None:
    cells = """[...document.querySelectorAll("#alignment tbody tr")].map(
        (row) => [...row.cells].slice(1).map((cell) => Number(cell.style.getPropertyValue("--weight"))))"""
    browser, weights = opened("plain", "kind=alignment&layer=2"), PAIR.weights.encoder_decoder[1]
    assert texts(browser, "#alignment tbody td") == [f"{100 * weight:.0f}%" for weight in weights.mean(0).ravel()]
    np.testing.assert_allclose(browser.evaluate(cells), weights.mean(0), atol=2e-5)
    browser.evaluate("document.getElementById('end').click()")
    np.testing.assert_allclose(browser.evaluate(cells), without_key(weights, 4).mean(0), atol=1e-4)
    assert texts(browser, "#alignment thead th") == PAIR.source[:-1]
    assert browser.evaluate("location.hash") == "#kind=alignment&layer=2&end=off"


def test_it_opens_on_the_last_layer_of_encoder_decoder_attention(opened: Any) -> None:
    for name, n_layers in (("plain", 2), ("shallow decoder", 1), ("long", 6)):
        browser = opened(name)
        assert text(browser, "figure-title") == f"Encoder–decoder attention, layer {n_layers}"


def test_a_kind_offers_the_layers_of_its_own_stack(opened: Any) -> None:
    browser = opened("shallow decoder", "kind=encoder&layer=3")
    thumbnails = "document.querySelectorAll('#overview button').length"
    offered = "[...document.querySelectorAll('#layers input')].map((input) => input.checkVisibility())"
    assert (browser.evaluate(offered), browser.evaluate(thumbnails)) == ([True] * 3, 3 * 3)
    browser.evaluate("""document.querySelector("input[value='encoder-decoder']").click()""")
    assert browser.evaluate("location.hash") == "#kind=encoder-decoder&layer=1"
    assert (browser.evaluate(offered), browser.evaluate(thumbnails)) == ([True, False, False], 3)


def test_pieces_are_merged_into_words_on_request_in_every_kind(opened: Any) -> None:
    browser = opened("pieces", "layer=2&heads=1")
    assert texts(browser, "#queries button") == ["die", "H", "·äuser", "·<script>", "<EOS>"]
    browser.evaluate("document.getElementById('merge').click()")
    assert browser.evaluate("location.hash") == "#kind=encoder-decoder&layer=2&heads=1&merge=on"
    assert texts(browser, "#queries button") == ["die", "Häuser<script>", "<EOS>"]
    assert texts(browser, "#keys button") == ["the", "houses", "<EOS>"]
    weights = PIECES.weights.encoder_decoder[1, 0]
    shown = browser.evaluate("range(3).map((q) => range(3).map((k) => shown().weight(0, q, k)))")
    np.testing.assert_allclose(shown[1][1], weights[1:4, 1:4].sum() / 3, atol=2e-5)
    np.testing.assert_allclose(np.sum(shown, axis=-1), 1, atol=1e-4)
    assert "summed over a word's attended pieces" in text(browser, "figure-note")
    browser = opened("pieces", "kind=decoder&merge=on&word=k3")
    assert texts(browser, "#keys button") == ["<BOS>", "die", "Häuser<script>"]
    assert "Häuser<script>" in text(browser, "reading")
    browser = opened("pieces", "kind=alignment&merge=on&end=off")
    assert browser.evaluate("document.querySelectorAll('#alignment td').length") == 1 + 3 * 2
    assert browser.evaluate("document.getElementById('merge').checked")
    assert browser.evaluate("document.querySelectorAll('script').length") == 2
    browser = opened("plain", "merge=on")  # where no word has pieces
    assert not browser.evaluate("document.getElementById('merge').checkVisibility()")
    assert "pieces" not in text(browser, "figure-note")


N_COLOURED = """(() => {
    const canvas = document.getElementById("canvas");
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return data.filter((opacity, i) => i % 4 === 3 && opacity > 0).length;
})()"""


def test_long_sentences_have_no_lines_for_small_weights_unless_asked_for(opened: Any) -> None:
    browser = opened("long", "kind=encoder&heads=1")
    few = browser.evaluate(N_COLOURED)
    assert text(browser, "figure-note").endswith("Lines show weights from 20%, and all weights of a chosen word.")
    browser.evaluate(
        "{ const s = document.getElementById('least'); s.value = 0; s.dispatchEvent(new Event('change')); }"
    )
    assert browser.evaluate("location.hash") == "#kind=encoder&layer=6&heads=1&least=0"
    assert "Lines" not in text(browser, "figure-note")
    assert browser.evaluate(N_COLOURED) > 2 * few > 0
    browser.events.clear()  # the browser's advice about reading pixels
    assert opened("plain").evaluate("document.getElementById('least').value") == "0"
    some = opened("plain", "heads=1&least=50")
    assert some.evaluate("document.getElementById('least').value") == "50"
    without_word = some.evaluate(N_COLOURED)
    assert opened("plain", "heads=1&word=q2&least=50").evaluate(N_COLOURED) > without_word  # a chosen word has all


def test_everything_can_be_chosen_with_keys_alone(opened: Any) -> None:
    browser = opened("pieces")
    browser.press("Tab", "ArrowRight", "ArrowRight", "ArrowRight")  # the kinds: past the alignment, and around
    assert browser.evaluate("location.hash") == "#kind=decoder&layer=3"
    browser.press("ArrowRight")
    browser.press("Tab", "ArrowLeft")  # the layers
    browser.press("Tab", "Tab", " ")  # the second head
    assert browser.evaluate("location.hash") == "#kind=encoder-decoder&layer=2&heads=1,3"
    browser.press("Tab", "Tab", "Tab", "Tab", " ")  # past the third head, all and none: the end symbol
    assert browser.evaluate("location.hash") == "#kind=encoder-decoder&layer=2&heads=1,3&end=off"
    browser.press("Tab", " ")  # whole words
    assert browser.evaluate("location.hash").endswith("&end=off&merge=on")
    browser.press(" ", "Tab", "ArrowDown")  # the least weight of a line
    assert browser.evaluate("location.hash").endswith("&end=off&least=5")
    browser.press("Tab", "Tab", "ArrowRight", "ArrowUp", "Enter")  # the overview: from head 1 of layer 2 to head 2 of 1
    assert browser.evaluate("location.hash") == "#kind=encoder-decoder&layer=1&heads=2&end=off&least=5"
    browser.press("Tab", "ArrowDown", "ArrowDown")  # the words
    assert browser.evaluate("location.hash").endswith("&word=q3&end=off&least=5")
    for held in (1, 2, 4):
        browser.press("ArrowUp", "Home", modifiers=held)  # the browser's keys
    assert browser.evaluate("location.hash").endswith("&word=q3&end=off&least=5")
    browser.press("Tab", "End")
    assert browser.evaluate("location.hash").endswith("&word=k4&end=off&least=5")
    browser.press("Escape")
    assert "word" not in browser.evaluate("location.hash")


def test_a_word_is_shown_under_the_mouse_and_kept_by_a_click(opened: Any) -> None:
    browser = opened("plain")
    point = browser.evaluate(
        "(({x, y}) => ({x: x + 5, y: y + 5}))(document.querySelector('#queries button').getBoundingClientRect())"
    )
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", **point)
    assert "the" in text(browser, "reading")
    for kind in ("mousePressed", "mouseReleased"):
        browser.ask("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **point)
    assert browser.evaluate("location.hash").endswith("&word=q1")
    browser = opened("plain", "kind=encoder")  # a click is where the tab key comes back to
    browser.evaluate("(({focus}, b) => { b.focus(); b.click(); })({}, document.querySelectorAll('#queries button')[2])")
    stops = "[...document.querySelectorAll('#queries button')].map((button) => button.tabIndex)"
    assert browser.evaluate(stops)[:4] == [-1, -1, 0, -1]


def test_an_alignment_of_no_head_says_what_to_do(opened: Any) -> None:
    browser = opened("plain", "kind=alignment")
    browser.evaluate("document.getElementById('no-heads').click()")
    assert browser.evaluate("document.getElementById('reading').checkVisibility()")
    assert text(browser, "reading") == "Choose a head."
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


@pytest.mark.parametrize("fragment", [
    "kind=nonsense", "kind=__proto__&layer=3", "layer=x", "layer=1.5", "heads=0,7", "word=q99", "word=k9",
    "word=", "end=no&merge=1&least=7", "lair=2", "%%&=&", "kind=<script>alert(1)</script>",
])  # fmt: skip
def test_a_wrong_address_shows_the_default(opened: Any, fragment: str) -> None:
    browser = opened("plain", fragment)
    assert text(browser, "figure-title") == "Encoder–decoder attention, layer 2"
    assert text(browser, "reading").startswith("Choose a word")
    browser.evaluate("document.querySelector('#queries button').click()")
    assert browser.evaluate("location.hash") == "#kind=encoder-decoder&layer=2&word=q1"


def test_an_address_has_layers_of_its_kind(opened: Any) -> None:
    assert text(opened("plain", "kind=decoder&layer=1"), "figure-title") == "Decoder attention, layer 1"
    assert text(opened("shallow decoder", "kind=decoder&layer=2"), "figure-title") == "Decoder attention, layer 1"
    assert text(opened("shallow decoder", "kind=encoder&layer=2"), "figure-title") == "Encoder attention, layer 2"


def test_a_query_is_read_where_there_is_no_fragment(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(f"{pages['plain'].as_uri()}?kind=decoder&layer=1")
    assert text(browser, "figure-title") == "Decoder attention, layer 1"
    browser.open(f"{pages['plain'].as_uri()}?kind=decoder#kind=encoder&layer=1")
    assert text(browser, "figure-title") == "Encoder attention, layer 1"


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
    assert text(browser, "reading").startswith("Choose a word")


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


@pytest.mark.parametrize(("theme", "colours"), [("light", ("#ffffff", "#f5f6f8")), ("dark", ("#12151b", "#1a1f28"))])
def test_heads_and_runs_are_drawn_in_their_colours_on_either_ground(opened: Any, theme: str, colours: Any) -> None:
    ground, panel = colours
    pixels = pixels_without(opened("plain", "kind=encoder&layer=1&heads=1"), "#controls", theme)
    assert [bool(is_like(pixels, colour).any()) for colour in head_colours(3)] == [True, False, False]
    assert is_like(pixels[0, 0], ground)
    pixels = pixels_without(opened("two runs"), "header", theme)
    for colour in (head_colours(2)[1], panel):  # the curves of the second run lie on those of the first
        assert is_like(pixels, colour, 0.05).any()


def test_a_narrow_window_scrolls_down_and_never_aside(opened: Any) -> None:
    for name in ("plain", "odd", "long", "one run", "two runs", "begun run"):
        for fragment in [""] if "run" in name else ["kind=encoder", "kind=alignment"]:
            browser = opened(name, fragment)
            browser.show(width=340, height=700)
            browser.evaluate("new Promise(requestAnimationFrame)")
            assert browser.evaluate("document.documentElement.scrollWidth") <= 340
            assert browser.evaluate("document.documentElement.scrollHeight") > 700
            if "run" in name:
                assert browser.evaluate("document.querySelector('.panel svg').clientWidth") > 250


def test_a_phone_shows_words_on_its_first_screen(opened: Any) -> None:
    browser = opened("plain")
    browser.show(width=390, height=700)
    browser.open(browser.evaluate("location.href"))
    boxes = browser.evaluate(
        "['#controls', '#queries li:last-child'].map((name) => document.querySelector(name).getBoundingClientRect())"
        ".map(({height, bottom}) => [height, bottom])"
    )
    assert boxes[0][0] < 180
    assert boxes[1][1] < 700
    assert not browser.evaluate("document.getElementById('overview').checkVisibility()")
    browser.evaluate("document.querySelector('summary').click()")
    assert browser.evaluate("document.getElementById('overview').checkVisibility()")


PRESSABLE = ("button", "radio", "checkbox", "toggle button", "combobox")


def test_a_screen_reader_finds_names_for_everything_that_can_be_pressed(opened: Any) -> None:
    browser = opened("pieces", "kind=encoder&word=q2")
    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    pressable = [n for n in nodes if n.get("role", {}).get("value") in PRESSABLE]
    names = [node["name"]["value"] for node in pressable]
    assert all(names)
    expected = {"layer 2, head 3", "Encoder–decoder", "·ous", "2", "all heads", "end symbol", "whole words", "lines"}
    assert expected <= set(names)
    status = [n["role"]["value"] for n in nodes if n.get("role", {}).get("value") == "status"]
    assert status == ["status"]


def test_words_are_told_apart_in_scripts_without_blanks_too(opened: Any) -> None:
    browser = opened("one run")
    assert browser.evaluate("partsOf('我喜欢猫。').length") > 2
    assert browser.evaluate("partsOf(' a b')") == ["", " ", "a", " ", "b"]
    assert browser.evaluate("document.querySelector('.sample dd bdi').lang") == "en"


def test_the_last_tick_is_not_cut(opened: Any) -> None:
    browser = opened("far run")
    assert "100,000" in texts(browser, ".panel svg text")
    cut = """[...document.querySelectorAll('.panel svg text')].filter((text) =>
        text.getBoundingClientRect().right > text.ownerSVGElement.getBoundingClientRect().right)"""
    assert browser.evaluate(f"{cut}.map((text) => text.textContent)") == []


READING = ".panel .reading:not([hidden]) p"


def test_words_of_runs_stand_on_the_page_as_they_are(opened: Any) -> None:
    browser = opened("two runs")
    assert ODD in texts(browser, ".sample dd bdi")
    assert "<b>acht</b>" in texts(browser, ".sample dd bdi")
    assert browser.evaluate("document.querySelectorAll('script').length") == 2
    assert browser.evaluate("document.querySelectorAll('main b').length") == 0
    assert texts(browser, ".other") == ["vier", "<b>acht</b>"]


def test_the_pointer_reads_the_nearest_values_of_all_curves(opened: Any) -> None:
    browser = opened("two runs")
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


def test_a_finger_reads_values_that_stay_when_it_is_lifted(opened: Any) -> None:
    browser = opened("one run")
    browser.tap(".panel svg")
    assert texts(browser, READING)[0].startswith("update ")
    browser.evaluate("document.activeElement.blur()")
    assert texts(browser, READING) == []


def test_ticks_are_round_neither_few_nor_many_and_written_alike(opened: Any) -> None:
    browser = opened("one run")
    assert browser.evaluate("linearTicks(2.1, 7.4, 5)") == [3, 4, 5, 6, 7]
    assert browser.evaluate("logTicks(0.91, 1.79)") == [1, 1.2, 1.4, 1.6]
    assert browser.evaluate("logTicks(4, 7000)") == [10, 100, 1000]
    counts = browser.evaluate("""range(400).map((i) => linearTicks(0.3, 0.3 + 1.05 ** i, 5).length)""")
    assert (min(counts), max(counts)) == (3, 8)
    written = "((ticks) => ticks.map(tickFormat(ticks)))"
    assert browser.evaluate(f"{written}([0, 5e-4, 1e-3, 1.5e-3])") == ["0", "5e-4", "1e-3", "1.5e-3"]
    assert browser.evaluate(f"{written}([0, 20000, 100000])") == ["0", "20,000", "100,000"]


def test_arrow_keys_read_every_point_and_a_screen_reader_hears_where_curves_begin_and_end(opened: Any) -> None:
    browser = opened("one run")
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
    browser = opened("one run")
    paths = "[...document.querySelectorAll('.panel path')].map((path) => path.getAttribute('d'))"
    units = ".panel svg > text:last-of-type"
    before = browser.evaluate(paths)
    assert set(texts(browser, units)) == {"updates"}
    browser.evaluate("document.querySelector('input[value=seconds]').click()")
    assert set(texts(browser, units)) == {"seconds"}
    browser.evaluate("document.querySelector('.panel input').click()")
    after = browser.evaluate(paths)
    assert before[0] != after[0]
    assert before[2:] == after[2:]  # times are proportional to updates here


def test_a_run_with_a_single_line_shows_its_point(opened: Any) -> None:
    browser = opened("begun run")
    browser.evaluate("document.querySelector('.panel svg').focus()")
    browser.press("Home")
    assert texts(browser, READING) == ["update 10", "training 1"]
    assert browser.evaluate("document.querySelectorAll('.panel:first-child .point').length") == 1
    assert not browser.evaluate("document.getElementById('samples-section').checkVisibility()")
