"""A second stream, on which a GPU computes gradients of weights beside the rest of the backward pass.

Nothing reads the gradient of a weight before the backward pass ends, so its product can run at any time until then.
The stream of the caller is the main stream: it computes everything else.  Each thread has a second stream of its own.
While the main stream is captured, events make the second stream part of the same graph.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from autograd.array import namespace_of_device

MOST_HELD = 4  # products whose arrays are held: more would keep more memory, fewer would stop the main stream earlier


class _SideStream(threading.local):
    """The second stream of a thread.

    CuPy reuses freed memory at once on the stream that allocated it, here the main stream.  So the arrays of a product
    are held until the main stream has waited for the product.  Only the workspace of cuBLASLt is allocated on the
    second stream.
    """

    def __init__(self) -> None:
        self._stream: Any = None
        self._main: Any = None
        self._held: deque[tuple[Any, Callable[[], None]]] = deque()  # the event after each work, and the work

    def run(self, work: Callable[[], None]) -> None:
        """Enqueue ``work`` on the second stream, after all work that the main stream has so far.

        ``work`` refers to the arrays that it reads and writes.  Until ``wait`` the main stream must not write to them.
        """
        cuda = namespace_of_device("cuda").cuda
        main = self._main = cuda.get_current_stream()
        if self._stream is None:
            self._stream = cuda.Stream(non_blocking=True)
        while len(self._held) >= MOST_HELD:
            main.wait_event(self._held[0][0])
            self._held.popleft()
        self._stream.wait_event(main.record())
        with self._stream:
            try:
                work()
            finally:  # also after an error: without this event a capture could not be ended
                self._held.append((self._stream.record(), work))

    def wait(self) -> None:
        """Let the current stream wait for all work on the second stream.

        If the current stream is the main stream, release the arrays that are held.
        """
        if self._held:
            current = namespace_of_device("cuda").cuda.get_current_stream()
            try:
                current.wait_event(self._held[-1][0])
            finally:
                if current.ptr == self._main.ptr:
                    self._held.clear()


thread_stream = _SideStream()
run, wait = thread_stream.run, thread_stream.wait
