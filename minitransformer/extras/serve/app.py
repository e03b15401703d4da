"""The application: a page, and a JSON API with LibreTranslate's words."""

from __future__ import annotations

import asyncio
import html
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from minitransformer.extras.serve.guard import Guard, RateLimit
from minitransformer.extras.serve.languages import Languages
from minitransformer.extras.serve.metrics import MEDIA_TYPE, Metrics
from minitransformer.extras.serve.translation_queue import STOPPING, OverloadedError, TranslationQueue
from minitransformer.extras.serve.translation_request import (
    Limits,
    RequestError,
    answer_of,
    detection,
    request_of,
    texts_of,
)
from minitransformer.extras.serve.word_attention import TooLongError, attention_cost, word_attention
from minitransformer.inference.translator import Translation

CLOSING_SECONDS = 5.0  # for the batch that is being translated when the server stops
Result = TypeVar("Result")
Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(
    queue: TranslationQueue,
    languages: Languages,
    limits: Limits,
    metrics: Metrics,
    *,
    tokens_per_minute: int,
    allowed_origins: Collection[str] = (),
    local_only: bool = False,
) -> ASGIApp:
    """Return the application, which closes the queue when it ends.

    Args:
        tokens_per_minute: the greatest cost of a client's requests in a minute.
        allowed_origins: origins of other pages that may use the API, such as "https://example.org"; "*" is all.
        local_only: refuse pages that came from another host than this machine, for a server on a loopback address.
    """
    endpoints = _Endpoints(queue, languages, limits, metrics, RateLimit(tokens_per_minute))
    metrics.watch_queue(queue.__len__)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(queue.close, CLOSING_SECONDS)

    routes = endpoints.routes()
    app = Starlette(
        routes=routes,
        exception_handlers=dict.fromkeys(
            (HTTPException, RequestError, OverloadedError, ClientDisconnect, Exception), _as_json
        ),
        lifespan=lifespan,
    )
    guarded = Guard(
        app,
        metrics,
        paths={route.path for route in routes},
        most_bytes=limits.body_bytes,
        allowed_origins=allowed_origins,
        local_only=local_only,
    )
    if not allowed_origins:
        return guarded
    return CORSMiddleware(  # around the guard: allowed pages read its refusals, too
        guarded,
        allow_origins=list(allowed_origins),
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["Retry-After"],
    )


@dataclass(frozen=True, eq=False)
class _Endpoints:
    """The functions behind the paths."""

    queue: TranslationQueue
    languages: Languages
    limits: Limits
    metrics: Metrics
    rate: RateLimit

    def routes(self) -> list[Route]:
        get: dict[str, Endpoint] = {
            "/": _part("page.html", "text/html", self._page_values()),
            "/page.css": _part("page.css", "text/css"),
            "/page.js": _part("page.js", "text/javascript"),
            "/languages": self.known_languages,
            "/frontend/settings": self.settings,
            "/health": self.health,
            "/ready": self.ready,
            "/metrics": self.exposition,
        }
        post: dict[str, Endpoint] = {"/translate": self.translate, "/attention": self.attention, "/detect": self.detect}
        return [
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in get.items()),
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in post.items()),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate a text, or a list of texts."""
        wanted = request_of(await _fields(request), self.languages, self.limits)
        lines = [line for text in wanted.lines for line in text if _has_letters(line)]
        lengths = await asyncio.to_thread(self.queue.translator.count_tokens, lines)  # long texts take time
        longest = self.queue.translator.longest_source
        if max(lengths, default=0) > longest:
            raise RequestError(413, f"Invalid request: a line has more than {longest} tokens; split it")
        costs = [self.queue.cost(n_tokens) for n_tokens in lengths]
        with self._charge(request, costs):
            futures = self.queue.translate(lines, costs, 1 + wanted.alternatives)
        results = iter(await _results(futures, request))
        found = [
            [next(results) if _has_letters(line) else [Translation(line, 0.0, 0.0)] for line in text]
            for text in wanted.lines
        ]
        return JSONResponse(answer_of(wanted, found))

    async def attention(self, request: Request) -> Response:
        """Return how much each word of a translation attends to each word of its source."""
        fields = await _fields(request)
        source, target = (" ".join(texts_of(fields, name, self.limits)) for name in ("q", "translation"))
        try:
            cost = await asyncio.to_thread(attention_cost, self.queue.translator, source, target)
        except TooLongError as error:
            raise RequestError(413, str(error)) from error
        with self._charge(request, [cost]):
            work = self.queue.call(lambda: word_attention(self.queue.translator, source, target), cost)
        (found,) = await _results([work], request)
        weights = [[round(float(weight), 3) for weight in row] for row in found.weights]
        return JSONResponse({"source": found.source, "translation": found.target, "weights": weights})

    async def detect(self, request: Request) -> Response:
        """Return the only language that the server translates from, for any text."""
        texts_of(await _fields(request), "q", self.limits)
        return JSONResponse([detection(self.languages.source)])

    async def known_languages(self, request: Request) -> Response:
        """Return both languages, and what each is translated into."""
        source, target = self.languages.source, self.languages.target
        return JSONResponse(
            [
                {"code": source.code, "name": source.name, "targets": [target.code]},
                {"code": target.code, "name": target.name, "targets": []},
            ]
        )

    async def settings(self, request: Request) -> Response:
        """Return what clients of LibreTranslate ask for before they show themselves."""
        language = {
            side: {"code": one.code, "name": one.name}
            for side, one in (("source", self.languages.source), ("target", self.languages.target))
        }
        return JSONResponse(
            {
                "apiKeys": False,
                "keyRequired": False,
                "charLimit": self.limits.characters,
                "frontendTimeout": 500,
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": language,
            }
        )

    async def health(self, request: Request) -> Response:
        """Return "ok" until the server stops."""
        if self.queue.is_closed:
            raise OverloadedError(STOPPING)
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Return "ok" while a short sentence would be translated soon."""
        if not self.queue.is_ready():
            raise OverloadedError(STOPPING if self.queue.is_closed else "short sentences are refused or wait too long")
        return JSONResponse({"status": "ok"})

    async def exposition(self, request: Request) -> Response:
        """Return the metrics."""
        return Response(self.metrics.exposition(), media_type=MEDIA_TYPE)

    @contextmanager
    def _charge(self, request: Request, costs: Sequence[int]) -> Iterator[None]:
        """Take the cost of work from the client's budget, if the work can be added to the queue.

        Raises: RequestError if no client may ask for so much; HTTPException if this client must wait.
        """
        tokens, client = sum(costs), request.client.host if request.client else ""
        if tokens > self.rate.per_minute or not self.queue.can_wait(costs):
            raise RequestError(413, f"Invalid request: it may cost {tokens:,} tokens; send less text at once")
        if seconds := self.rate.seconds_until(client, tokens):
            detail = f"Slowdown: {self.rate.per_minute} tokens per 1 minute"
            raise HTTPException(429, detail, {"Retry-After": str(seconds)})
        yield
        self.rate.spend(client, tokens)

    def _page_values(self) -> dict[str, str]:
        source, target = self.languages.source, self.languages.target
        values = {
            "source_code": source.code, "source_name": source.name, "target_code": target.code,
            "target_name": target.name, "characters": self.limits.characters,
            "alternatives": min(3, self.limits.alternatives),
        }  # fmt: skip
        return {name: html.escape(str(value)) for name, value in values.items()}


def _part(name: str, media_type: str, values: Mapping[str, str] | None = None) -> Endpoint:
    """Return the endpoint of a file of the page, with ``values`` filled in; the file is read only once."""
    text = (files("minitransformer.extras.serve") / "page" / name).read_text(encoding="utf-8")
    text = text if values is None else Template(text).substitute(values)

    async def answer(request: Request) -> Response:
        return Response(text, media_type=media_type)

    return answer


def _has_letters(line: str) -> bool:
    """Return whether there is something to translate: digits, signs and emojis stay as they are."""
    return any(map(str.isalpha, line))


async def _fields(request: Request) -> Mapping[str, Any]:
    """Return the fields of a JSON object, or of a form and the address; a field that comes several times is a list.

    Some clients of LibreTranslate send all fields in the address (``/translate?q=...``), with an empty body.
    Raises: RequestError.
    """
    in_address = _listed(request.query_params)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        async with request.form(max_files=0, max_fields=20) as form:
            return in_address | _listed(form)
    if kind != "application/json":
        if in_address or not await request.body():
            return in_address
        raise RequestError(415, "Invalid request: send application/json or a form")
    try:
        fields = json.loads(await request.body())
    except (ValueError, RecursionError) as error:  # ValueError: neither JSON nor UTF-8
        raise RequestError(400, "Invalid JSON format") from error
    if not isinstance(fields, dict):
        raise RequestError(400, "Invalid JSON format")
    return fields


def _listed(values: ImmutableMultiDict[str, Any]) -> dict[str, Any]:
    found = {name: values.getlist(name) for name in values}
    return {name: several if len(several) > 1 else several[0] for name, several in found.items()}


async def _results(work: Sequence[Future[Result]], request: Request) -> list[Result]:
    """Wait for results; cancel the work if the client has gone."""
    results, gone = asyncio.create_task(_all(work)), asyncio.create_task(_gone(request))
    either: list[asyncio.Task[Any]] = [results, gone]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not results.done():
            raise ClientDisconnect
        return await results
    finally:
        for task in either:
            task.cancel()
        for future in work:
            future.cancel()


async def _all(work: Sequence[Future[Result]]) -> list[Result]:
    return [await asyncio.wrap_future(future) for future in work]


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _as_json(request: Request, error: Exception) -> Response:
    """Return an error as LibreTranslate does: a JSON object with a message."""
    match error:
        case RequestError():
            return JSONResponse({"error": error.message}, error.status)
        case ClientDisconnect():
            return JSONResponse({}, 499)  # nobody reads it; the metrics count it
        case HTTPException():
            return JSONResponse({"error": error.detail}, error.status_code, error.headers)
        case OverloadedError():
            return JSONResponse({"error": str(error)}, 503, {"Retry-After": "1"})
    return JSONResponse({"error": "the translation failed"}, 500)
