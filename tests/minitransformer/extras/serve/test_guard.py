"""Rates by client, and limits of size and time, seen from the server's side of the application."""

import asyncio
import socket
from typing import Any

import pytest
import serving  # noqa: F401 - skips without starlette
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from waiting import TIME_LIMIT

from minitransformer.extras.serve import guard
from minitransformer.extras.serve.guard import Guard, RateLimit
from minitransformer.extras.serve.metrics import Metrics

pytest.importorskip("uvicorn", reason='the extra is not installed: pip install -e ".[serve]"')

from minitransformer.extras.serve.server import listen


def test_a_client_has_so_many_tokens_in_a_minute() -> None:
    now = [120.0]
    rate = RateLimit(600, clock=lambda: now[0])
    rate.spend("10.0.0.1", 600)
    assert [rate.seconds_until("10.0.0.1", tokens) for tokens in (5, 100, 600)] == [1, 10, 60]
    assert rate.seconds_until("10.0.0.2", 600) == 0
    now[0] = 130.0
    assert [rate.seconds_until("10.0.0.1", tokens) for tokens in (5, 100, 600)] == [0, 0, 50]
    rate.spend("10.0.0.1", 100)
    assert [rate.seconds_until("10.0.0.1", tokens) for tokens in (5, 100, 600)] == [1, 10, 60]
    now[0] = 500.0
    assert rate.seconds_until("10.0.0.1", 600) == 0


def test_clients_with_a_full_budget_are_forgotten() -> None:
    now = [0.0]
    rate = RateLimit(60, clock=lambda: now[0])
    for number in range(100):
        now[0] += 10
        rate.spend(f"10.0.0.{number}", 5)
    assert len(rate._full_at) < 10


@pytest.mark.parametrize(("client", "other", "is_same"), [
    ("2001:db8:0:1::1", "2001:db8:0:1::9", True), ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
    ("2001:db8:0:1::1", "not an address", False), ("2001:db8:0:1::1", "", False),
    ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False), ("::ffff:10.0.0.1", "10.0.0.1", True),
])  # fmt: skip
def test_a_network_of_ipv6_is_one_client_and_so_is_an_address_of_ipv4(client: str, other: str, is_same: bool) -> None:
    rate = RateLimit(10)
    rate.spend(client, 10)
    assert (rate.seconds_until(other, 10) > 0) == is_same


def answers_to(app: Any, messages: list[dict[str, Any]], **headers: str) -> list[dict[str, Any]]:
    """What a guarded application answers to a POST request whose body arrives in these messages, and no further."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        await asyncio.sleep(TIME_LIMIT)
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    guarded = Guard(app, Metrics(), paths={"/"}, most_bytes=10, allowed_origins=(), local_only=False)
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": lines, "client": ("127.0.0.1", 1)}
    asyncio.run(guarded(scope, receive, send))  # type: ignore[arg-type]
    return sent


async def echo(request: Request) -> Response:
    return Response(await request.body())


ECHO = Starlette(routes=[Route("/", echo, methods=["POST"])])


def test_a_body_with_two_lengths_is_refused_and_ends_the_connection() -> None:
    start, body = answers_to(ECHO, [], content_length="5", transfer_encoding="chunked")
    assert (start["status"], b"no Content-Length" in body["body"]) == (400, True)
    assert (b"connection", b"close") in start["headers"]


def test_an_origin_that_is_none_is_status_400() -> None:
    for origin in ("http://[", "http://[1", "//]", "http://[x]:80"):
        assert answers_to(ECHO, [], origin=origin, host=origin.partition("://")[2])[0]["status"] == 400, origin


def test_a_body_may_come_in_pieces() -> None:
    pieces = [{"type": "http.request", "body": b"12345", "more_body": True}, {"type": "http.request", "body": b"67890"}]
    assert answers_to(ECHO, pieces, content_length="10")[1]["body"] == b"1234567890"


@pytest.mark.parametrize(
    ("headers", "n_read"), [({"content_length": "11"}, 0), ({"content_length": "many"}, 0), ({}, 2)]
)
def test_a_body_that_is_too_long_is_read_no_further(headers: dict[str, str], n_read: int) -> None:
    endless = [{"type": "http.request", "body": b"123456", "more_body": True} for _ in range(9)]
    assert answers_to(ECHO, endless, **headers)[0]["status"] == 413
    assert len(endless) == 9 - n_read


def test_a_body_that_does_not_arrive_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.01)
    assert answers_to(ECHO, [{"type": "http.request", "body": b"1", "more_body": True}])[0]["status"] == 408


def test_a_request_that_takes_too_long_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUEST_SECONDS", 0.01)
    start, body = answers_to(lambda *_: asyncio.sleep(TIME_LIMIT), [])
    assert start["status"] == 503
    assert (b"retry-after", b"10") in start["headers"]
    assert b"took too long" in body["body"]


def test_an_answer_that_has_begun_is_only_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUEST_SECONDS", 0.5)

    async def begin(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(TIME_LIMIT)

    assert [message["type"] for message in answers_to(begin, [])] == ["http.response.start"]


def test_an_answer_does_not_wait_for_the_receipt_of_its_head() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
