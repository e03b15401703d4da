"""The page as a file: one piece, nothing loaded, every word escaped, every number there."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attended import ODD_PAIR, pair_of
from logged_runs import write_logged_run

from minitransformer.extras.report.attended import AttendedPair
from minitransformer.extras.report.merging import merge_words
from minitransformer.extras.report.page import attention_page, page_data
from minitransformer.extras.report.run_page import run_page
from minitransformer.extras.report.run_record import read_runs
from minitransformer.extras.report.self_contained import embedded_json


class Structure(HTMLParser):
    """The elements of a page with their attributes and texts, as a browser's parser splits them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.is_open = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")
        self.is_open = True

    def handle_endtag(self, tag: str) -> None:
        self.is_open = False

    def handle_data(self, data: str) -> None:
        if self.is_open:
            self.texts[-1] += data

    def of(self, tag: str) -> list[str]:
        return [text for (name, _), text in zip(self.elements, self.texts, strict=True) if name == tag]

    def tags(self) -> list[str]:
        return [name for name, _ in self.elements]


PAGE = attention_page(ODD_PAIR)
STRUCTURE = Structure(PAGE)


def test_words_add_no_element_and_no_script() -> None:
    assert STRUCTURE.tags() == Structure(attention_page(pair_of(["a", "b"], ["c"]))).tags()
    assert STRUCTURE.tags().count("script") == 2
    assert STRUCTURE.of("title") == [f"Attention: {ODD_PAIR.sentence}"]


def test_the_data_are_the_words_and_the_weights() -> None:
    data = json.loads(STRUCTURE.of("script")[0])
    assert data == page_data(ODD_PAIR)
    assert data["words"] is None  # no word has two pieces
    assert_holds(data["pieces"], ODD_PAIR)


def test_the_words_of_several_pieces_are_there_merged_and_unmerged() -> None:
    pair = pair_of(["the", "hous", "·es"], ["die", "Häuser"])
    data = page_data(pair)
    assert_holds(data["pieces"], pair)
    assert_holds(data["words"], merge_words(pair))
    assert data["words"]["encoder"]["keys"] == ["the", "houses", "<EOS>"]
    kinds = page_data(pair_of(["a"], ["b"], n_layers=3, n_decoder_layers=1))["pieces"]
    assert {name: kind["layers"] for name, kind in kinds.items()} == {"encoder": 3, "decoder": 1, "encoder-decoder": 1}


def assert_holds(kinds: dict[str, Any], pair: AttendedPair) -> None:
    """Check that the data of a page's kinds are the words and the weights of a pair."""
    for kind in ("encoder", "decoder", "encoder-decoder"):
        queries, keys, weights = pair.of_kind(kind)  # type: ignore[arg-type]
        assert (kinds[kind]["queries"], kinds[kind]["keys"]) == (queries, keys)
        steps = np.frombuffer(base64.b64decode(kinds[kind]["weights"]), "<u2")
        np.testing.assert_allclose(steps.reshape(weights.shape) / 65_535, weights, atol=0.5 / 65_535)


def test_embedded_json_has_nothing_that_a_parser_of_html_or_script_could_stop_at() -> None:
    text = embedded_json(["</script><!--", "\u2028\u2029&", "ü🙂\ud800"])
    assert re.fullmatch(r"[\x20-\x7e]*", text)
    assert not set("<>&") & set(text)
    assert json.loads(text) == ["</script><!--", "\u2028\u2029&", "ü🙂\ud800"]


def test_the_policy_allows_this_script_and_this_style_and_nothing_else() -> None:
    policies = [attributes["content"] for _, attributes in STRUCTURE.elements if "http-equiv" in attributes]
    script, style = STRUCTURE.of("script")[1], STRUCTURE.of("style")[0]
    hashes = ["sha256-" + base64.b64encode(hashlib.sha256(x.encode()).digest()).decode() for x in (script, style)]
    assert policies == [
        f"default-src 'none'; script-src '{hashes[0]}'; style-src '{hashes[1]}'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    ]


@pytest.mark.parametrize("kind", ["attention", "runs"])
def test_nothing_is_loaded_from_anywhere_no_attribute_is_code_and_words_are_text(kind: str, tmp_path: Path) -> None:
    page = PAGE if kind == "attention" else run_page(read_runs([write_logged_run(tmp_path / "run")]))
    structure = Structure(page)
    attributes = [pair for _, pairs in structure.elements for pair in pairs.items()]
    assert not {name for name, _ in attributes if name == "style" or name.startswith("on")}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", page)
    loading = ("src", "href", "srcset", "action", "data", "poster")
    assert [value for name, value in attributes if name in loading] == ["data:,"]
    code = (structure.of("style")[0] + structure.of("script")[1]).replace("http://www.w3.org/2000/svg", "")  # a name
    assert not re.search(r"https?:|@import|url\(|//[a-z]", code)
