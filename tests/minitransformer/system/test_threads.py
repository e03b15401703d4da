"""Work on threads: it ends early when its results are no longer wanted."""

import signal
import time
from threading import Event, Thread, main_thread

import pytest
from waiting import TIME_LIMIT, wait_until

from minitransformer.system.threads import is_still_computing, map_in_threads, on_a_thread, require_wanted


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


def interrupt_once_set(has_begun: Event) -> None:
    """Press Ctrl-C, on a thread, soon after the event."""

    def interrupt() -> None:
        has_begun.wait()
        time.sleep(0.05)  # until the main thread waits
        signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)

    Thread(target=interrupt).start()


def test_ctrl_c_ends_the_wait_for_a_thread_that_calls_no_python() -> None:
    has_begun, may_end = Event(), Event()
    interrupt_once_set(has_begun)
    with pytest.raises(KeyboardInterrupt):
        on_a_thread(lambda: (has_begun.set(), may_end.wait()))
    assert is_still_computing()
    may_end.set()
    wait_until(lambda: not is_still_computing())


def test_ctrl_c_ends_work_on_a_thread_that_asks_whether_it_is_wanted() -> None:
    has_begun, has_ended = Event(), Event()

    def work() -> None:
        has_begun.set()
        try:
            while True:
                require_wanted()
                time.sleep(0.001)
        finally:
            has_ended.set()

    interrupt_once_set(has_begun)
    with pytest.raises(KeyboardInterrupt):
        on_a_thread(work)
    assert has_ended.wait(TIME_LIMIT)


def test_a_thread_returns_its_result_or_raises_its_error() -> None:
    assert on_a_thread(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        on_a_thread(lambda: 1 // 0)


def test_work_outside_of_such_a_call_is_wanted() -> None:
    require_wanted()
    assert list(map_in_threads(lambda item: require_wanted() or item, range(3), 2)) == [0, 1, 2]
    require_wanted()
