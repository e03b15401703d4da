"""Requests and answers in LibreTranslate's words, and the languages of a server."""

import contextlib
import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import directions_of, form, small_translator

from minitransformer.config import ConfigError, RunConfig
from minitransformer.extras.serve.directions import Direction, Directions
from minitransformer.extras.serve.languages import Language, pairs_of
from minitransformer.extras.serve.translation_request import Limits, RequestError, TranslationRequest, request_of

LIMITS, ENGLISH_GERMAN = Limits(characters=20, alternatives=3), directions_of("en-de")
PAIR = Language("en"), Language("de")


def test_a_text_and_a_list_of_texts() -> None:
    assert request_of(form("one\ntwo "), ENGLISH_GERMAN, LIMITS) == TranslationRequest(("one\ntwo ",), False, *PAIR)
    assert request_of(form(["one", ""]), ENGLISH_GERMAN, LIMITS) == TranslationRequest(("one", ""), True, *PAIR)
    assert (
        request_of(form("one", alternatives="2", format="text", api_key="x"), ENGLISH_GERMAN, LIMITS).alternatives == 2
    )
    for source, target in (("EN", "De"), ("en-US", "de_AT"), ("en", "de")):
        found = request_of({"q": "one", "source": source, "target": target}, ENGLISH_GERMAN, LIMITS)
        assert (found.source, found.target) == PAIR
    regional = Directions([Direction(Language("en-us"), Language("en-gb"), small_translator())])
    assert request_of({"q": "one", "source": "en", "target": "en"}, regional, LIMITS).texts == ("one",)


MISSING = "Invalid request: missing {} parameter"
PAIRS = "; this server translates en to de"
NO_TEXT = "Invalid request: q must be a string or a list of strings"


@pytest.mark.parametrize(("fields", "message"), [
    ({}, MISSING.format("q")), ({"q": "one"}, MISSING.format("source")),
    ({"q": "one", "source": "en"}, MISSING.format("target")), (form(""), MISSING.format("q")),
    (form([]), MISSING.format("q")), (form(5), NO_TEXT), (form(["one", None]), NO_TEXT), (form({"a": 1}), NO_TEXT),
    (form(["x" * 11, "y" * 10]), "Invalid request: request (21) exceeds text limit (20)"),
    (form("a\ud800"), "Invalid request: q holds half of a surrogate pair"),
    (form("one") | {"source": "fr"}, "fr is not supported" + PAIRS),
    (form("one") | {"target": "auto"}, "auto is not supported" + PAIRS),
    (form("one") | {"target": ["de"]}, "['de'] is not supported" + PAIRS),
    (form("one") | {"target": "\ud800" + "x" * 99}, "?" + "x" * 19 + " is not supported" + PAIRS),
    (form("one") | {"source": "de", "target": "en"},
     "English (en) is not available as a target language from German (de)" + PAIRS),
    (form("one") | {"target": "en"}, "English (en) is not available as a target language from English (en)" + PAIRS),
    (form("one", format="xml"), "xml format is not supported"),
    *((form("one", alternatives=n), "Invalid request: alternatives parameter is not a number")
      for n in ("many", [1], float("inf"))),
    (form("one", alternatives=4), "Invalid request: alternatives parameter must be <= 3"),
])  # fmt: skip
def test_wrong_requests_are_refused_with_a_reason(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        request_of(fields, ENGLISH_GERMAN, LIMITS)
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
        found = request_of({"source": "en", "target": "de"} | fields, ENGLISH_GERMAN, LIMITS)
        assert all(isinstance(text, str) for text in found.texts)
        assert sum(map(len, found.texts)) <= 20
        assert 0 <= found.alternatives <= 3


def test_a_body_holds_any_text_of_the_allowed_length() -> None:
    """JSON writes an emoji in 12 bytes, as does a form."""
    assert Limits(characters=10_000, alternatives=0).body_bytes > 12 * 10_000 + len(string.printable)


def codes(
    folder: Path, data: dict[str, Any] | None, given: tuple[str | None, str | None], **more: Any
) -> tuple[str, str]:
    """The languages of a run with these settings of data and more facts, or of a model without a run."""
    if data is not None:
        run = json.loads(RunConfig().to_json()) | more
        (folder / "run.json").write_text(json.dumps(run | {"data": run["data"] | data}), encoding="utf-8")
    ((source, target),) = pairs_of(folder, *given)
    return source.code, target.code


UNKNOWN: list[Any] = [["train.txt"], ["train.en", "train.fr"], ["train"], "train.en", None]
NONE, FRENCH, MEMORY = (None, None), {"train_target": ["train.fr"]}, {"train_source": ["m.tmx"]}


@pytest.mark.parametrize(("data", "given", "expected"), [
    ({}, NONE, ("en", "de")),  # the demonstration
    *((FRENCH | {"train_source": names}, NONE, ("en", "fr"))
        for names in (["train.en"], ["a/europarl.de-en.en.gz", "news.en"], ["corpus.en.XZ"])),
    *((FRENCH | {"train_source": names}, (code, None), (code.lower(), "fr"))
        for names in UNKNOWN for code in ("en", "pt-BR")),
    (None, ("en", "gsw"), ("en", "gsw")), (MEMORY | {"languages": ["en_US", "fr"]}, NONE, ("en-us", "fr")),
    ({"train_source": ["m.tmx", "a.en"], "train_target": ["a.fr"]}, NONE, ("en", "fr")),
])  # fmt: skip
def test_languages_are_given_or_those_of_the_training_text(
    tmp_path: Path, data: Any, given: Any, expected: Any
) -> None:
    assert codes(tmp_path, data, given) == expected


def test_languages_that_memories_named_when_they_were_prepared_are_known(tmp_path: Path) -> None:
    assert codes(tmp_path, MEMORY, NONE, languages=["en", "de-AT"]) == ("en", "de-at")
    assert Language("gsw").name == "gsw"


@pytest.mark.parametrize(("data", "given", "message"), [
    *((FRENCH | {"train_source": names}, NONE, r"say its source language; set source \(a code, such as en\)$")
        for names in UNKNOWN),
    (None, ("en", None), "its target language"), (MEMORY, NONE, "source and target language"),
    (None, NONE, r"its source and target language; set source \(.*\) and set target \(.*\)$"),
    (None, ("English <b>", "de"), 'language must be a code such as "en" or "pt-BR"; got'),
])  # fmt: skip
def test_languages_that_nothing_names_are_asked_for(tmp_path: Path, data: Any, given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        codes(tmp_path, data, given)
