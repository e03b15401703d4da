"""The server as a process: translations, signals, hostile connections, and its page in a browser."""

import contextlib
import json
import random
import re
import resource
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import numpy as np
import psutil
import pytest
from browser import Browser
from number_words import NUMBERS
from serving import ROOT, Served, form, served, small_translator
from small_run import Command, Trained
from waiting import TIME_LIMIT, wait_until

from cli.serve import ServeOptions
from minitransformer.extras.serve import app, guard, translation_request
from minitransformer.extras.serve.translation_queue import LATE_SECONDS
from minitransformer.extras.serve.word_attention import MOST_TOKENS
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.translator import MAX_SOURCE_TOKENS, Translator

SHORT = "from minitransformer.extras.serve import guard as g, server as s; s.HEAD_SECONDS = g.BODY_SECONDS = 0.5"
SLOW = """
from minitransformer.inference.translator import Translator
import time
n_best = Translator.n_best

def slow(self, lines, *given, **named):  # "six" takes a second and a half
    time.sleep(1.5 * ("six" in lines))
    return n_best(self, lines, *given, **named)

Translator.n_best = slow
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    small_translator().model.save(folder)
    small_translator().tokenizer.save(folder)
    return folder


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Served]:
    with served(run, "--tokens-per-minute", "1000000000") as server:
        yield server


@pytest.fixture(scope="module")
def impatient(run: Path) -> Iterator[Served]:
    """A server that waits half a second for the head of a request, and for its body."""
    with served(run, before=SHORT) as server:
        yield server


def client_of(server: Served) -> httpx2.Client:
    return httpx2.Client(base_url=server.address, trust_env=False, timeout=TIME_LIMIT)


def translations_over_one_connection(server: Served, lines: Sequence[str]) -> list[str]:
    with client_of(server) as client:
        answers = [client.post("/translate", json=form(line, as_is=True)) for line in lines]
    assert {answer.status_code for answer in answers} == {200}
    return [answer.json()["translatedText"] for answer in answers]


@pytest.mark.slow
def test_none_of_a_thousand_requests_of_32_users_at_once_is_lost(run: Path) -> None:
    words = random.Random(2)
    lines = [" ".join(words.choices(list(NUMBERS), k=words.randint(1, 8))) for _ in range(1_000)]
    lines_by_user = [lines[user::32] for user in range(32)]
    with served(run, "--tokens-per-minute", "1000000000") as server, ThreadPoolExecutor(32) as users:
        found = list(users.map(lambda asked: translations_over_one_connection(server, asked), lines_by_user))
        assert "minitransformer_batch_sentences_sum 1000.0" in metrics_of(server)
        assert batches(server) < 1_000
    translations = Translator.load(run).n_best(lines, SearchConfig(), n_threads=1)
    expected = {line: best[0].text for line, best in zip(lines, translations, strict=True)}
    assert found == [[expected[line] for line in asked] for asked in lines_by_user]


def raw(server: Served, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=TIME_LIMIT)
    connection.sendall(data)
    return connection


def is_closed_within(connection: socket.socket, seconds: float) -> bool:
    readable, _, _ = select.select([connection], [], [], seconds)
    return bool(readable) and connection.recv(1) == b""


HEAD = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def request_of(text: str) -> bytes:
    body = json.dumps(form(text, as_is=True)).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def test_connections_without_a_whole_request_are_closed(impatient: Served) -> None:
    with contextlib.ExitStack() as connections:
        for connection in [connections.enter_context(raw(impatient, first)) for first in (b"", b"POST /transl", HEAD)]:
            assert is_closed_within(connection, TIME_LIMIT)


def test_a_connection_that_trickles_after_an_answer_is_closed(impatient: Served) -> None:
    with raw(impatient, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n") as connection:
        answer = b""
        while not answer.endswith(b"}"):  # head and body may come one after the other
            answer += (received := connection.recv(9_999))
            assert received
        assert answer.startswith(b"HTTP/1.1 200")
        for _ in range(300):
            try:
                connection.sendall(b"G")
            except OSError:
                break
            if is_closed_within(connection, 0.2):
                break
        else:
            pytest.fail("still open")


def test_what_is_not_http_is_status_400_and_a_body_of_ten_megabytes_413(server: Served) -> None:
    others = [b"\x16\x03\x01\x00\xff" * 9, b"GET / HTTP/1.1\r\n\xff: \xfe\r\n\r\n", b"x" * 70_000]
    large = HEAD + b"Content-Length: 10000000\r\n\r\n" + b"x" * 10_000_000
    for data, status in [*((data, b"400") for data in others), (large, b"413")]:
        with raw(server, data) as connection:
            assert connection.recv(12) == b"HTTP/1.1 " + status, data[:40]


HEADS = [
    b"HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
    b"HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 2",
    b"HTTP/1.0\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
    b"HTTP/1.0\r\nTransfer-Encoding: chunked",
    b"HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3",
    b"HTTP/1.1\r\nContent-Length: 2, 3",
    b"HTTP/1.1\r\nContent-Length: +2",
    b"HTTP/1.1\r\nContent-Length : 2",
    b"HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    b"HTTP/1.1\r\nTransfer-Encoding: identity",
]


@pytest.mark.parametrize("method", [b"POST /translate ", b"GET /health "])
def test_a_body_whose_length_two_programs_may_read_differently_is_status_400(method: bytes, server: Served) -> None:
    for head in HEADS:
        request = method + head + b"\r\nHost: x\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
        with raw(server, request) as connection:
            answers = b"".join(iter(lambda: connection.recv(9_999), b""))
        assert answers.startswith(b"HTTP/1.1 400"), head
        assert answers.count(b"HTTP/1.1 ") == 1, "what follows is no second request"


BUSY = "minitransformer_batch_sentences_sum 1.0"


def metrics_of(server: Served) -> str:
    with urllib.request.urlopen(f"{server.address}/metrics", timeout=TIME_LIMIT) as answer:
        return str(answer.read().decode())


def wait_for_metric(server: Served, line: str) -> None:
    wait_until(lambda: line in metrics_of(server))


@pytest.mark.parametrize("n", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_idle_connections_delay_no_request(server: Served, n: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < n + 500:
        pytest.skip(f"a process may have only {hard} files open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as connections:
        connections.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(n):
            connections.enter_context(raw(server, b""))
        assert server.post("/translate", form("one"))["translatedText"]


@pytest.mark.parametrize(("number", "status", "said"), [(signal.SIGTERM, -15, ""), (signal.SIGINT, 0, "stopped\n")])
def test_a_signal_ends_it_after_the_requests_that_have_begun(run: Path, number: int, status: int, said: str) -> None:
    """What users typed is not said, neither that of good requests nor that of bad ones."""
    with served(run, before=SLOW) as server:
        answers: list[Any] = []
        asking = Thread(target=lambda: answers.append(server.post("/translate", form("six", as_is=True))))
        asking.start()
        with raw(server, HEAD + b'Content-Length: 9\r\n\r\n{"private') as connection:
            connection.recv(12)
        wait_for_metric(server, BUSY)
        assert server.end(number) == (status, said)
        asking.join(TIME_LIMIT)
        assert answers[0]["translatedText"]
        with pytest.raises(ConnectionRefusedError):
            raw(server, b"")


def test_a_translation_without_end_does_not_keep_it_from_ending(run: Path) -> None:
    impatient = "from minitransformer.extras.serve import app as a, server as s; s.STOP_SECONDS = 1"
    endless = f"{SLOW.replace('1.5', '60')}\n{impatient}; a.CLOSING_SECONDS = 0.1"
    with served(run, before=endless) as server, raw(server, request_of("six")):
        wait_for_metric(server, BUSY)
        status, said = server.end(signal.SIGINT)
    assert (status, said) == (1, "stopped\nwarning: a translation that nobody waits for was cut off\n")


def test_a_client_that_leaves_is_status_499_without_a_message_and_not_translated_for(run: Path) -> None:
    with served(run, before=SLOW) as server:
        busy = Thread(target=lambda: server.post("/translate", form("six", as_is=True)))
        busy.start()
        wait_for_metric(server, BUSY)
        with raw(server, request_of("five")):
            wait_for_metric(server, "minitransformer_waiting 1.0")
        wait_for_metric(server, 'path="/translate",status="499"} 1.0')
        for n, linger in ((2, 0), (3, 1)):  # while it sends; the second one resets the connection
            with raw(server, HEAD + b"Content-Length: 100\r\n\r\n{") as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", linger, 0))
            wait_for_metric(server, f'path="/translate",status="499"}} {n}.0')
        busy.join(TIME_LIMIT)
        wait_for_metric(server, "minitransformer_waiting 0.0")
        wait_for_metric(server, BUSY)  # no second sentence
        assert server.end(signal.SIGTERM)[1] == ""


def batches(server: Served) -> int:
    return int(float(re.findall(r"^minitransformer_batch_sentences_count (.*)$", metrics_of(server), re.M)[0]))


def test_a_flood_of_long_texts_does_not_keep_a_short_sentence_waiting(run: Path) -> None:
    """A flood of 64 texts of 1,000 tokens each, whose translations do not end before their greatest length."""
    with served(run, "--tokens-per-minute", "1000000000") as server:
        flood = [raw(server, request_of("a " * 500)) for _ in range(64)]
        wait_for_metric(server, BUSY)
        wait_for_metric(server, 'path="/translate",status="503"}')
        for _ in range(3):
            before = batches(server)
            assert server.post("/translate", form("two three", as_is=True))["translatedText"]
            assert batches(server) <= before + 2, "it does not wait for the eight long texts before it"
        with urllib.request.urlopen(f"{server.address}/ready", timeout=TIME_LIMIT) as answer:
            assert answer.status == 200
        for connection in flood:
            connection.close()
        wait_for_metric(server, "minitransformer_waiting 0.0")
        before = batches(server)
        assert server.post("/translate", form("a " * 100, as_is=True))["translatedText"]
        assert batches(server) == before + 1
        assert server.end(signal.SIGTERM)[1] == ""


def cpu_seconds(server: Served) -> float:
    return sum(psutil.Process(server.process.pid).cpu_times()[:2])


def test_at_the_limit_of_open_files_it_sleeps_logs_one_line_and_recovers(run: Path) -> None:
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))"
    with served(run, before=few) as server:
        connections = [raw(server, b"") for _ in range(120)]
        before = cpu_seconds(server)
        time.sleep(2.5)  # asyncio tries to accept connections again every second
        assert cpu_seconds(server) - before < 0.1, "it sleeps meanwhile"
        for connection in connections:
            connection.close()
        wait_for_metric(server, "minitransformer_waiting 0.0")
        assert server.post("/translate", form("one"))["translatedText"]
        _, said = server.end(signal.SIGTERM)
    assert re.fullmatch(
        r"warning: new connections wait \(Too many open files\): [^\n]+ limit of open files, 60\n", said
    )


def test_origins_as_browsers_send_them_may_be_allowed() -> None:
    origins = (
        "*",
        "https://example.org",
        "http://localhost:8080",
        "http://[::1]:5000",
        "moz-extension://c0-1f",
        "moz-extension://*",
    )
    ServeOptions(allow_origin=origins).check()


def test_unknown_languages_and_a_port_that_is_taken_are_one_line_before_the_model_is_loaded(
    run: Path, server: Served, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Translator, "load", None)
    assert "training text say its source and target language" in command("serve", "--run", str(run)).refusal
    words = ["--run", str(run), "--source", "en", "--target", "de", "--port", str(server.port)]
    taken = command("serve", *words).refusal
    assert re.match(r"error: host 127.0.0.1, port \d+: cannot listen .+another port", taken)


def test_without_the_extra_it_says_how_to_install_it(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    missing = r'error: the extra "serve" .*starlette.* pip install -e "/.*\[serve\]"\n'
    assert re.fullmatch(missing, command("serve").refusal)


def test_languages_are_those_of_the_text(trained: Trained, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minitransformer.extras.serve.server.run_server", lambda *args, **options: None)
    status, _, error = command("serve", "--run", str(trained.run), "--host", "0.0.0.0", "--port", "0")
    assert (status, error.count("translates English to German; Ctrl-C ends it\n")) == (0, 1)
    assert "warning: everybody who reaches 0.0.0.0" in error


def test_clients_behind_a_proxy_are_told_apart_and_nobody_else_is_believed(run: Path) -> None:
    def statuses(server: Served, addresses: list[str]) -> list[int]:
        with client_of(server) as client:
            headers = [{"X-Forwarded-For": address} for address in addresses]
            return [
                client.post("/translate", json=form("six", as_is=True), headers=given).status_code for given in headers
            ]

    values = {"$http_host": "example.org", "$remote_addr": "10.0.0.1", "$scheme": "https"}  # variables of nginx
    documented = {name: values[value] for name, value in re.findall(r"proxy_set_header (\S+) (\S+);", GUIDE)}
    with served(run, "--tokens-per-minute", "27", "--proxy", "127.0.0.1") as server:  # as many as one request costs
        assert statuses(server, ["10.0.0.1", "10.0.0.2", "[", ""]) == [200] * 4
        assert 429 in statuses(server, ["10.0.0.1"] * 3)
        with client_of(server) as client:
            fields, files = {"source": "en", "target": "de"}, {"file": ("a.txt", "1")}
            answer = client.post("/translate_file", headers=documented, data=fields, files=files)
        assert answer.json()["translatedFileUrl"].startswith("https://example.org/download_file/")
    with served(run, "--tokens-per-minute", "27") as server:
        assert 429 in statuses(server, ["10.0.0.1", "10.0.0.2", "10.0.0.3"])


GUIDE = (ROOT / "docs/guide/serve.md").read_text(encoding="utf-8")
CURL = re.findall(r"^\$ (curl .*)\n(.*)$", GUIDE, re.MULTILINE)


def shape(value: Any) -> Any:
    """Fields and types; of a list those of its first element."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return [shape(inner) for inner in value[:1]] if isinstance(value, list) else type(value)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
@pytest.mark.parametrize(("command", "shown"), CURL)
def test_the_commands_of_the_guide_answer_as_it_shows(server: Served, command: str, shown: str) -> None:
    words = shlex.split(command.replace("localhost:5000", f"127.0.0.1:{server.port}"))
    done = subprocess.run([*words, "--silent"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    if isinstance(found, dict):  # this model does not know the letters of all words
        found = {name: value for name, value in found.items() if name not in ("notes", "copied")}
    assert shape(found) == shape(json.loads(shown))


def test_the_guide_names_the_options_and_limits_that_there_are() -> None:
    text = re.sub(r"```.*?```|`python benchmarks/[^`]*`", "", GUIDE, flags=re.DOTALL)
    options = set(re.findall(r"--[a-z][a-z-]+", text)) - {"--help", "--flood", "--idle", "--split-sentences"}
    assert {option.removeprefix("--").replace("-", "_") for option in options} <= set(ServeOptions.__annotations__)
    assert f"`--longest-text` characters ({ServeOptions.longest_text:,})" in GUIDE
    assert f"`--tokens-per-minute` ({ServeOptions.tokens_per_minute:,})" in GUIDE
    assert f"`--tokens-waiting` ({ServeOptions.tokens_waiting:,})" in GUIDE
    short, long = SearchConfig().greatest_lengths(np.array([10, 1_000]))
    assert f"a sentence of 10 tokens costs {10 + short}, and one of 1,000 costs {1_000 + long:,}" in GUIDE
    assert f"over {LATE_SECONDS:.0f} seconds" in GUIDE
    assert f"{guard.BODY_SECONDS:.0f} seconds" in GUIDE
    assert f"over {guard.REQUEST_SECONDS:.0f} seconds" in GUIDE
    assert f"{MAX_SOURCE_TOKENS:,} tokens in a sentence; `/attention`: more than {MOST_TOKENS} tokens" in GUIDE
    assert len(CURL) == 6


def test_the_guide_names_the_status_of_every_error() -> None:
    """404 and 405 are starlette's; nobody reads 499, which is of a client that has gone."""
    modules = [app, guard, translation_request]
    sources = "".join(Path(str(module.__file__)).read_text("utf-8") for module in modules)
    answered = set(re.findall(r"\b[45]\d\d\b", sources)) - {"499"} | {"404", "405"}
    _, _, limits = GUIDE.partition("\n## Limits\n")
    assert answered == {status for row in re.findall(r"^\| ([\d, ]+) \|", limits, re.M) for status in row.split(", ")}


def wait_for(browser: Browser, condition: str) -> None:
    wait_until(lambda: browser.evaluate(condition))


def type_and_wait(browser: Browser, text: str, n_lines: int = 1) -> None:
    browser.ask("Input.insertText", text=text)
    wait_for(browser, f"document.querySelectorAll('.translation').length === {n_lines}")


TRANSLATIONS = "[...document.querySelectorAll('.translation')].map((line) => line.textContent.trim())"
SHADES = "[...document.querySelectorAll('#source-words span')].map((s) => Number(s.style.getPropertyValue('--weight')))"


@pytest.fixture
def opened(browser: Browser, server: Served) -> Iterator[Browser]:
    browser.show(width=390, height=800, theme="dark")
    browser.open(server.address)
    browser.evaluate("document.getElementById('text').focus()")
    yield browser
    assert browser.complaints() == []
    requested = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in requested if not url.startswith((server.address, "data:"))] == []


def test_what_is_typed_is_translated_line_by_line_with_alternatives(opened: Browser, server: Served) -> None:
    type_and_wait(opened, "one two\n\nsix", 2)
    expected = server.post("/translate", form(["one two", "six"], alternatives=3))
    assert opened.evaluate(TRANSLATIONS) == [" ".join(text.split()) for text in expected["translatedText"]]
    shown = opened.evaluate("[...document.querySelectorAll('.alternatives .score')].map((s) => Number(s.textContent))")
    assert shown == pytest.approx([score for scores in expected["scores"] for score in scores[1:]], abs=0.006)
    assert opened.evaluate("document.getElementById('said').textContent") == "\n".join(expected["translatedText"])
    assert opened.evaluate("document.documentElement.scrollWidth <= 390")


def test_a_word_shows_its_attention_by_keyboard_and_by_mouse(opened: Browser, server: Served) -> None:
    type_and_wait(opened, "one two three")
    translation = server.post("/translate", form("one two three"))["translatedText"]
    weights = server.post("/attention", {"q": "one two three", "translation": translation})["weights"]
    opened.press("Tab", "Tab")  # the button, then the first word
    wait_for(opened, "!document.getElementById('attention').hidden")
    assert opened.evaluate(SHADES) == pytest.approx(weights[0])
    assert " attends to " in opened.evaluate("document.getElementById('reading').textContent")
    x, y = opened.evaluate(
        "(() => { const b = [...document.querySelectorAll('.translation button')].at(-1).getBoundingClientRect();"
        " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    opened.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    wait_for(opened, f"JSON.stringify({SHADES}) === JSON.stringify({json.dumps(weights[-1])})")


def test_in_scripts_without_blanks_a_character_shows_the_attention_of_its_word(opened: Browser) -> None:
    words = "[...wordsOf('one two', '红的 车。BMW กี่ ok').querySelectorAll('button')].map((b) => b.textContent)"
    assert opened.evaluate(words) == ["红", "的", "车。", "BMW", "กี่", "ok"]
    answer = "{source: ['one', 'two'], translation: ['红的', '车。'], weights: [[.9, .1], [.2, .8]]}"
    for i, shades in enumerate([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]]):
        opened.evaluate(f"showAttention('', {i}, 'one two', ['红', '的', '车。'], {answer})")
        assert opened.evaluate(SHADES) == shades


def test_arrow_keys_follow_the_direction_of_the_script(opened: Browser) -> None:
    for text, key in (("one two three", "ArrowRight"), ("אחת שתיים שלוש", "ArrowLeft")):
        opened.evaluate(f"byId('result').replaceChildren(wordsOf('one', '{text}'))")
        opened.evaluate("document.querySelector('.words button').focus()")
        opened.press(key)
        assert opened.evaluate("document.activeElement.textContent") == text.split()[1]


def test_a_screen_reader_finds_names_and_is_told_the_translation(opened: Browser) -> None:
    type_and_wait(opened, "one two")
    tree = opened.ask("Accessibility.getFullAXTree")["nodes"]
    nodes = [(n["role"]["value"], n.get("name", {}).get("value")) for n in tree if "role" in n]
    assert all(name for role, name in nodes if role in ("button", "textbox", "list", "group"))
    assert {("textbox", "English"), ("button", "Translate"), ("heading", "English to German")} <= set(nodes)
    assert {"status", "alert"} <= {role for role, _ in nodes}


def test_script_in_a_text_stays_text(opened: Browser) -> None:
    type_and_wait(opened, "<img src=x onerror=alert(1)><script>alert(2)</script>")
    opened.press("Tab", "Tab")
    wait_for(opened, "!document.getElementById('attention').hidden")
    assert "<script>" in opened.evaluate("document.getElementById('source-words').textContent")
    assert opened.evaluate("document.querySelectorAll('img, main script, #attention script').length") == 0


NEVER = """window.fetch = (path, {signal}) => new Promise((_, reject) => signal.addEventListener("abort", () => {
    window.isAborted = true;
    reject(new DOMException("", "AbortError"));
}))"""
FAILS = "window.fetch = () => Promise.reject(new TypeError())"
LOOKS_CURRENT = (
    "!document.querySelector('.old, [aria-disabled]') && document.getElementById('error').textContent === ''"
)


def retype(browser: Browser, text: str) -> None:
    browser.evaluate("document.getElementById('text').select()")
    browser.ask("Input.insertText", text=text)


@pytest.mark.parametrize(
    ("fetch", "asked"),
    [
        (NEVER, "document.querySelector('.old') !== null"),
        (FAILS, "document.getElementById('error').textContent !== ''"),
    ],
)
def test_an_earlier_text_typed_again_has_its_translation(opened: Browser, fetch: str, asked: str) -> None:
    """A request for the text between is cancelled; its error disappears."""
    type_and_wait(opened, "one")
    shown = opened.evaluate(TRANSLATIONS)
    opened.evaluate(fetch)
    retype(opened, "one two")
    wait_for(opened, asked)
    retype(opened, "one")
    wait_for(opened, LOOKS_CURRENT)
    assert opened.evaluate(TRANSLATIONS) == shown
    assert opened.evaluate("window.isAborted") == (True if fetch == NEVER else None)


def test_a_server_that_has_gone_is_said_on_the_page(browser: Browser, run: Path) -> None:
    with served(run) as server:
        browser.open(server.address)
        server.end(signal.SIGTERM)
    browser.evaluate("document.getElementById('text').focus()")
    browser.ask("Input.insertText", text="one")
    wait_for(browser, "document.getElementById('error').textContent === 'the server cannot be reached'")


@pytest.fixture
def several(run: Path) -> Iterator[Served]:
    """A server of English to German and to French, and of German to English."""
    pairs = [f"--run={pair}={run}" for pair in ("en-fr", "de-en")]
    with served(f"en-de={run}", *pairs, languages=()) as server:
        yield server


CHOSEN = "['source', 'target'].map((id) => byId(id).value).join(' ')"
OFFERED = "[...byId('target').options].map((option) => option.textContent).join(' ')"


def choose(browser: Browser, side: str, code: str) -> None:
    browser.evaluate(f"byId('{side}').value = '{code}'")
    browser.evaluate(f"byId('{side}').dispatchEvent(new Event('change', {{bubbles: true}}))")


def test_pairs_are_chosen_and_swapped_where_the_other_direction_exists(browser: Browser, several: Served) -> None:
    for width, theme in ((390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")):
        browser.show(width=width, height=800, theme=theme)
        browser.open(several.address)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(f"{CHOSEN} + ': ' + {OFFERED}") == "en de: German French"
    browser.evaluate("byId('text').focus()")
    type_and_wait(browser, "one two")
    expected = several.post("/translate", form("one two"))["translatedText"]
    browser.evaluate("byId('swap').click()")
    assert browser.evaluate(f"{CHOSEN} + ': ' + {OFFERED}") == "de en: French English"
    assert browser.evaluate("[document.title, byId('text').value, byId('text').lang]") == [
        "German to English", expected, "de"
    ]  # fmt: skip
    choose(browser, "target", "fr")
    wait_for(browser, "document.querySelector('.done')?.textContent === 'translated by way of English'")
    assert browser.evaluate("byId('swap').disabled"), "nothing is translated from French"
    assert browser.complaints() == []


def test_the_page_says_which_language_was_detected_and_asks_no_attention_of_two_models(
    browser: Browser, several: Served
) -> None:
    browser.open(several.address)
    detected = [{"language": code, "confidence": 99.0} for code in ("de", "fr", "en")]
    answer = {"translatedText": ["un", "deux", "trois"], "detectedLanguage": detected, "pivot": ["en", None, None]}
    browser.evaluate("window.asked = []")
    browser.evaluate(
        f"window.fetch = async (...given) => {{ asked.push(given); return Response.json({json.dumps(answer)}) }}"
    )
    browser.evaluate("byId('text').value = 'a\\nb\\nc'")
    browser.evaluate("choosePair('auto', 'fr')")
    wait_for(browser, "document.querySelectorAll('.done').length === 3")
    assert browser.evaluate("[...document.querySelectorAll('.done')].map((note) => note.textContent)") == [
        "translated from German by way of English", "this is French, not translated", "translated from English"
    ]  # fmt: skip
    words = "document.querySelectorAll('.translation button')"
    browser.evaluate(f"for (const word of {words}) word.dispatchEvent(new Event('pointerenter'))")
    assert browser.evaluate("asked.map(([path]) => path)") == ["translate", "attention"]
    fields = {"q": "c", "translation": "trois", "source": "en", "target": "fr"}
    assert browser.evaluate("JSON.parse(asked[1][1].body)") == fields
    assert browser.evaluate("document.querySelector('h1').textContent") == "Any language →to French"


def test_a_server_of_several_directions_names_them(
    run: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minitransformer.extras.serve.server.run_server", lambda *args, **options: None)
    words = [f"--run={pair}={run}" for pair in ("en-de", "pt_BR-en", "en-fr")]
    status, _, error = command("serve", *words, "--port", "0")
    assert (status, "translates English to German, French; pt-br to English; Ctrl-C" in error) == (0, True), error
