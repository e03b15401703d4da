"""The listening socket of a server."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("uvicorn", reason='the extra is not installed: pip install -e ".[serve]"')

from minitransformer.extras.serve.server import listen


def test_an_answer_does_not_wait_for_the_receipt_of_its_head() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
