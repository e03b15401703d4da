"""The API: what clients of LibreTranslate send and get, and what is refused."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from serving import ScriptedTranslator, client_of, form, small_translator
from starlette.datastructures import QueryParams
from waiting import TIME_LIMIT

from minitransformer import Transformer, Translator
from minitransformer.extras.demo.task import DemonstrationTask
from minitransformer.extras.report.merging import without_key
from minitransformer.extras.serve import app, translated_files, word_attention
from minitransformer.extras.serve.translation_queue import TranslationQueue
from minitransformer.inference.attention import attention_weights
from minitransformer.inference.search import SearchConfig
from minitransformer.text.translation import Translation

JSON_BODY, FORM_BODY = ({"Content-Type": f"application/{kind}"} for kind in ("json", "x-www-form-urlencoded"))


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with client_of(ScriptedTranslator()) as client:
        yield client


@pytest.fixture(scope="module")
def real() -> Iterator[Any]:
    with client_of(small_translator()) as client:
        yield client


@pytest.mark.parametrize("text", [
    "<p>one <b>two</b> &amp; {0}</p>", "<p>one</p><script>two</script>3", "<p>one</p><p>1\xa00 <b>2</b> 3</p>",
])  # fmt: skip
def test_a_page_is_translated_with_its_markup(client: Any, text: str) -> None:
    expected = text.replace("one", "ONE").replace("two</b>", "TWO</b>")
    answer = client.post("/translate", json=form([text], format="html", alternatives=2)).json()
    assert answer == {"translatedText": [expected], "alternatives": [[]], "scores": [[-0.5]]}
    assert client.post("/translate", data=form(text, format="html")).json() == {"translatedText": expected}


TMX = '<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en-US"><seg>one</seg></tuv></tu></body></tmx>'
XLIFF = (
    '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en"><body>'
    '<trans-unit id="1"><source>the <g id="1">dog</g> {0}</source></trans-unit></body></file></xliff>'
)


def send_file(client: Any, name: str, content: str | bytes, **fields: str) -> Any:
    given = {"source": "en", "target": "de"} | fields
    return client.post("/translate_file", data=given, files={"file": (name, content)})


@pytest.mark.parametrize(("name", "content", "expected", "stored"), [
    ("a b/ä.TXT", "\ufeffone\r\n\n2", "ONE\r\n\n2", "__de.txt"),
    ("my.po", 'msgid "one {0}"\nmsgstr ""\n', 'msgstr "ONE {0}"', "my_de.po"),
    ("x.xlf", XLIFF, '<g id="1">DOG</g> {0}</target>', "x_de.xlf"),
    ("x.tmx", TMX, '<tuv xml:lang="de"><seg>ONE</seg></tuv>', "x_de.tmx"),
    ("en.json", '{"one": "one {0}"}', '{"one": "ONE {0}"}', "en_de.json"),
    ("strings.xml", "<resources><string>one</string></resources>", "<string>ONE</string>", "strings_de.xml"),
], ids=["text", "gettext", "xliff", "memory", "JSON", "Android"])  # fmt: skip
def test_a_file_is_translated_and_fetched(client: Any, name: str, content: str, expected: str, stored: str) -> None:
    address = send_file(client, name, content, source="auto").json()["translatedFileUrl"]
    assert address.startswith("http://testserver/download_file/")
    for _ in range(2):
        answer = client.get(address)
        assert (answer.status_code, expected in answer.text) == (200, True)
        assert answer.headers["content-disposition"] == f'attachment; filename="{stored}"'
    assert Path(stored).suffix in client.get("/frontend/settings").json()["supportedFilesFormat"]


@pytest.mark.parametrize(("name", "content", "fields", "message"), [
    ("x.exe", "MZ", {}, "file format not supported: expected .json, .po, "),
    ("x.ass", "one", {}, "file format not supported: is a file of subtitles, by its ending; take out numbers"),
    ("x.txt", "[Script Info]\none", {}, "file.txt: is a file of subtitles, not plain UTF-8 text; take out numbers"),
    ("x.txt", b"\xff", {}, "file.txt: is not UTF-8 text"),
    ("x.txt", "one", {"source": ""}, "missing source parameter"), ("x.txt", "one", {"target": ""}, "missing target"),
    ("x.txt", "one", {"target": "zz"}, "zz is not supported"),
    ("x.xlf", "<xliff", {}, "file.xlf, line 1: cannot be read"),
    ("x.tmx", TMX.replace("en-US", "fr"), {}, "file.tmx: no unit has text in en"),
    ("x.po", "/etc/hosts", {}, "PO file"),
    ("x.po", 'msgid ""\nmsgstr "Language: fr\\n"\n', {}, "file.po: its language is fr, not de"),
])  # fmt: skip
def test_other_files_are_refused(client: Any, name: str, content: str, fields: dict[str, str], message: str) -> None:
    answer = send_file(client, name, content, **fields)
    assert (answer.status_code, message in answer.json()["error"]) == (400, True), answer.text


def test_none_or_two_files_and_one_that_is_too_large_or_too_old(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ({}, {"data": {"file": "one"}}, {"files": [("file", ("x.txt", "one"))] * 2}):
        assert client.post("/translate_file", **given).status_code == 400
    assert send_file(client, "x.txt", "one " * 21).status_code == 413
    many_tags = XLIFF.replace("the <g", '<x id="2"/>' * 1_000 + "the <g")
    assert "a text has more than 1000 tags" in send_file(client, "x.xlf", many_tags).json()["error"]
    monkeypatch.setattr(translated_files, "MOST_BYTES", 5)
    first, second = (send_file(client, "x.txt", text).json()["translatedFileUrl"] for text in ("one", "two"))
    assert [client.get(each).status_code for each in (first, second)] == [404, 200]
    assert 'path="/download_file/{name}",status="404"' in client.get("/metrics").text
    monkeypatch.setattr(translated_files, "KEPT_SECONDS", 0.0)
    assert client.get(send_file(client, "x.txt", "one").json()["translatedFileUrl"]).status_code == 404


def test_the_specification_names_the_paths_of_the_api(client: Any) -> None:
    found = client.get("/spec").json()
    assert found["swagger"] == "2.0"
    for path, methods in found["paths"].items():
        (method,) = methods
        assert client.request("PUT", path).headers["allow"].split(", ")[0] in {"GET", "HEAD", method.upper()}
    fields = {field["name"]: field["required"] for field in found["paths"]["/translate"]["post"]["parameters"]}
    for name, is_required in fields.items():
        given = {key: value for key, value in form("one").items() if key != name}
        assert (client.post("/translate", data=given).status_code == 400) == is_required


def test_a_model_translates(real: Any) -> None:
    (expected,) = small_translator().n_best(["one two"], SearchConfig(beam=4, n_best=3), n_threads=1)
    answer = real.post("/translate", json=form("one two", alternatives=2)).json()
    assert [answer["translatedText"], *answer["alternatives"]] == [t.text for t in expected]
    assert answer["scores"] == pytest.approx([t.score for t in expected], abs=1e-3)


@pytest.mark.parametrize("how", ["json", "data", "content", "files", "params"])
def test_json_both_kinds_of_form_and_fields_in_the_address(client: Any, how: str) -> None:
    """A form in "content" has letters that are not percent-encoded, as curl's."""
    fields = form("müller\n\ntwo")
    given = {
        "files": {name: (None, value) for name, value in fields.items()},
        "content": "&".join(f"{name}={value}" for name, value in fields.items()).encode(),
    }.get(how, fields)
    headers = {"params": {"Content-Type": "text/plain"}, "content": FORM_BODY}.get(how, {})
    answer = client.post("/translate", **{how: given}, headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"translatedText": "MÜLLER\n\nTWO"})


def test_the_time_to_read_fields_grows_as_their_number() -> None:
    many, begin = QueryParams([(str(i), "") for i in range(40_000)]), time.process_time()
    assert len(app._collect_fields(many)) == 40_000
    assert time.process_time() - begin < 2  # milliseconds; at least 10 seconds if it grew as the square


DETECTED = {"confidence": 100.0, "language": "en"}
ODD = "<script>alert(1)</script>\x00\x1b[31m שלום \u202e! 🙂&lt;b&gt;"


@pytest.mark.parametrize(("path", "fields", "answer"), [
    ("/translate", {"q": "one", "source": "auto"}, {"translatedText": "ONE", "detectedLanguage": DETECTED}),
    ("/translate", {"q": ["one", "2"], "source": "auto"},
        {"translatedText": ["ONE", "2"], "detectedLanguage": [DETECTED] * 2}),
    ("/translate", {"q": "😀\n 1.5 %"}, {"translatedText": "😀\n 1.5 %"}),
    ("/translate", {"q": ["😀", "😁"]}, {"translatedText": ["😀", "😁"]}),
    ("/translate", {"q": "1", "alternatives": 2}, {"translatedText": "1", "alternatives": [], "scores": [0.0]}),
    ("/detect", {"q": "one"}, [DETECTED]), ("/detect", {"q": ["one", "two"]}, [DETECTED]),
    ("/detect", {"r": "one"}, {"error": "Invalid request: missing q parameter"}),
], ids=range(8))  # fmt: skip
def test_any_text_comes_back_as_data_perhaps_with_its_language(
    client: Any, path: str, fields: Any, answer: Any
) -> None:
    found = client.post(path, json={"source": "en", "target": "de"} | fields)
    assert (found.json(), found.headers["content-type"]) == (answer, "application/json")


def test_odd_characters_and_markup_come_back_as_data(client: Any) -> None:
    found = client.post("/translate", json=form(ODD)).json()["translatedText"]
    assert sorted(found.lower()) == sorted(ODD)


@pytest.mark.parametrize("how", ["data", "files"])
def test_a_list_and_a_form_with_a_field_repeated_give_lists_and_a_file_is_refused(client: Any, how: str) -> None:
    def answer(**fields: Any) -> Any:
        given = {"data": fields} if how == "data" else {"files": [(n, (None, v)) for n in fields for v in fields[n]]}
        return client.post("/translate", **given)

    languages = {"source": ["en"], "target": ["de"]}
    assert answer(q=["one", "two"] * 25, **languages).json() == {"translatedText": ["ONE", "TWO"] * 25}
    assert answer(q=["one"], **(languages | {"target": ["fr", "de"]})).status_code == 400
    refused = client.post("/translate", data={"source": "en", "target": "de"}, files={"q": ("name.txt", b"one")})
    assert (refused.status_code, "error" in refused.json()) == (400, True)
    found = client.post("/translate", json=form(["one", "", "two\n\nsix"], alternatives=2)).json()
    assert found["translatedText"] == ["ONE", "", "TWO\n\nSIX"]
    assert found["alternatives"] == [["ONE!", "ONE!!"], [], ["TWO!\n\nSIX!", "TWO!!\n\nSIX!!"]]
    assert found["scores"] == [[-0.5, -1.5, -2.5], [0.0], [-1.0, -3.0, -5.0]]


@pytest.mark.parametrize(("body", "headers", "status"), [
    (b"", JSON_BODY, 400), (b"[1]", JSON_BODY, 400), (b"{", JSON_BODY, 400), (b'{"q": "\xff"}', JSON_BODY, 400),
    (b"[" * 2_000, JSON_BODY, 400), (b"1" * 5_000, JSON_BODY, 400),
    (b'{"q": "one"}', {"Content-Type": "text/plain"}, 415), (b'{"q": "one"}', {}, 415),
    (b"q=%ff&source=en&target=de", FORM_BODY, 200), (b"q=\xff&source=en&target=de", FORM_BODY, 400),
    (b"&" * 3_000, FORM_BODY, 400), (b"a=&" * 3_000, FORM_BODY, 400),
    (b"--x\r\nbroken", {"Content-Type": "multipart/form-data; boundary=x"}, 400),
    (b"--x", {"Content-Type": "multipart/form-data"}, 400), (b" " * 100_000, JSON_BODY, 413),
], ids=range(15))  # fmt: skip
def test_any_body_is_answered(client: Any, body: bytes, headers: dict[str, str], status: int) -> None:
    answer = client.post("/translate", content=body, headers=headers)
    assert answer.status_code == status
    assert ("error" in answer.json()) == (status != 200)


def test_limits_of_length() -> None:
    texts = {"a " * 21: 413, "a\n" * 99: 413, "a" * 201: 400, "a" * 200: 200, " \n" * 99: 200}
    with client_of(ScriptedTranslator(), tokens_waiting=1_000) as client:
        assert {text: client.post("/translate", json=form(text)).status_code for text in texts} == texts
    with client_of(ScriptedTranslator(), tokens_per_minute=26) as client:
        answer = client.post("/translate", json=form("one"))
    error = "Invalid request: it may cost 27 tokens; send less text at once"
    assert (answer.status_code, answer.json()["error"]) == (413, error)


def test_a_failure_is_one_message_without_the_text(client: Any, logged: list[str]) -> None:
    answer = client.post("/translate", json=form("fail secretly"))
    assert (answer.status_code, answer.json()) == (500, {"error": "the translation failed"})
    assert [line for line in logged if "secretly" in line] == []
    assert logged[0] == "warning: a request failed: FloatingPointError"


def test_what_is_asked_before_the_first_text(client: Any) -> None:
    english, german = client.get("/languages").json()
    assert english == {"code": "en", "name": "English", "targets": ["de"]}
    assert german["targets"] == []
    for path in ("/health", "/ready"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    settings = client.get("/frontend/settings").json()
    assert (settings["charLimit"], settings["keyRequired"]) == (200, False)
    assert settings["language"]["target"] == {"code": "de", "name": "German"}


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/detect", 405), ("GET", "/translate", 405), ("POST", "/", 405), ("GET", "/nowhere", 404),
    ("GET", "/../pyproject.toml", 404),
])  # fmt: skip
def test_what_is_not_there_is_refused_in_json(client: Any, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/languages", "/metrics", "/nowhere"])
def test_every_answer_has_the_headers_and_no_cookie(client: Any, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
    assert "unsafe" not in policy
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert headers["cache-control"] == "no-store"
    assert not {"set-cookie", "access-control-allow-origin"} & set(headers)


def test_the_page_names_its_languages_and_no_other_address(client: Any) -> None:
    page = client.get("/").text
    assert 'data-alternatives="3"' in page
    assert '<option value="en" data-targets="de">English</option>' in page
    for text in (page, client.get("/page.js").text, client.get("/page.css").text):
        assert not any(word in text for word in ("http:", "https:", "//cdn", "@import", "innerHTML", "style="))


def test_the_page_of_the_demonstration_says_which_words_it_knows(real: Any) -> None:
    with client_of(small_translator(), known_words=DemonstrationTask("de").known_words) as client:
        pages = [each.get("/").text for each in (client, real)]
    assert ["nouns: man, woman, boy" in page for page in pages] == [True, False]
    assert ['<details id="known" class="note" hidden>' in page for page in pages] == [False, True]


def test_a_name_that_leads_to_this_machine_is_refused_if_the_server_is_for_it_alone() -> None:
    with client_of(ScriptedTranslator(), local_only=True) as client:
        hosts = {"localhost:5000": 200, "127.0.0.1": 200, "[::1]:80": 200, "evil.example:5000": 403}
        for host, status in hosts.items():
            headers = {"Host": host, "Origin": f"http://{host}"}
            answer = client.post("/translate", json=form("one"), headers=headers)
            assert answer.status_code == status
        assert answer.json()["error"] == (
            "only pages of the server's own origin on this machine may ask;"
            " this one is of http://evil.example:5000, and asks evil.example:5000"
        )
        assert client.post("/translate", json=form("one"), headers={"Host": "evil.example"}).status_code == 200


GOOD, EVIL = "https://good.example", "https://evil.example"


@pytest.mark.parametrize(("allowed", "origins"), [
    ((), {"http://testserver": 200, EVIL: 403, "null": 403}),
    ((GOOD,), {GOOD: 200, EVIL: 403}), (("*",), {"null": 200}),
    ((GOOD, "moz-extension://*"), {GOOD: 200, "moz-extension://c0-1f": 200, "chrome-extension://c0": 403, EVIL: 403}),
])  # fmt: skip
def test_pages_of_other_origins_are_refused_unless_allowed(allowed: tuple[str, ...], origins: dict[str, int]) -> None:
    with client_of(ScriptedTranslator(), allowed_origins=allowed) as client:
        for origin, status in origins.items():
            answer = client.post("/translate", json=form("one"), headers={"Origin": origin})
            assert answer.status_code == status
            assert status == 200 or f"this one is of {origin}, and asks testserver" in answer.json()["error"]
            expected = ("*" if "*" in allowed else origin) if status == 200 and allowed else None
            assert answer.headers.get("access-control-allow-origin") == expected
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        for origin, status in origins.items() if allowed else ():
            preflight = client.options("/translate", headers={"Origin": origin, **asked})
            assert preflight.status_code == {403: 400}.get(status, status), origin
        assert allowed or client.options("/translate", headers={"Origin": GOOD, **asked}).status_code == 405


def test_the_answer_to_a_page_that_is_refused_ends_with_the_remedy() -> None:
    with client_of(ScriptedTranslator(), origin_remedy="allow it") as client:
        answer = client.post("/translate", json=form("one"), headers={"Origin": EVIL})
    assert answer.json()["error"].endswith(f"this one is of {EVIL}, and asks testserver; allow it")


@pytest.mark.parametrize("path", ["//translate", "///translate", "/translate/"])
def test_the_address_of_the_server_may_end_in_a_slash(path: str) -> None:
    """Clients join "http://testserver/" and "/translate"."""
    with client_of(ScriptedTranslator()) as client:
        answer = client.post(f"http://testserver{path}", json=form("one"))
        assert answer.json() == client.post("/translate", json=form("one")).json()
        assert 'path="other"' not in client.get("//metrics").text


def test_a_page_of_an_allowed_origin_can_read_refusals() -> None:
    with client_of(ScriptedTranslator(), tokens_per_minute=30, allowed_origins=(GOOD,)) as client:
        answers = [client.post("/translate", json=form("fail"), headers={"Origin": GOOD}) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {429, 500}
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == GOOD
        assert answer.headers["access-control-expose-headers"] == "Retry-After"


@pytest.mark.parametrize(("path", "fields"), [
    ("/translate", form("one", as_is=True)), ("/attention", {"q": "one two", "translation": "eins zwei"}),
])  # fmt: skip
def test_a_client_that_asks_for_too_much_is_told_when_to_come_back(path: str, fields: dict[str, Any]) -> None:
    with client_of(small_translator(), tokens_per_minute=60) as client:
        statuses = [(answer := client.post(path, json=fields)).status_code for _ in range(12)]
        assert statuses[0] == 200
        assert statuses[-1] == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert answer.json() == {"error": "Slowdown: 60 tokens per 1 minute"}
        assert client.get("/health").status_code == 200


class Waiting(ScriptedTranslator):
    """A translator whose search for "long" pauses for other work until the test lets it end."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_end = Event(), Event()

    def n_best(self, lines: Sequence[str], config: SearchConfig, **more: Any) -> list[list[Translation]]:
        while lines == ["long"] and not self.may_end.is_set():
            more["wanted"]()
            self.has_begun.set()
        return super().n_best(lines, config)


def test_a_full_queue_is_status_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "attention_cost", lambda *arguments: 60)
    translator = Waiting()
    with client_of(translator) as client:
        client.queue.translate(translator, ["long"], [600], 1)
        assert translator.has_begun.wait(TIME_LIMIT)
        client.queue.translate(translator, ["longer"] * 8, [600] * 8, 1)
        client.queue.max_tokens = 8 * 600
        for path, fields in (("/translate", form("one")), ("/attention", {"q": "one", "translation": "eins"})):
            answer = client.post(path, json=fields)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert (client.get("/ready").status_code, client.get("/health").status_code) == (503, 200)
        assert "minitransformer_waiting 8.0" in client.get("/metrics").text
        translator.may_end.set()


@pytest.mark.parametrize(("host", "network"), [("10.0.0.1", "10.0.0.1"), ("2001:db8::1:2", "2001:db8::/64")])
def test_all_work_of_a_request_belongs_to_the_network_of_its_client(
    host: str, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = list[tuple[str, str]]()

    def watch(name: str) -> None:
        method = getattr(TranslationQueue, name)

        def watched(queue: Any, *given: Any, client: str = "", **named: Any) -> Any:
            clients.append((name, client))
            return method(queue, *given, client=client, **named)

        monkeypatch.setattr(TranslationQueue, name, watched)

    watch("translate")
    watch("call")
    with client_of(small_translator()) as client:
        client._transport.client = (host, 50_000)
        for fields in (form("one"), form("<b>two</b>", format="html"), form("six", alternatives=2)):
            assert client.post("/translate", json=fields).status_code == 200
        assert client.post("/attention", json={"q": "one", "translation": "eins"}).status_code == 200
        assert send_file(client, "a.txt", "one").status_code == 200
    assert {each for _, each in clients} == {network}
    assert [name for name, _ in clients].count("translate") >= 4


def test_a_stopping_server_is_status_503() -> None:
    with client_of(ScriptedTranslator()) as client:
        assert client.queue.close(TIME_LIMIT)
        answers = [client.post("/translate", json=form("one")), client.get("/health"), client.get("/ready")]
    for answer in answers:
        assert (answer.status_code, answer.json()) == (503, {"error": "the server is stopping"})


def test_metrics_count_requests_by_path_and_status_and_hold_no_text() -> None:
    with client_of(ScriptedTranslator()) as client:
        client.post("/translate", json=form(["private words", "endless"]))
        client.post("/translate", json={})
        client.get("/private-path")
        text = client.get("/metrics").text
    for path, status in (("/translate", 200), ("/translate", 400), ("other", 404)):
        assert f'minitransformer_requests_total{{path="{path}",status="{status}"}} 1.0' in text
    assert "minitransformer_batch_sentences_sum 3.0" in text  # the endless one is searched again
    assert "minitransformer_cut_translations_total 2.0" in text
    assert "private" not in text


def test_attention_between_words_is_that_between_their_pieces(real: Any) -> None:
    translator, source, target = small_translator(), "seven three one", "sieben eins"
    tokenizer = translator.tokenizer
    pieces = tokenizer.source_pieces(source), tokenizer.target.encode(target, out_type=str)
    assert len(pieces[0]) > 3, "some word has several pieces"
    ids = tokenizer.encode_source([source])[0], tokenizer.encode_target([target])[0]
    weights = without_key(attention_weights(translator.model, *ids).encoder_decoder[0].mean(0), -1)
    keys, queries = (np.cumsum([piece.startswith("▁") for piece in side]) - 1 for side in pieces)
    expected = np.zeros((2, 3))
    np.add.at(expected, np.ix_(queries, keys), weights[: len(queries)] / np.bincount(queries)[queries, None])
    answer = real.post("/attention", json={"q": source, "translation": target}).json()
    assert (answer["source"], answer["translation"]) == (source.split(), target.split())
    np.testing.assert_allclose(answer["weights"], expected, atol=1e-3)


def test_attention_to_a_line_in_capitals_is_that_to_what_the_model_reads() -> None:
    with client_of(small_translator()) as client:
        texts = {"q": "Seven three one", "translation": "Sieben eins"}
        read = client.post("/attention", json=texts).json()
        capitals = client.post("/attention", json={name: text.upper() for name, text in texts.items()}).json()
    assert capitals == {name: [x.upper() if isinstance(x, str) else x for x in read[name]] for name in read}


def test_a_text_beyond_the_positions_of_the_model_has_no_attention() -> None:
    translator = small_translator()
    config = replace(translator.model.config, positions="learned", max_positions=6)
    with client_of(Translator(Transformer(config), translator.tokenizer)) as client:
        for text in ("one", "one two three four five six"):
            answer = client.post("/attention", json={"q": "one", "translation": text})
            assert answer.status_code == (200 if text == "one" else 413)


def test_attention_of_nothing_and_of_too_much(real: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = real.post("/attention", json={"q": " ", "translation": " "})
    assert empty.json() == {"source": [], "translation": [], "weights": []}
    assert real.post("/attention", json={"q": "one"}).status_code == 400
    monkeypatch.setattr(word_attention, "MOST_TOKENS", 2)
    assert real.post("/attention", json={"q": "one two three", "translation": "eins"}).status_code == 413
