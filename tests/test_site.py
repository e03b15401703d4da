"""The documentation as a site: every page can be found, and what pages show of the code is in the code."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import typing
import unicodedata
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from threadpoolctl import threadpool_limits
from waiting import TIME_LIMIT, wait_until

from autograd import Tensor
from autograd.op import operations
from autograd.ops import METHODS
from cli.entry import COMMANDS
from cli.run_options import RunStart
from minitransformer.config import DataConfig, ModelConfig, RunConfig, TrainingConfig
from tests.minitransformer.extras.report.test_page import Structure

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAPER_AND_CODE = (DOCS / "learn/paper-and-code.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
PAGES = (".md", ".ipynb")
OF_THE_TOP = {"index.md", "contributing.md", "changelog.md"}  # README, CONTRIBUTING and CHANGELOG, on the site


def hook(name: str) -> ModuleType:
    """A module of docs/hooks, which mkdocs loads by its path, too."""
    spec = importlib.util.spec_from_file_location(f"hook_{name}", DOCS / f"hooks/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


paper_and_code, options = hook("paper_and_code"), hook("options")


def test_every_page_has_its_place_in_the_navigation() -> None:
    _, _, navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")
    named = re.findall(r"([\w/.-]+\.md)$", navigation, re.MULTILINE)
    pages = {str(path.relative_to(DOCS).with_suffix(".md")) for path in DOCS.rglob("*.*") if path.suffix in PAGES}
    assert sorted(named) == sorted(pages | OF_THE_TOP)


@pytest.mark.parametrize("package", ["autograd", "minitransformer"])
def test_every_exported_name_is_on_the_page_of_its_package(package: str) -> None:
    words = set(re.findall(r"\w+", (DOCS / f"reference/api/{package}.md").read_text("utf-8")))
    assert [name for name in import_module(package).__all__ if name not in words] == []


FLAGS = re.MULTILINE | re.DOTALL
SIGNS = {"alpha": "α", "beta": "β", "theta": "θ", "varepsilon": "ε", "leftarrow": "←", "cdot": "·", "odot": "⊙",
         "sum": "Σ", "dots": "…", "sqrt": "√"}  # fmt: skip
SECTIONS = re.split(r"^## ", PAPER_AND_CODE, flags=re.MULTILINE)[1:]


def named_in(section: str) -> list[tuple[str, str, str]]:
    return [(kind, name, path) for kind, name, _, path in paper_and_code.NAMED.findall(section)]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_code_and_tests_beside_the_paper_exist(section: str) -> None:
    named = named_in(section)
    assert {kind for kind, _, _ in named} >= {"Test"}
    assert section.count("\n- ") == len(named), "a line of a list that the hook does not read"
    for kind, name, path in named:
        assert paper_and_code.source_of(path, name)
        assert path.startswith("tests/") == (kind == "Test")
        assert name.startswith("test_") == (kind == "Test")


EQUATIONS: list[tuple[str, str]] = [
    found for section in SECTIONS for found in re.findall(r"^```math\n(.*?)\n```$(.*?)(?=^```math|\Z)", section, FLAGS)
]
"""Each equation of the page, with the part of its section that follows it."""


def signs_of(equation: str) -> str:
    """The letters and signs of an equation in LaTeX or as in docstrings, without layout, blanks and brackets."""
    text = re.sub(r"\\frac(?=\{)", "", equation.replace("}{", "/"))
    for command, sign in SIGNS.items():
        text = re.sub(rf"\\{command}(?![a-z])", sign, text)
    text = unicodedata.normalize("NFKC", re.sub(r"\\(left|right|mathrm|text|quad)\b", "", text).replace("½", "1/2"))
    return re.sub(r"[\s(){}\\_^]", "", text).replace("-", "−")


@pytest.mark.parametrize(("equation", "after"), EQUATIONS, ids=lambda text: text[:40])
def test_equations_beside_the_code_are_in_its_docstrings(equation: str, after: str) -> None:
    named = [(name, path) for kind, name, path in named_in(after) if kind == "Code"]
    docstrings = []
    for name, path in named:
        thing = reduce(getattr, name.split("."), import_module(path.removesuffix(".py").replace("/", ".")))
        docstrings.append(inspect.getdoc(getattr(thing, "reference", thing)) or "")
    assert any(signs_of(equation) in signs_of(docstring) for docstring in docstrings), named


def test_what_the_hook_shows_is_the_source() -> None:
    shown = paper_and_code.columns("- Code: [`softmax_values`](../../autograd/ops/softmax.py)\n")
    from autograd.ops.softmax import softmax_values

    assert inspect.getsource(softmax_values).rstrip() in shown
    method = paper_and_code.source_of("minitransformer/inference/search.py", "SearchConfig.length_penalty")
    assert method.startswith("def length_penalty(self, length")
    with pytest.raises(LookupError, match=r"defines no softmax_valued"):
        paper_and_code.source_of("autograd/ops/softmax.py", "softmax_valued")


def test_the_reference_has_every_command_option_and_setting() -> None:
    commands, settings = options.commands(), options.settings()
    assert re.findall(r"^## (\w+)$", commands, re.MULTILINE) == list(COMMANDS)
    assert {"score bleu", "reproduce table3"} <= set(re.findall(r"^### (.+)$", commands, re.MULTILINE))
    rows = re.findall(r"^\| `(.*?)` \| (.*?) \| (.*?) \| (.*) \|$", commands + settings, re.MULTILINE)
    assert len(rows) > 150
    assert [name for name, _, _, text in rows if not re.search(r"[a-z]{3}", text)] == []
    expected = {("--beam", "integer", "`4`"), ("warmup_steps", "integer", "`4000`"), ("HYPOTHESIS", "path", "required")}
    assert expected <= {row[:3] for row in rows}
    assert "One of `post`, `pre`." in settings
    shown = [name.removeprefix("--").replace("-", "_").lower() for name, *_ in rows]
    assert shown == [field.rstrip("_") for field in fields_of_the_reference()]


def fields_of_the_reference() -> Iterator[str]:
    """Yield the fields of every class of options, without those whose own fields are rows."""
    classes: list[type] = []
    for name in COMMANDS:
        module = import_module(f"cli.{name}")
        classes += getattr(module, "KINDS", {}).values() or [getattr(module, f"{name.title()}Options")]
    for each in [*classes, RunStart, RunConfig, DataConfig, TrainingConfig, ModelConfig]:
        skipped = {"debug", "config"} if each is RunStart else {"debug"}
        types = typing.get_type_hints(each)
        names = [field.name for field in dataclasses.fields(each) if not dataclasses.is_dataclass(types[field.name])]
        yield from (name for name in names if name not in skipped)


def test_the_reference_has_the_presets_with_their_parameters() -> None:
    row = r"^\| `base` \| 6 \| 512 \| 2,048 \| 8 \| 64 \| 0\.1 \| 37,000 \| 63,0\d\d,\d{3} \|$"
    assert re.search(row, options.presets(), re.MULTILINE)


def test_autograd_in_an_hour_runs_prints_what_it_says_and_shows_the_real_relu(
    capsys: pytest.CaptureFixture[str], operations_kept: None
) -> None:
    text = (DOCS / "learn/autograd.md").read_text("utf-8")
    names, relu = dict[str, Any](__name__="learn"), operations["relu"]
    with threadpool_limits(1, user_api="blas"):
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(compile(block, "autograd.md", "exec"), names)
    *printed, line = capsys.readouterr().out.splitlines()
    (square,) = re.findall(r"# (square: .*) …", text)
    for output, promised in zip(printed, ["12.0 (4.0, 3.0)", "10.0 3.0", "[10.] [3.]", square], strict=True):
        assert output.startswith(promised)
        assert f"# {promised}" in text
    assert [float(number) for number in line.split()] == pytest.approx([2, 1], abs=1e-6)
    x = np.array([-1.0, 2.0])
    np.testing.assert_array_equal(names["relu"](x).value, relu(x).value)
    np.testing.assert_array_equal(names["relu"].reference(x)[1](x)[0], relu.reference(x)[1](x)[0])
    assert names["relu"] is not relu


def test_what_the_page_of_autograd_says_of_tensors_runs() -> None:
    table = (DOCS / "reference/api/autograd.md").read_text("utf-8").partition("|---|---|\n")[2].partition("\n\n")[0]
    shown = [each for row in table.splitlines() for each in re.findall("`(.*?)`", row.split(" | ")[0])]
    names = {"array": np.ones((2, 3)), "x": Tensor(np.ones((2, 3))), "y": np.ones((2, 3)), "Tensor": Tensor}
    for expression in shown:
        names["y"] = np.ones((3, 2)) if "@" in expression else np.ones((2, 3))
        assert eval(expression, dict(names)) is not None or expression == "x.grad"
    methods = {name for name in METHODS if not name.startswith("__")}
    assert {each.partition(".")[2].partition("(")[0] for each in shown} >= methods | {"value", "grad"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning, such as those of broken links and of docstrings that cannot be read."""
    pytest.importorskip("mkdocs", reason="pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("documentation") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return folder


def pages_of(site: Path) -> list[Path]:
    """The pages of the documentation, without those that show files of the tree."""
    pages = [page for page in site.rglob("*.html") if "source" not in page.relative_to(site).parts]
    assert len(pages) > 40
    return pages


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        for tag, values in Structure(page.read_text("utf-8")).elements:
            is_loaded = tag in ("script", "img", "iframe") or (tag == "link" and values.get("rel") != "canonical")
            addresses = [values.get(name) or "" for name in ("src", "href") if is_loaded]
            assert [address for address in addresses if re.match(r"(https?:)?//", address)] == [], page
    shown = (site / "learn/paper-and-code.html").read_text("utf-8")
    assert "class MultiHeadAttention" in re.sub(r"<[^>]*>", "", shown)


@pytest.mark.slow
def test_formulas_are_mathml_and_notebooks_are_pages_with_their_pictures(site: Path) -> None:
    page = (site / "notebooks/gradients.html").read_text("utf-8")
    assert page.count("<math") > 40
    pictures = re.findall(r'src="(gradients_output_\w+\.png)"', page)
    assert len(pictures) == 3
    assert all((site / "notebooks" / name).read_bytes().startswith(b"\x89PNG") for name in pictures)
    assert 'href="gradients.html"' in (site / "notebooks/index.html").read_text("utf-8")
    assert [page for page in pages_of(site) if 'class="arithmatex"' in page.read_text("utf-8")] == []


@pytest.mark.slow
def test_the_parts_of_the_drawing_lead_to_the_code(site: Path, browser: Browser) -> None:
    drawing = (site / "figures/architecture.svg").read_text("utf-8")
    links = re.findall(r'<a href="../(learn/[\w-]+\.html)#([\w-]+)" target="_top">', drawing)
    assert len(links) == 2 * 16, "wide and narrow"
    assert [link for link in links if f'id="{link[1]}"' not in (site / link[0]).read_text("utf-8")] == []
    for page in ("index.html", "learn/transformer.html"):
        browser.open((site / page).as_uri())
        shown = "document.querySelector('object.drawing').getBoundingClientRect().width"
        assert browser.evaluate(shown) > 500


FAULTS = """(() => {
    const svg = document.querySelector("svg"), frame = svg.getBoundingClientRect(), {width} = svg.viewBox.baseVal;
    const texts = [...svg.querySelectorAll("text")].map((text) => ({
        name: text.textContent, box: text.getBoundingClientRect(),
        size: parseFloat(getComputedStyle(text).fontSize) * frame.width / width})).filter(({box}) => box.width);
    const meet = (a, b) => a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom;
    const isWithin = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
    return texts.flatMap(({name, size, box}, i) => [
        ...(size < 9 ? [`${name}: ${size} px`] : []), ...(isWithin(box, frame) ? [] : [`${name}: cut off`]),
        ...texts.slice(i + 1).filter((other) => meet(box, other.box)).map((other) => `${name} on ${other.name}`)]);
})()"""


@pytest.mark.parametrize("name", ["architecture", "quality-over-time"])
@pytest.mark.parametrize("width", [390, 760])
def test_labels_of_drawings_can_be_read(name: str, width: int, browser: Browser, tmp_path: Path) -> None:
    """At 390 pixels, less a page's margins, they have 9 pixels at least."""
    drawing = (DOCS / "figures" / f"{name}.svg").read_text("utf-8")
    (tmp_path / "page.html").write_text(
        f"<style>body {{ margin: 16px }} svg {{ width: 100%; height: auto }}</style>{drawing}", "utf-8"
    )
    browser.show(width=width)
    browser.open((tmp_path / "page.html").as_uri())
    assert browser.evaluate("document.querySelectorAll('svg text').length") > 8
    assert browser.evaluate(FAULTS) == []


def test_the_first_picture_leads_to_the_page_that_translates_if_the_site_has_it() -> None:
    picture = '<a href="guide/attention.html#a-page-that-translates"><img alt="A page" src="figures/live.png" /></a>'
    files = {"live.html": object()}
    first, other = (SimpleNamespace(file=SimpleNamespace(src_uri=uri)) for uri in ("index.md", "guide/attention.md"))
    replaced = hook("live").on_page_content
    lookup = SimpleNamespace(get_file_from_path=files.get)
    assert replaced(picture, first, None, lookup) == picture.replace(picture.split('"')[1], "live.html")
    assert replaced(picture, other, None, lookup) == picture
    assert replaced(picture, first, None, SimpleNamespace(get_file_from_path={}.get)) == picture
    assert "](docs/figures/live.png)](docs/guide/attention.md#a-page-that-translates)" in README


def test_links_to_the_guide_of_the_page_that_learns_lead_to_the_page() -> None:
    link = '<p><a href="../guide/attention.html#a-page-that-learns">Watch it</a></p>'
    for uri, there in (("index.md", "learning.html"), ("learn/transformer.md", "../learning.html")):
        page = SimpleNamespace(file=SimpleNamespace(src_uri=uri))
        lookup = SimpleNamespace(get_file_from_path={}.get)
        shown = hook("live").on_page_content(link, page, None, lookup)
        assert shown == f'<p><a href="{there}">Watch it</a></p>'


def test_no_rule_lets_list_items_scroll() -> None:
    """The box of an item that scrolls cuts off its marker, such as "2.", which stands outside."""
    css = (DOCS / "assets" / "site.css").read_text("utf-8")
    scrolling = [selector for selector, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", css) if "overflow" in rule]
    assert len(scrolling) > 1
    assert [selector for selector in scrolling if re.search(r"\bli\b(?!\s*[>+~]?\s*\w)", selector)] == []


CUT_OFF = """[...document.querySelectorAll(".md-content li")]
    .filter((item) => getComputedStyle(item).overflowX != "visible").map((item) => item.textContent.slice(0, 60))"""


@pytest.mark.slow
def test_every_list_item_shows_its_marker(site: Path, browser: Browser) -> None:
    for name in ("learn/transformer.html", "notebooks/gradients.html", "guide/fine-tuning.html"):
        browser.open((site / name).as_uri())
        assert browser.evaluate(CUT_OFF) == [], name


WIDER = """[...document.querySelectorAll(BOXES)].filter((box) => box.scrollWidth > box.clientWidth + 1)
    .map((box) => box.textContent.trim().slice(0, 60))"""


@pytest.mark.slow
@pytest.mark.parametrize(("width", "boxes"), [
    (1_280, "pre > code, .md-typeset__scrollwrap, .md-content, html"), (390, "html"),
], ids=["desktop", "phone"])  # fmt: skip
def test_no_code_and_no_table_is_wider_than_its_box(site: Path, browser: Browser, width: int, boxes: str) -> None:
    """On a phone a wide table scrolls in its box, but the page does not."""
    browser.show(width=width, height=900)
    found = {}
    for page in pages_of(site):
        browser.open(page.as_uri())
        found[str(page.relative_to(site))] = browser.evaluate(WIDER.replace("BOXES", repr(boxes)))
    assert {name: wider for name, wider in found.items() if wider} == {}


@pytest.mark.slow
def test_a_search_finds_pages_that_are_opened_from_disk(site: Path, tmp_path: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("no Chromium here (Debian: apt install chromium)")
    browser = Browser(tmp_path)
    try:
        browser.open(f"file://{site}/index.html")
        browser.evaluate("document.querySelector('[for=__search]').click(), 1")
        browser.evaluate("""(() => {
            const input = document.querySelector('.md-search__input');
            input.focus();
            input.value = 'label smoothing';
            input.dispatchEvent(new Event('input', {bubbles: true}));
            input.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));
        })()""")
        shown = "document.querySelector('.md-search-result').innerText"
        wait_until(lambda: "matching documents" in browser.evaluate(shown))
        requested = [
            e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"
        ]
        assert [url for url in requested if not url.startswith(("file:", "data:"))] == []
    finally:
        browser.close()
