"""Ctrl-C, SIGTERM and errors of callbacks as a request to stop after the current update."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from minitransformer.training.callbacks import CallbackError
from parallel.communicator import Communicator

LONG_UPDATE = 1.0  # seconds from a signal until rank 0 logs that it waits for the update
_log = logging.getLogger(__name__)


class Interrupt:
    """A context in which the first signal, or error of a callback, is recorded; a second signal has its usual effect.

    All ranks stop after the same update, so that no rank waits for a rank that has ended.
    """

    def __init__(self, world: Communicator) -> None:
        self._world = world
        self._received = self._raises = False
        self.error: CallbackError | None = None
        self._before: dict[int, Any] = {}
        text = "finishing this update, then saving; Ctrl-C again ends at once, without saving"
        self._notice = threading.Timer(LONG_UPDATE, _log.info, [text])  # on a thread: a handler must not print
        self._notice.daemon = True

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._remember) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._notice.cancel()
        self._restore()

    def is_requested(self) -> bool:
        """Return whether to stop now; the result is the same on all ranks."""
        return self._world.any(self._received)

    @contextmanager
    def at_error(self) -> Iterator[None]:
        """Record a CallbackError of this context, and request a stop as a signal does."""
        try:
            yield
        except CallbackError as error:
            self._received, self.error = True, self.error or error

    @contextmanager
    def raise_on_signal(self) -> Iterator[None]:
        """Let a signal raise KeyboardInterrupt in this context; raise it at once if a signal has come before."""
        self._raises = True
        try:
            if self._received:
                raise KeyboardInterrupt
            yield
        finally:
            self._raises = False

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._received = True
        self._restore()
        if self._raises:
            raise KeyboardInterrupt
        if self._world.rank == 0:
            self._notice.start()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
