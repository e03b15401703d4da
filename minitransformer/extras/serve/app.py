"""The application of the server: a page, and a JSON API that is LibreTranslate's."""

from __future__ import annotations

import asyncio
import html
import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files as package_files
from string import Template
from typing import Any, TypeVar

import numpy as np
from starlette.applications import Starlette
from starlette.datastructures import ImmutableMultiDict, QueryParams, UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from minitransformer.data.survey import CorpusError
from minitransformer.extras.files.documents import readable_endings
from minitransformer.extras.files.html import HtmlText
from minitransformer.extras.serve.directions import Chain, Detection, Direction, Directions
from minitransformer.extras.serve.guard import Guard, RateLimit, network_of
from minitransformer.extras.serve.languages import Language
from minitransformer.extras.serve.metrics import MEDIA_TYPE, Metrics
from minitransformer.extras.serve.specification import specification
from minitransformer.extras.serve.translated_files import TranslatedFiles, read_file
from minitransformer.extras.serve.translation_queue import STOPPING, OverloadedError, TranslationQueue
from minitransformer.extras.serve.translation_request import (
    Limits,
    RequestError,
    RoadSettings,
    TranslationRequest,
    answer_of,
    check_languages,
    detection_fields,
    direction_of,
    pivot_code,
    request_of,
    require_fields,
    road_settings,
    texts_of,
    unavailable,
)
from minitransformer.extras.serve.word_attention import TooLongError, attention_cost, word_attention
from minitransformer.inference.translator import Translator
from minitransformer.text.codes import Parts, with_textual_codes
from minitransformer.text.road import RoadSteps, Sentences
from minitransformer.text.translation import Translation

MOST_PARTS = 1_000  # most parts of a segment: the work of placing codes grows with the square of their number
CHARACTERS_OF_TOKEN = 4  # for work with texts whose tokens are not counted yet
CLOSING_SECONDS = 5.0  # time for the batch that is being translated when the server stops
Result = TypeVar("Result")
Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(
    queue: TranslationQueue,
    directions: Directions,
    limits: Limits,
    metrics: Metrics,
    *,
    tokens_per_minute: int,
    allowed_origins: Collection[str] = (),
    local_only: bool = False,
    known_words: str = "",
    origin_remedy: str = "",
) -> ASGIApp:
    """Return the application, which closes the queue when it ends.

    Args:
        tokens_per_minute: the budget of a client, which its requests spend (see ``RateLimit``).
        allowed_origins: origins of other pages that may use the API, such as "https://example.org"; "*" allows all,
            "moz-extension://*" those of a scheme.
        known_words: words to list on the page for a model that knows few words.
        local_only: refuse requests from pages of other hosts than this machine; for a server on a loopback address.
        origin_remedy: how to allow an origin; the end of the answer to a page that is refused.
    """
    endpoints = _Endpoints(queue, directions, limits, metrics, RateLimit(tokens_per_minute), known_words)
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
        origin_remedy=origin_remedy,
    )
    if not allowed_origins:
        return guarded
    return CORSMiddleware(  # around the guard: allowed pages read its refusals, too
        guarded,
        allow_origins=list(allowed_origins),
        allow_origin_regex="|".join(re.escape(each[:-1]) + ".+" for each in allowed_origins if "://*" in each) or None,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["Retry-After"],
    )


@dataclass(frozen=True, eq=False)
class _Endpoints:
    """The endpoints of the server: ``routes`` has a method for each path."""

    queue: TranslationQueue
    directions: Directions
    limits: Limits
    metrics: Metrics
    rate: RateLimit
    known_words: str = ""
    files: TranslatedFiles = field(default_factory=TranslatedFiles)

    def routes(self) -> list[Route]:
        get: dict[str, Endpoint] = {
            "/": _part("page.html", "text/html", self._page_values()),
            "/page.css": _part("page.css", "text/css"),
            "/page.js": _part("page.js", "text/javascript"),
            "/languages": self.known_languages,
            "/frontend/settings": self.settings,
            "/spec": self.specification,
            "/health": self.health,
            "/ready": self.ready,
            "/metrics": self.exposition,
            "/download_file/{name}": self.download_file,
        }
        post: dict[str, Endpoint] = {
            "/translate": self.translate,
            "/translate_file": self.translate_file,
            "/attention": self.attention,
            "/detect": self.detect,
        }
        return [
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in get.items()),
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in post.items()),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate a text, or a list of texts, whose languages may differ if the server detects them."""
        wanted = request_of(await _fields(request), self.directions, self.limits)
        detections, chains = await self._chains(request, wanted)
        found: dict[int, list[Translation]] = {}
        for chain in dict.fromkeys(chains):
            numbers = [i for i, its in enumerate(chains) if its == chain]
            translations = await self._translate_texts(request, [wanted.texts[i] for i in numbers], chain, wanted)
            found |= zip(numbers, translations, strict=True)
        return JSONResponse(answer_of(wanted, [found[i] for i in range(len(chains))], detections, chains))

    async def _chains(self, request: Request, wanted: TranslationRequest) -> tuple[list[Detection], list[Chain]]:
        """Return the detected languages of the texts, [] if the request names it, and the chain of each text.

        A text in the target language has the chain (), and stays as it is.
        Raises: RequestError if a detected language is not translated to the target language.
        """
        if wanted.source:
            return [], [self.directions.chain(wanted.source, wanted.target)] * len(wanted.texts)
        size = sum(map(len, wanted.texts))
        detections = await self._compute(request, size, lambda: self.directions.detect_each(wanted.texts))
        chains = [self.directions.chain(each.language, wanted.target) for each in detections]
        for detection, chain in zip(detections, chains, strict=True):
            if not chain and detection.language != wanted.target:
                raise unavailable(detection.language, wanted.target, self.directions)
        return detections, chains

    async def _translate_texts(
        self, request: Request, texts: Sequence[str], chain: Chain, wanted: TranslationRequest
    ) -> list[list[Translation]]:
        """Translate texts by one chain.  HTML has one translation; an empty chain leaves texts as they are."""
        if not chain:
            return [[Translation(text, 0.0, 0.0)] for text in texts]
        if not wanted.is_html:
            return await self._translate(request, texts, chain, wanted.road, wanted.n_best)
        size = sum(map(len, texts))
        pages = await self._compute(request, size, lambda: list(map(HtmlText, texts)))
        segments = [segment for page in pages for segment in page.segments]
        remaining = iter(await self._translate(request, segments, chain, wanted.road, 1))
        found = [[next(remaining)[0] for _ in page.segments] for page in pages]
        filled = zip(pages, found, strict=True)
        return await self._compute(request, size, lambda: [[page.translation(its)] for page, its in filled])

    async def translate_file(self, request: Request) -> Response:
        """Translate a file; the answer has the URL of the translated file."""
        async with request.form(max_files=1, max_fields=20) as form:
            fields = _collect_fields(form)
            require_fields(fields, "file", "source", "target")
            if not isinstance(upload := form["file"], UploadFile) or not upload.filename:
                raise RequestError(400, "Invalid request: empty file")
            name, content = upload.filename, await upload.read()
        source, target = check_languages(fields, self.directions)
        readable = [each for each in self.directions.sources if target in self.directions.targets(each)]
        sources = [source] if source else readable
        try:
            read, document = await self._compute(
                request, len(content) * len(sources), lambda: read_file(name, content, sources, target, self.directions)
            )
        except CorpusError as error:
            raise RequestError(400, f"Invalid request: {error}") from error
        chain = self.directions.chain(read, target)
        found = await self._translate(request, document.segments, chain, road_settings(fields, self.limits), 1)
        await self._compute(request, len(content), lambda: document.fill([best[0] for best in found]))
        translated = await self._compute(request, len(content), document.content)
        key = self.files.add(name, target.code, translated)
        pivot = {"pivot": pivot_code(chain)} if len(chain) > 1 else {}
        return JSONResponse({"translatedFileUrl": str(request.url_for("download_file", name=key))} | pivot)

    async def download_file(self, request: Request) -> Response:
        """Return a translated file."""
        found = self.files.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404, "there is no such file, or no longer: translate it again")
        name, content = found
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def _translate(
        self, request: Request, texts: Sequence[str | Parts], chain: Chain, settings: RoadSettings, n_best: int
    ) -> list[list[Translation]]:
        """Return up to ``n_best`` translations of each text, best first; the last model of a chain finds them.

        A model before it finds one translation of each text, whose codes, and translated terms, the last model copies.
        """
        *before, last = chain
        first = list[Translation]()
        for direction in before:  # one at most
            first = [its[0] for its in await self._translate_by(request, texts, direction, settings, 1)]
            texts, settings = [list(each.parts) for each in first], replace(settings, terms=None)
        found = await self._translate_by(request, texts, last, settings, n_best, is_first=not before)
        for one, its in zip(first, found, strict=False):
            its[:] = [replace(each, notes=tuple(dict.fromkeys((*one.notes, *each.notes)))) for each in its]
        return found

    async def _translate_by(
        self,
        request: Request,
        texts: Sequence[str | Parts],
        direction: Direction,
        settings: RoadSettings,
        n_best: int,
        *,
        is_first: bool = True,
    ) -> list[list[Translation]]:
        """Return up to ``n_best`` translations of each text by one model, best first.

        ``is_first`` is false if a model before it has translated the texts: then they are counted, but not refused.
        Raises: RequestError if a text has more than MOST_PARTS parts, and as ``_translations`` does.
        """
        translator = direction.translator
        steps = direction.road(settings.skip, settings.terms).steps(texts)
        wholes = [[text] if isinstance(text, str) else text for text in texts]
        size = sum(len(part) for part in itertools.chain.from_iterable(wholes) if isinstance(part, str))

        def begin() -> tuple[Sentences | None, list[int], list[list[Translation]]]:
            if any(len(with_textual_codes(parts)) > MOST_PARTS for parts in wholes):
                raise RequestError(
                    413, f"Invalid request: a text has more than {MOST_PARTS} tags, placeholders and texts between them"
                )
            return _next_sentences(steps, None, translator)

        wish, lengths, done = await self._compute(request, size, begin)
        while wish is not None:
            found = await self._translations(request, translator, wish, lengths, n_best, is_first=is_first)
            wish, lengths, done = await self._compute(request, size, partial(_next_sentences, steps, found, translator))
            is_first = False  # the same text again: it is counted, but not refused
        return done

    async def _translations(
        self,
        request: Request,
        translator: Translator,
        wish: Sentences,
        lengths: Sequence[int],
        n_best: int,
        *,
        is_first: bool,
    ) -> list[list[Translation]]:
        """Return up to ``n_best`` translations of each sentence; ``lengths`` has their numbers of tokens.

        Raises: RequestError if a sentence is too long, and as ``_charge`` does; OverloadedError; ClientDisconnect.
        """
        longest = translator.longest_source
        if max(lengths, default=0) > longest:
            raise RequestError(413, f"Invalid request: a sentence has more than {longest} tokens; split it")
        costs = [self.queue.cost(n_tokens) for n_tokens in lengths]
        with self._charge(request, costs, may_refuse=is_first):
            futures = self.queue.translate(
                translator,
                wish.lines,
                costs,
                n_best,
                client=_client(request),
                aligned=wish.aligned,
                no_repeat=wish.no_repeat,
            )
        return await _results(futures, request)

    async def _compute(self, request: Request, size: int, function: Callable[[], Result]) -> Result:
        """Return the result of work with texts of ``size`` characters, which the queue's thread computes.

        Raises: OverloadedError if the queue is closed; ClientDisconnect; and as the function does.
        """
        cost = size // CHARACTERS_OF_TOKEN
        work = self.queue.call(function, cost, client=_client(request), is_counted=False)
        (found,) = await _results([work], request)
        return found

    async def attention(self, request: Request) -> Response:
        """Return how much each word of a translation attends to each word of its source."""
        fields = await _fields(request)
        source, target = (" ".join(texts_of(fields, name, self.limits)) for name in ("q", "translation"))
        direction = direction_of(fields, self.directions)
        translator, tag, size = direction.translator, direction.tag, len(source) + len(target)
        try:
            cost = await self._compute(request, size, lambda: attention_cost(translator, source, target, tag))
        except TooLongError as error:
            raise RequestError(413, str(error)) from error

        def answer() -> Response:  # a large table takes long to write, so that the client is charged for it, too
            found = word_attention(translator, source, target, tag)
            weights = found.weights.astype(np.float64).round(3).tolist()
            return JSONResponse({"source": found.source, "translation": found.target, "weights": weights})

        with self._charge(request, [cost]):
            work = self.queue.call(answer, cost, client=_client(request))
        return (await _results([work], request))[0]

    async def detect(self, request: Request) -> Response:
        """Return the languages that a text, or all texts of a list together, may have, the most probable first."""
        texts = texts_of(await _fields(request), "q", self.limits)
        if not self.directions.can_detect:
            raise RequestError(400, "Invalid request: this server cannot detect languages")
        found = await self._compute(request, sum(map(len, texts)), lambda: self.directions.detect("\n".join(texts)))
        return JSONResponse(list(map(detection_fields, found)))

    async def known_languages(self, request: Request) -> Response:
        """Return all languages, and for each the languages into which the server translates it."""
        targets = {
            each: [target.code for target in self.directions.targets(each)] for each in self.directions.languages
        }
        return JSONResponse([{"code": each.code, "name": each.name, "targets": its} for each, its in targets.items()])

    async def settings(self, request: Request) -> Response:
        """Return the settings that clients of LibreTranslate read when they start."""
        language = {
            side: {"code": one.code, "name": one.name}
            for side, one in (("source", self.directions.first.source), ("target", self.directions.first.target))
        }
        return JSONResponse(
            {
                "apiKeys": False,
                "keyRequired": False,
                "charLimit": self.limits.characters,
                "frontendTimeout": 500,
                "suggestions": False,
                "filesTranslation": True,
                "supportedFilesFormat": readable_endings(),
                "language": language,
            }
        )

    async def specification(self, request: Request) -> Response:
        """Return the description of the API."""
        return JSONResponse(specification())

    async def health(self, request: Request) -> Response:
        """Return "ok".  Raises: OverloadedError when the server stops."""
        if self.queue.is_closed:
            raise OverloadedError(STOPPING)
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Return "ok" if a short sentence would be translated soon.  Raises: OverloadedError otherwise."""
        if not self.queue.is_ready():
            raise OverloadedError(STOPPING if self.queue.is_closed else "short sentences are refused or wait too long")
        return JSONResponse({"status": "ok"})

    async def exposition(self, request: Request) -> Response:
        """Return the metrics in Prometheus' text format."""
        return Response(self.metrics.exposition(), media_type=MEDIA_TYPE)

    @contextmanager
    def _charge(self, request: Request, costs: Sequence[int], *, may_refuse: bool = True) -> Iterator[None]:
        """Check that the client can pay for work; take the cost from its budget when the context has ended.

        Raises: RequestError if the cost is too high for any client; HTTPException if this client must wait.
        """
        tokens, client = sum(costs), _client(request)
        if may_refuse and (tokens > self.rate.per_minute or not self.queue.can_wait(costs)):
            raise RequestError(413, f"Invalid request: it may cost {tokens:,} tokens; send less text at once")
        if may_refuse and (seconds := self.rate.seconds_until(client, tokens)):
            detail = f"Slowdown: {self.rate.per_minute} tokens per 1 minute"
            raise HTTPException(429, detail, {"Retry-After": str(seconds)})
        yield
        self.rate.spend(client, tokens)

    def _page_values(self) -> dict[str, str]:
        directions, first = self.directions, self.directions.first
        targets = {source: directions.targets(source) for source in directions.sources}
        values = {
            "source_code": first.source.code, "source_name": first.source.name, "target_code": first.target.code,
            "target_name": first.target.name, "characters": self.limits.characters,
            "alternatives": min(3, self.limits.alternatives),
            "hidden": "" if self.known_words else "hidden", "words": self.known_words,
            "one_pair": "hidden" if list(map(len, targets.values())) == [1] else "",
        }  # fmt: skip
        escaped = {name: html.escape(str(value)) for name, value in values.items()}
        all_targets = list(dict.fromkeys(itertools.chain(*targets.values())))
        sources = [_option(each.code, each.name, its) for each, its in targets.items()]
        if len(sources) > 1 and directions.can_detect:
            sources.append(_option("auto", "Any language", all_targets))
        options = (_option(each.code, each.name) for each in all_targets)
        return escaped | {"sources": "".join(sources), "targets": "".join(options)}


def _part(name: str, media_type: str, values: Mapping[str, str] | None = None) -> Endpoint:
    """Return an endpoint that answers with a file of the page, read only once; ``values`` replace its placeholders."""
    text = (package_files("minitransformer.extras.serve") / "page" / name).read_text(encoding="utf-8")
    text = text if values is None else Template(text).substitute(values)

    async def answer(request: Request) -> Response:
        return Response(text, media_type=media_type)

    return answer


def _option(code: str, name: str, targets: Sequence[Language] = ()) -> str:
    """Return the HTML of a language in a list from which users choose; to ``targets`` it is translated."""
    data = f' data-targets="{" ".join(target.code for target in targets)}"' if targets else ""
    return f'<option value="{html.escape(code)}"{data}>{html.escape(name)}</option>'


def _client(request: Request) -> str:
    """Return the network of a request's client."""
    return network_of(request.client.host if request.client else "")


def _next_sentences(
    steps: RoadSteps, found: Sequence[Sequence[Translation]] | None, translator: Translator
) -> tuple[Sentences | None, list[int], list[list[Translation]]]:
    """Send ``found``, the translations of the last sentences, to ``steps``; in the first call, ``found`` is None.

    Returns: the next sentences, their numbers of tokens, and []; at the end None, [], and the texts' translations.
    """
    try:
        sentences = next(steps) if found is None else steps.send(found)
    except StopIteration as end:
        return None, [], end.value
    return sentences, translator.count_tokens(sentences.lines), []


async def _fields(request: Request) -> Mapping[str, Any]:
    """Return the fields of a JSON object, or of a form and the URL; a field that occurs several times becomes a list.

    Some clients of LibreTranslate send all fields in the URL (``/translate?q=...``), with an empty body.
    Raises: RequestError if the body is of another type, or cannot be read.
    """
    in_address = _collect_fields(request.query_params)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        async with request.form(max_files=0) as form:
            return in_address | _collect_fields(form)
    if kind == "application/x-www-form-urlencoded":
        try:
            return in_address | _collect_fields(QueryParams((await request.body()).decode()))
        except UnicodeDecodeError as error:
            raise RequestError(400, "Invalid request: the form is not UTF-8 text") from error
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


def _collect_fields(values: ImmutableMultiDict[str, Any]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for name, value in values.multi_items():
        found.setdefault(name, []).append(value)
    return {name: several if len(several) > 1 else several[0] for name, several in found.items()}


async def _results(work: Sequence[Future[Result]], request: Request) -> list[Result]:
    """Wait for the results of work.

    Raises: ClientDisconnect if the client disconnects; the work is then cancelled.
    """
    results, gone = asyncio.create_task(_wait_for_all(work)), asyncio.create_task(_wait_for_disconnect(request))
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


async def _wait_for_all(work: Sequence[Future[Result]]) -> list[Result]:
    return [await asyncio.wrap_future(future) for future in work]


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _as_json(request: Request, error: Exception) -> Response:
    """Return an error as LibreTranslate returns errors: a JSON object with a message."""
    match error:
        case RequestError():
            return JSONResponse({"error": error.message}, error.status)
        case ClientDisconnect():
            return JSONResponse({}, 499)  # no client reads this; the metrics count it
        case HTTPException():
            return JSONResponse({"error": error.detail}, error.status_code, error.headers)
        case OverloadedError():
            return JSONResponse({"error": str(error)}, 503, {"Retry-After": "1"})
    return JSONResponse({"error": "the translation failed"}, 500)
