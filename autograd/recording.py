"""A switch of each thread: operations record a tape, or not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Recording(threading.local):
    enabled = True


_recording = _Recording()


def is_recording() -> bool:
    """Return whether operations of this thread record a tape."""
    return _recording.enabled


@contextmanager
def no_tape() -> Iterator[None]:
    """Run operations of this thread without recording: nothing is kept for a backward pass."""
    before, _recording.enabled = _recording.enabled, False
    try:
        yield
    finally:
        _recording.enabled = before
