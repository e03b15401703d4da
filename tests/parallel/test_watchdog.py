"""Nobody waits for ever, and nobody is ended who waits no longer than he may."""

import errno
import itertools
import socket
import sys
import threading
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from waiting import TIME_LIMIT

from parallel.watchdog import Watchdog


def test_a_call_that_takes_too_long_ends_all(capsys: pytest.CaptureFixture[str]) -> None:
    ended = threading.Event()
    with Watchdog(3, 0.05, ended.set).waiting("a sum"):
        assert ended.wait(timeout=TIME_LIMIT)
    message = f"rank 3 ({socket.gethostname()}) has waited 0.05 s for the other ranks, in a sum: one of them is frozen"
    assert message in capsys.readouterr().err


def test_a_log_that_cannot_be_written_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Mock(write=Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))))
    ended = threading.Event()
    with Watchdog(3, 0.05, ended.set).waiting("a sum"):
        assert ended.wait(timeout=TIME_LIMIT)


def test_calls_that_end_in_time_are_left_alone_and_time_between_them_does_not_count() -> None:
    ended = threading.Event()
    watchdog = Watchdog(0, 1.0, ended.set)
    for _ in range(4):
        with watchdog.waiting("a sum"):
            pass
        time.sleep(0.3)
    assert not ended.is_set()


def test_time_in_which_the_process_was_stopped_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-Z: the clock has gone far ahead while nothing ran."""
    clock = itertools.count(step=1000.0)
    monkeypatch.setattr("parallel.watchdog.time", SimpleNamespace(monotonic=lambda: next(clock)))
    ended = threading.Event()
    with Watchdog(0, 2.0, ended.set).waiting("a sum"):
        assert not ended.wait(timeout=1.5)
        assert ended.wait(timeout=TIME_LIMIT)


def test_an_error_in_a_call_ends_the_wait() -> None:
    ended = threading.Event()
    watchdog = Watchdog(0, 0.2, ended.set)
    with pytest.raises(ValueError, match="on purpose"), watchdog.waiting("a sum"):
        raise ValueError("on purpose")
    assert not ended.wait(timeout=0.6)
