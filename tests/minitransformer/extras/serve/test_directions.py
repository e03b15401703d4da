"""A server of several directions: pivots, detected languages, and the requests of LibreTranslate's clients."""

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlencode

import pytest
from serving import ScriptedTranslator, client_of, directions_of, form, small_translator

from minitransformer.extras.serve.directions import SHORT_TEXT, Directions
from minitransformer.extras.serve.languages import Language

ENGLISH, GERMAN, FRENCH, SPANISH = map(Language, ("en", "de", "fr", "es"))
needs_detection = pytest.mark.skipif(find_spec("py3langid") is None, reason="py3langid is not installed")


def marking(mark: str) -> ScriptedTranslator:
    """A translator that writes a mark behind each word of letters."""
    return ScriptedTranslator(lambda line: re.sub(r"(?<!\S)[^\W\d][^\W\d-]*(-\w+)*(?!\S)", rf"\g<0>{mark}", line))


def star() -> Directions:
    """English to German and French, and both to English."""
    pairs = ("en_de", "en_fr", "de_en", "fr_en")
    return directions_of(**{pair: marking(f"-{pair[3:]}") for pair in pairs})


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with client_of(star()) as client:
        yield client


def codes(directions: Directions, source: Language, target: Language) -> list[str]:
    return [f"{each.source.code}-{each.target.code}" for each in directions.chain(source, target)]


def languages(pair: str) -> dict[str, str]:
    return {"source": pair[:2], "target": pair[3:]}


def test_a_pair_without_a_model_goes_by_english_or_another_language_that_two_models_share() -> None:
    pairs = ["de-es", "es-fr", "de-en", "en-fr", "fr-de"]
    assert codes(directions_of(*pairs), GERMAN, FRENCH) == ["de-en", "en-fr"]
    assert codes(directions_of(*pairs[:2]), GERMAN, FRENCH) == ["de-es", "es-fr"]
    assert codes(directions_of(*pairs, "de-fr"), GERMAN, FRENCH) == ["de-fr"]
    assert codes(directions_of(*pairs), FRENCH, ENGLISH) == ["fr-de", "de-en"]
    assert codes(directions_of(*pairs), GERMAN, GERMAN) == codes(directions_of("de-en"), ENGLISH, GERMAN) == []
    assert directions_of("de-en", "en-fr").pairs() == "de to en, en to fr, de to fr by en"


def test_every_language_is_listed_with_all_its_targets(client: Any) -> None:
    found = {each["code"]: each["targets"] for each in client.get("/languages").json()}
    assert found == {"en": ["de", "fr"], "de": ["en", "fr"], "fr": ["en", "de"]}


def test_each_direction_has_its_model_and_a_pivot_is_said(client: Any) -> None:
    for source, target, expected in (("en", "de", "one-de"), ("fr", "en", "one-en")):
        assert client.post("/translate", json=form("one") | {"source": source, "target": target}).json() == {
            "translatedText": expected
        }
    both = {"source": "de", "target": "fr"}
    assert client.post("/translate", json={"q": "one", **both}).json() == {"translatedText": "one-en-fr", "pivot": "en"}
    answer = client.post("/translate", json={"q": ["one", "two"], "alternatives": 1, **both}).json()
    assert answer["translatedText"] == ["one-en-fr", "two-en-fr"]
    assert answer["alternatives"] == [["one-en-fr!"], ["two-en-fr!"]], "those of the second model"
    assert answer["pivot"] == ["en", "en"]


def test_a_pivot_keeps_markup_placeholders_terms_and_notes(client: Any) -> None:
    both = {"source": "de", "target": "fr"}
    page = client.post("/translate", json={"q": "<p>one <b>two</b></p><pre>six</pre>", "format": "html", **both})
    assert page.json() == {"translatedText": "<p>one-en-fr <b>two-en-fr</b></p><pre>six</pre>", "pivot": "en"}
    fields = {"q": "One {0} dog. Two.", "glossary": {"dog": "ch1en"}, **both}
    answer = client.post("/translate", json=fields).json()
    assert answer["translatedText"] == "One-en-fr {0} ch1en. Two."
    assert [note["kind"] for note in answer["notes"]] == ["sentences"], "once"
    assert [answer["translatedText"][start:end] for start, end in answer["copied"]] == ["{0}", "ch1en"]


def test_a_file_goes_by_a_pivot_and_its_language_is_that_in_which_it_can_be_read(client: Any) -> None:
    unit = '<trans-unit id="1"><source>the <g id="1">dog</g> {0}</source></trans-unit>'
    head = '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="de"><body>'
    files = {"file": ("a.xlf", head + unit + "</body></file></xliff>")}
    answer = client.post("/translate_file", data={"source": "auto", "target": "fr"}, files=files).json()
    assert answer.pop("pivot") == "en"
    assert '<g id="1">dog-en-fr</g> {0}</target>' in client.get(answer["translatedFileUrl"]).text


def test_all_directions_spend_one_budget_and_a_pivot_spends_twice() -> None:
    """A word costs 27 tokens."""
    for pairs, statuses in ((("en-de", "de-en", "en-fr"), [200, 200, 429]), (("de-fr", "en-de"), [200, 429])):
        with client_of(star(), tokens_per_minute=60) as client:
            found = [client.post("/translate", json=form("one") | languages(pair)).status_code for pair in pairs]
            assert found == statuses


@pytest.mark.parametrize("fields", [{"source": "fr", "target": "fr"}, {"source": "es", "target": "fr"},
                                    {"source": "en", "target": "es"}])  # fmt: skip
def test_another_pair_is_refused_with_the_names_of_all_pairs(client: Any, fields: dict[str, str]) -> None:
    answer = client.post("/translate", json={"q": "one", **fields})
    assert answer.status_code == 400
    assert answer.json()["error"].endswith("; this server translates en to de, en to fr, de to en, fr to en,"
                                           " de to fr by en, fr to de by en")  # fmt: skip


def test_attention_is_that_of_the_model_of_its_direction() -> None:
    with client_of(directions_of("en-fr", de_en=small_translator())) as client:
        texts = {"q": "one two", "translation": "eins"}
        assert client.post("/attention", json=texts | {"source": "de"}).status_code == 400, "two targets"
        found = client.post("/attention", json=texts | {"source": "de", "target": "en"}).json()
        assert found["source"] == ["one", "two"]
        for fields in ({"target": "en"}, {"source": "fr"}, {"source": "de", "target": "fr"}):
            answer = client.post("/attention", json=texts | fields)
            assert (answer.status_code, "error" in answer.json()) == (400, True)
        assert "two models translate, by en" in answer.json()["error"]


LONG = {
    "de": "Der alte Mann kauft im Laden einen neuen Tisch und zwei Stühle.",
    "fr": "Le vieil homme achète une nouvelle table et deux chaises au magasin.",
    "en": "The old man buys a new table and two chairs in the shop.",
}


@needs_detection
def test_the_language_of_each_text_is_detected_among_those_of_the_server(client: Any) -> None:
    answer = client.post("/translate", json={"q": list(LONG.values()), "source": "auto", "target": "en"}).json()
    assert [each["language"] for each in answer["detectedLanguage"]] == list(LONG)
    assert all(each["confidence"] > 90 for each in answer["detectedLanguage"])
    assert answer["translatedText"][0].startswith("Der-en alte-en")
    assert answer["translatedText"][2] == LONG["en"], "it is in this language already"
    answer = client.post("/translate", json={"q": LONG["de"], "source": "auto", "target": "fr"}).json()
    assert (answer["detectedLanguage"]["language"], answer["pivot"]) == ("de", "en")
    found = client.post("/detect", data={"q": LONG["fr"]}).json()
    assert found[0]["language"] == "fr"
    assert {each["language"] for each in found} == set(LONG)
    assert sum(each["confidence"] for each in found) == pytest.approx(100, abs=1)


@needs_detection
def test_markup_does_not_count_and_a_short_text_has_the_language_of_all() -> None:
    directions = star()
    marked = (
        f'<p class="the small dog and the house">{LONG["de"]} <a href="https://the.example/of-the-house">@the</a></p>'
    )
    assert directions.detect(marked) == directions.detect(f"{LONG['de']}    ")
    short = "one"
    assert directions.detect_each([short])[0].language == ENGLISH
    assert [each.language for each in directions.detect_each([LONG["de"], short])] == [GERMAN] * 2
    assert len(short) <= SHORT_TEXT < len(LONG["en"])


@needs_detection
def test_a_text_file_is_translated_from_the_language_that_is_detected(client: Any) -> None:
    files = {"file": ("a.txt", LONG["fr"])}
    answer = client.post("/translate_file", data={"source": "auto", "target": "en"}, files=files).json()
    assert client.get(answer["translatedFileUrl"]).text.startswith("Le-en vieil-en")


@needs_detection
def test_a_detected_language_that_is_not_translated_to_the_target_is_refused() -> None:
    with client_of(directions_of("en-de", "fr-es")) as client:
        answer = client.post("/translate", json={"q": LONG["fr"], "source": "auto", "target": "de"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("German (de) is not available as a target language from French (fr); ")


def test_without_detection_auto_is_refused_unless_there_is_one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "py3langid", None)
    with client_of(directions_of("en-de", "de-en")) as client:
        answers = [client.post(path, json=form("one") | {"source": "auto"}) for path in ("/translate", "/detect")]
        assert 'value="auto"' not in client.get("/").text
    assert [answer.status_code for answer in answers] == [400, 400]
    assert answers[0].json()["error"] == "auto is not supported: this server cannot detect languages; name the source"
    assert directions_of("en-de", "en-fr").detect("x")[0] == (ENGLISH, 100.0)
    assert not directions_of("gsw-de", "xx-gsw").can_detect, "py3langid knows one of these languages only"


JSON = {"Content-Type": "application/json"}


@needs_detection
def test_mastodon_gets_languages_and_a_list_of_translations_with_their_languages(client: Any) -> None:
    """As in Mastodon 4.2: a text has source "auto" if it has no language; a poll's options follow it."""
    languages = client.get("/languages", headers=JSON).json()
    assert {each["code"]: set(each["targets"]) - {each["code"]} for each in languages}["de"] == {"en", "fr"}
    body = {"q": [f"<p>{LONG['de']}</p>", "ja"], "source": "auto", "target": "fr", "format": "html", "api_key": None}
    answer = client.post("/translate", content=json.dumps(body), headers=JSON).json()
    assert answer["translatedText"][0].startswith("<p>Der-en-fr alte-en-fr")
    assert [each["language"] for each in answer["detectedLanguage"]] == ["de", "de"]
    one = client.post("/translate", content=json.dumps(body | {"q": "<p>one</p>", "source": "en"}), headers=JSON).json()
    assert one == {"translatedText": "<p>one-fr</p>"}, "before version 4.2, q was a string"


def test_weblate_gets_codes_and_a_list_of_translations(client: Any) -> None:
    assert [each["code"] for each in client.get("/languages").json()] == ["en", "de", "fr"]
    fields = {"api_key": "", "q": ["one", "two %s"], "source": "en", "target": "fr"}
    assert client.post("/translate", json=fields).json()["translatedText"] == ["one-fr", "two-fr %s"]
    assert client.post("/translate", data=fields | {"q": "one"}).json() == {"translatedText": "one-fr"}


def test_libretranslatepy_and_deep_translator_get_their_answers(client: Any) -> None:
    """Versions 2.1.4 and 1.11.4: a form, a GET with a body, and fields in the address with an empty body."""
    fields = {"q": "one & two", "source": "de", "target": "en"}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = client.post("/translate", content=urlencode(fields), headers=headers).json()
    assert answer["translatedText"] == "one-en & two-en"
    assert len(client.request("GET", "/languages", content=b"", headers=headers).json()) == 3
    address = fields | {"format": "text", "api_key": "x"}
    assert client.post("/translate", params=address).json()["translatedText"] == "one-en & two-en"
