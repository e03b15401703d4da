"""The application as a process: a listening socket, uvicorn, and limits on idle connections."""

from __future__ import annotations

import asyncio
import resource
import socket

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from minitransformer.config import ConfigError

HEAD_SECONDS = 10.0  # for the head of a request to arrive
STOP_SECONDS = 20  # for the requests that are being answered when the server stops


class _ImpatientProtocol(H11Protocol):
    """uvicorn's HTTP protocol; it closes a connection on which no complete head arrives in time.

    uvicorn itself closes a connection only if it stays silent after an answer.
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


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; with port 0 the system chooses one.  Raises: ConfigError if it cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family, backlog=2_048)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"host {host}, port {port}: cannot listen there ({error}); choose another port, or an address of this"
            " machine"
        ) from error
    # Connections inherit it.  Without it, the body of an answer waits 40 ms for the client's receipt of the head.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address_of(listening: socket.socket) -> str:
    """Return the address of a listening socket as browsers write it."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_server(app: ASGIApp, listening: socket.socket, *, proxy: str | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C, which is raised again at the end.

    At a signal, no new connection is accepted; requests that have begun are answered, for up to STOP_SECONDS.

    Args:
        proxy: the address of a reverse proxy, whose X-Forwarded-For names the clients.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
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
    uvicorn.Server(config).run([listening])
