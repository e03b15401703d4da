"""The one limit on the time that a test waits: only a step that hangs takes so long, even on a busy machine."""

import time
from collections.abc import Callable

TIME_LIMIT = 1_200  # seconds: over ten times what the slowest step takes alone, and more than ranks wait for others


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + TIME_LIMIT
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
