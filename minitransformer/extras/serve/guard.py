"""A wrapper of the application: it limits and counts requests, and adds headers to answers."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import re
import time
import traceback
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minitransformer.extras.serve.metrics import Metrics

BODY_SECONDS = 10.0  # time in which the whole body of a request must arrive
REQUEST_SECONDS = 60.0  # time from a request's head to the end of its answer
HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
        b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
_log = logging.getLogger(__name__)


class RateLimit:
    """A budget of ``per_minute`` tokens for each client; an empty budget is full again after a minute."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self._clock = per_minute, clock
        self._full_at: dict[str, float] = {}  # network of a client → time at which the budget is full again
        self._next_sweep = 0.0

    def seconds_until(self, client: str, tokens: int) -> int:
        """Return the number of seconds after which a client can spend ``tokens``; 0 if it can spend them now."""
        missing = self._seconds_to_full(client) + 60 * tokens / self.per_minute - 60
        return max(0, math.ceil(missing))

    def spend(self, client: str, tokens: int) -> None:
        """Take tokens from a client's budget."""
        now = self._clock()
        self._full_at[network_of(client)] = now + self._seconds_to_full(client) + 60 * tokens / self.per_minute
        if now > self._next_sweep:
            self._full_at = {who: full_at for who, full_at in self._full_at.items() if full_at > now}
            self._next_sweep = now + 60

    def _seconds_to_full(self, client: str) -> float:
        return max(0.0, self._full_at.get(network_of(client), 0.0) - self._clock())


class Guard:
    """An ASGI application that wraps another one.

    It merges slashes in paths (clients join "http://host/" and "/translate"), refuses wrong and excessive requests,
    answers if the wrapped application takes too long, logs errors, adds headers to answers, and counts requests.
    ``origin_remedy`` ends the answer to a page of a forbidden origin.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        *,
        paths: Collection[str],
        most_bytes: int,
        allowed_origins: Collection[str],
        local_only: bool,
        origin_remedy: str = "",
    ) -> None:
        self._app, self._metrics, self._paths, self._most_bytes = app, metrics, paths, most_bytes
        self._origin_remedy = origin_remedy
        self._allowed_origins, self._local_only = allowed_origins, local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.monotonic(), 0
        scope = {**scope, "path": re.sub("/{2,}", "/", scope["path"])}

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                app = self._refusal(scope) or self._app
                await app(scope, _LimitedBody(receive, Headers(scope=scope), self._most_bytes), answer)
        except TimeoutError:
            if not status:
                error = {"error": "the translation took too long; send less text, or try again later"}
                await JSONResponse(error, 503, {"Retry-After": "10"})(scope, receive, answer)
        except Exception as error:  # answered with status 500 by the application
            _log.error(f"{self._path(scope)}: {type(error).__name__} in {_location(error)}")
        finally:
            self._metrics.count_request(self._path(scope), status, time.monotonic() - start)

    def _path(self, scope: Scope) -> str:
        """Return the path for the metrics: with "{name}" in place of a file's name, or "other" for an unknown path."""
        path: str = scope["path"]
        candidates = (path, path.rpartition("/")[0] + "/{name}")
        return next((each for each in candidates if each in self._paths), "other")

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        """Return the answer to a request with an ambiguous body, or a POST from a forbidden origin; otherwise None."""
        headers = Headers(scope=scope)
        is_old = scope.get("http_version") == "1.0"
        if "transfer-encoding" in headers and ("content-length" in headers or is_old):  # a proxy may read another body
            error = {"error": "Invalid request: Transfer-Encoding needs HTTP/1.1, and no Content-Length beside it"}
            return JSONResponse(error, 400, {"Connection": "close"})
        if scope["method"] != "POST":
            return None
        origin, host = headers.get("origin"), headers.get("host", "")
        if origin is not None and not _is_url(origin):
            return JSONResponse({"error": "Invalid request: Origin is not an origin"}, 400)
        if not self._is_allowed(origin, host):
            served = "the server's own origin on this machine" if self._local_only else "the server's own origin"
            found = f"this one is of {origin}, and asks {host}{self._origin_remedy and '; '}{self._origin_remedy}"
            return JSONResponse({"error": f"only pages of {served} may ask; {found}"}, 403)
        return None

    def _is_allowed(self, origin: str | None, host: str) -> bool:
        """Return whether a page of ``origin`` may send requests to ``host``; ``origin`` is None for other programs.

        The server's own page has the origin ``host``.  With ``local_only``, the origin must also be a loopback host: a
        host name of an attacker may lead to a loopback address ("DNS rebinding").
        """
        if origin is None:
            return True
        scheme, _, address = origin.partition("://")
        if not {"*", origin, f"{scheme}://*"}.isdisjoint(self._allowed_origins):
            return True
        return address == host and (not self._local_only or is_loopback(urlsplit(origin).hostname or ""))


class _LimitedBody:
    """A receiver of a request's body.  Raises: HTTPException if the body is too long, or does not arrive in time."""

    def __init__(self, receive: Receive, headers: Headers, most_bytes: int) -> None:
        self._receive, self._left = receive, most_bytes
        self._deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        length = headers.get("content-length", "0")
        self._is_too_long = not length.isdecimal() or int(length) > most_bytes
        self._is_complete = False

    async def __call__(self) -> Message:
        if self._is_complete:  # the next message is the end of the connection
            return await self._receive()
        if self._is_too_long:
            raise HTTPException(413, "Invalid request: the body is too long")
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            raise HTTPException(408, "Invalid request: the body did not arrive in time") from error
        self._left -= len(message.get("body", b""))
        self._is_too_long = self._left < 0
        self._is_complete = not message.get("more_body", False)
        if self._is_too_long:
            raise HTTPException(413, "Invalid request: the body is too long")
        return message


def is_loopback(host: str) -> bool:
    """Return whether a host name or address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def network_of(client: str) -> str:
    """Return the network of one client: its IPv4 address, or the first 64 bits of its IPv6 address."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:  # the client is a test, or uses a Unix socket
        return client
    if isinstance(address, ipaddress.IPv4Address):
        return client
    return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))


def _is_url(origin: str) -> bool:
    try:
        urlsplit(origin)
    except ValueError:
        return False
    return True


def _location(error: Exception) -> str:
    """Return the code line of an error, without the error's message, which may contain what a user has typed."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.name}, {frame.filename}:{frame.lineno}"
