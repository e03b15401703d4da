"""Work on threads: it ends early when its results are no longer wanted."""

from __future__ import annotations

import signal
import time
from threading import Event

import pytest

from minitransformer.system.threads import map_in_threads, require_wanted


def test_ctrl_c_ends_the_work_on_threads() -> None:
    n_begun, has_begun = 0, Event()

    def work(item: int) -> None:
        nonlocal n_begun
        n_begun += 1
        has_begun.set()
        while True:
            require_wanted()
            time.sleep(0.001)

    def interrupt_or_work(item: int) -> None:
        if item:
            work(item)
        has_begun.wait()
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        list(map_in_threads(interrupt_or_work, range(10), 2))
    assert 1 <= n_begun <= 2  # the others were never begun


def test_work_outside_of_such_a_call_is_wanted() -> None:
    require_wanted()
    assert list(map_in_threads(lambda item: require_wanted() or item, range(3), 2)) == [0, 1, 2]
    require_wanted()
