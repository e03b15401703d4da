"""Requests and answers in LibreTranslate's words, and the languages of a server."""

import contextlib
import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import LANGUAGES, form

from minitransformer.config import ConfigError, RunConfig
from minitransformer.extras.serve.languages import Language, Languages, languages_of
from minitransformer.extras.serve.translation_request import Limits, RequestError, TranslationRequest, request_of

LIMITS = Limits(characters=20, alternatives=3)


def test_a_text_and_a_list_of_texts() -> None:
    assert request_of(form("one\ntwo "), LANGUAGES, LIMITS) == TranslationRequest(("one\ntwo ",), False)
    assert request_of(form(["one", ""]), LANGUAGES, LIMITS) == TranslationRequest(("one", ""), True)
    assert request_of(form("one", alternatives="2", format="text", api_key="x"), LANGUAGES, LIMITS).alternatives == 2
    for source, target in (("EN", "De"), ("en-US", "de_AT"), ("en", "de")):
        assert request_of({"q": "one", "source": source, "target": target}, LANGUAGES, LIMITS).detected is None
    regional = Languages(Language("en-us"), Language("en-gb"))
    assert request_of({"q": "one", "source": "en", "target": "en"}, regional, LIMITS).texts == ("one",)


def test_only_line_feeds_end_lines() -> None:
    lines = TranslationRequest((" one\r\n\r\ntwo\u2028three\n", ""), True).lines
    assert lines == [["one", "", "two\u2028three", ""], [""]]


MISSING = "Invalid request: missing {} parameter"
NO_TEXT = "Invalid request: q must be a string or a list of strings"


@pytest.mark.parametrize(("fields", "message"), [
    ({}, MISSING.format("q")), ({"q": "one"}, MISSING.format("source")),
    ({"q": "one", "source": "en"}, MISSING.format("target")), (form(""), MISSING.format("q")),
    (form([]), MISSING.format("q")), (form(5), NO_TEXT), (form(["one", None]), NO_TEXT), (form({"a": 1}), NO_TEXT),
    (form(["x" * 11, "y" * 10]), "Invalid request: request (21) exceeds text limit (20)"),
    (form("a\ud800"), "Invalid request: q holds half of a surrogate pair"),
    (form("one") | {"source": "fr"}, "fr is not supported"),
    (form("one") | {"target": "auto"}, "auto is not supported"),
    (form("one") | {"target": ["de"]}, "['de'] is not supported"),
    (form("one") | {"target": "\ud800" + "x" * 99}, "?" + "x" * 19 + " is not supported"),
    (form("one") | {"source": "de", "target": "en"},
     "English (en) is not available as a target language from German (de)"),
    (form("one") | {"target": "en"}, "English (en) is not available as a target language from English (en)"),
    (form("one", format="xml"), "xml format is not supported"),
    *((form("one", alternatives=n), "Invalid request: alternatives parameter is not a number")
      for n in ("many", [1], float("inf"))),
    (form("one", alternatives=4), "Invalid request: alternatives parameter must be <= 3"),
])  # fmt: skip
def test_wrong_requests_are_refused_with_a_reason(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        request_of(fields, LANGUAGES, LIMITS)
    assert (caught.value.status, caught.value.message) == (400, message)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["q", "format", "alternatives", "target"]), JSON))
@settings(max_examples=30)
def test_any_fields_are_understood_or_refused(fields: dict[str, Any]) -> None:
    with contextlib.suppress(RequestError):
        found = request_of({"source": "en", "target": "de"} | fields, LANGUAGES, LIMITS)
        assert all(isinstance(text, str) for text in found.texts)
        assert sum(map(len, found.texts)) <= 20
        assert 0 <= found.alternatives <= 3


def test_a_body_holds_any_text_of_the_allowed_length() -> None:
    """JSON writes an emoji in 12 bytes, as does a form."""
    assert Limits(characters=10_000, alternatives=0).body_bytes > 12 * 10_000 + len(string.printable)


def run_of(folder: Path, **data: Any) -> Path:
    settings = json.loads(RunConfig().to_json())
    settings["data"] |= data
    (folder / "run.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def codes(run: Path, *given: str | None) -> tuple[str, str]:
    found = languages_of(run, *(given or (None, None)))
    return found.source.code, found.target.code


def test_the_demonstration_is_english_to_german_and_files_end_in_their_language(tmp_path: Path) -> None:
    assert codes(run_of(tmp_path)) == ("en", "de")
    for names in (["train.en"], ["a/europarl.de-en.en.gz", "news.en"], ["corpus.en.XZ"]):
        assert codes(run_of(tmp_path, train_source=names, train_target=["train.fr"])) == ("en", "fr")


@pytest.mark.parametrize("names", [["train.txt"], ["train.en", "train.fr"], ["train"], "train.en", None])
def test_other_names_say_nothing_and_options_are_needed(tmp_path: Path, names: Any) -> None:
    run = run_of(tmp_path, train_source=names, train_target=["train.de"])
    with pytest.raises(ConfigError, match=r"say its source language; set source \(a code, such as en\)$"):
        codes(run)
    assert codes(run, "en", None) == ("en", "de")
    assert codes(run, "pt-BR", None) == ("pt-br", "de")


def test_a_model_without_a_run_needs_both_options_each_a_code(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its target language"):
        codes(tmp_path, "en", None)
    with pytest.raises(ConfigError, match=r"its source and target language; set source \(.*\) and set target \(.*\)$"):
        codes(tmp_path)
    assert codes(tmp_path, "en", "gsw") == ("en", "gsw")
    assert languages_of(tmp_path, "en", "gsw").target.name == "gsw"
    with pytest.raises(ConfigError, match='language must be a code such as "en" or "pt-BR"; got'):
        codes(tmp_path, "English <b>", "de")


def test_memories_are_in_the_languages_that_the_run_names(tmp_path: Path) -> None:
    run = run_of(tmp_path, train_source=["m.tmx"], languages=["en_US", "fr"])
    assert codes(run) == ("en-us", "fr")
    run = run_of(tmp_path, train_source=["m.tmx", "a.en"], train_target=["a.fr"])
    assert codes(run) == ("en", "fr")
    with pytest.raises(ConfigError, match="source and target language"):
        codes(run_of(tmp_path, train_source=["m.tmx"]))
    written = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    (tmp_path / "run.json").write_text(json.dumps(written | {"languages": ["en", "de-AT"]}), encoding="utf-8")
    assert codes(tmp_path) == ("en", "de-at")  # those that the memory named when it was prepared
