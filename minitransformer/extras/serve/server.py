"""The process of the server: a listening socket, uvicorn, and limits on idle connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from contextlib import suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from minitransformer.config import ConfigError
from minitransformer.system.memory import resource

HEAD_SECONDS = 10.0  # time in which the head of a request must arrive
STOP_SECONDS = 20  # time for the requests that are being answered when the server stops
SILENT_SECONDS = 60  # least time between two log messages that connections cannot be accepted
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_log = logging.getLogger(__name__)


class _ImpatientProtocol(H11Protocol):
    """uvicorn's HTTP protocol, which also closes a connection on which no complete head arrives in time.

    uvicorn itself closes only connections that stay silent after an answer.
    """

    _seen: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEAD_SECONDS, self._close_if_waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _close_if_waiting(self) -> None:
        """Close the connection if it has waited for the next request since the last call."""
        is_waiting = self.cycle is None or self.cycle.response_complete
        if is_waiting and self.cycle is self._seen:
            self.transport.close()
            return
        self._seen = self.cycle if is_waiting else object()
        self._timer = self.loop.call_later(HEAD_SECONDS, self._close_if_waiting)


class _ListeningSocket(socket.socket):
    """A listening socket that fails once, not 2,048 times in a row, while no file can be opened.

    asyncio accepts connections until none waits (BlockingIOError).  After another error it goes on, and tries again
    after a second.
    """

    _is_exhausted = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.  Raises: BlockingIOError also at the call after one that found no free descriptor."""
        if self._is_exhausted:
            self._is_exhausted = False
            raise BlockingIOError
        try:
            return super().accept()
        except OSError as error:
            self._is_exhausted = error.errno in _EXHAUSTED
            raise


class _Server(uvicorn.Server):
    """uvicorn's server, which logs at most once in SILENT_SECONDS that connections cannot be accepted.

    asyncio reports this every second while connections wait and no file can be opened.
    """

    _silent_until = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._report)
        await super().startup(sockets)

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _EXHAUSTED:
            if loop.time() >= self._silent_until:
                self._silent_until = loop.time() + SILENT_SECONDS
                most = f", {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,}" if resource else ""
                reason, remedy = error.strerror, f"close some, or raise the limit of open files{most}"
                _log.warning(f"new connections wait ({reason}): {remedy}")
        elif not (self.should_exit and isinstance(error, ValueError)):  # asyncio tries to accept from a closed socket
            loop.default_exception_handler(context)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; for port 0 the system chooses a port.  Raises: ConfigError if it cannot listen."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.create_server(address[:2], family=family, backlog=2_048)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"host {host}, port {port}: cannot listen there ({error}); choose another port, or an address of this"
            " machine"
        ) from error
    listening = _ListeningSocket(fileno=made.detach())
    # Connections inherit this option, without which an answer's body waits 40 ms for the client's receipt of the head.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_server(app: ASGIApp, listening: socket.socket, *, proxy: str | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C; raise the signal again at the end.

    After a signal, no new connection is accepted; requests that have begun are answered, for up to STOP_SECONDS.

    Args:
        proxy: the address of a reverse proxy whose header X-Forwarded-For names the clients, or None.
    """
    if resource:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(ValueError, OSError):  # macOS calls the limit infinite, and grants less
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection is a file
    config = uvicorn.Config(
        app,
        http=_ImpatientProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="critical",  # the application reports its own errors, without what users typed
        access_log=False,
        proxy_headers=proxy is not None,
        forwarded_allow_ips=proxy,
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    _Server(config).run([listening])
