"""Work that kernels start beside the backward pass, for example on a second stream of a GPU.

The tape and the parameters know nothing of streams.  A module that starts such work appends a function to ``waits``,
which orders everything that this thread enqueues later after the work that it has started.
"""

from __future__ import annotations

from collections.abc import Callable

waits: list[Callable[[], None]] = []


def wait_for_side_work() -> None:
    """Order everything that this thread enqueues later after the work that kernels have started beside it."""
    for wait in waits:
        wait()
