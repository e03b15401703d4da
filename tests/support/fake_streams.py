"""Part of a stand-in for ``cupy.cuda``: streams, events, memory pools, and graphs that can be launched again.

The current stream computes at once.  What is late on a GPU is late here too, where code could rely on it: copies that
another stream was given run when somebody waits for an event behind them, and read the host's memory then; copies to
the host arrive when the host waits.  While a stream is captured nothing runs: it is kept, and run by every launch of
the graph, on the same memory.  What CuPy refuses then, or what would leave a graph in memory that others are given, is
refused: to read a value, to copy from the host, to wait, to allocate outside a pool of the graph's own.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import fake_cuda
import numpy as np

Work = Callable[[], None]
ALIGNMENT = 512  # bytes, of all that CuPy allocates


class CaptureError(RuntimeError):
    """What cannot be done while a stream is captured."""


class Stream:
    """A row of work."""

    _pointers = itertools.count(64, 8)

    def __init__(self, *, non_blocking: bool = False) -> None:
        self.ptr, self.non_blocking, self.capturing = next(Stream._pointers), non_blocking, False
        self.late: list[Work] = []

    def __enter__(self) -> Stream:
        _current.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.pop()

    def begin_capture(self) -> None:
        if not self.non_blocking:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        self.capturing, self._work = True, list[Work]()

    def end_capture(self) -> Graph:
        self.capturing = False
        return Graph(self._work)

    def is_capturing(self) -> bool:
        return self.capturing

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        refuse("wait_event")
        event.let_pass()

    def synchronize(self) -> None:
        refuse("synchronize")
        fake_cuda.CALLS.append(("synchronize",))
        _run_all(self.late)


class Event:
    """A place in a stream."""

    def __init__(self, **how: bool) -> None:
        self._before: list[Work] = []
        self.number = -1

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or get_current_stream()
        self.seconds, self.number = time.perf_counter(), len(fake_cuda.CALLS)
        fake_cuda.CALLS.append(("event",))
        self._before = stream.late  # shared with later events, so that what has run is gone for all
        self._n_before = len(stream.late)

    def let_pass(self) -> None:
        """Run what stands before it."""
        _run_all(self._before, self._n_before)

    def synchronize(self) -> None:
        refuse("synchronize")
        fake_cuda.CALLS.append(("wait", self.number))
        self.let_pass()


def _run_all(late: list[Work], n: int | None = None) -> None:
    for _ in range(len(late) if n is None else min(n, len(late))):
        late.pop(0)()


class Graph:
    """Work that was captured."""

    def __init__(self, work: list[Work]) -> None:
        self.work = work

    def launch(self, stream: Stream | None = None) -> None:
        refuse("a launch of a graph")
        fake_cuda.CALLS.append(("graph", len(self.work)))
        for run in self.work:
            run()


class Memory:
    """A pointer into memory of a pool."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __add__(self, n_bytes: int) -> Memory:
        return Memory(self.values[n_bytes:])

    def memset_async(self, value: int, size: int, stream: Stream | None = None) -> None:
        self.values[:size] = value

    def copy_to_host(self, address: int, size: int) -> None:
        ctypes.memmove(address, self.values.ctypes.data, size)


class MemoryPool:
    """Memory of somebody's own; new arrays lie in it only if ``set_allocator`` was given its ``malloc``."""

    def malloc(self, size: int) -> Memory:
        buffer = np.empty(size + ALIGNMENT, np.uint8)
        start = -buffer.ctypes.data % ALIGNMENT
        return Memory(buffer[start : start + size])

    def total_bytes(self) -> int:
        return 0


def set_allocator(allocator: Callable[[int], Memory]) -> None:
    """Let the arrays of the whole process lie in memory that ``allocator`` returns."""
    _allocators[:] = [allocator]


def malloc(size: int) -> Any:
    """Return memory for an array, as bytes."""
    return _allocators[0](size).values[:size]


_allocators: list[Callable[[int], Memory]] = [MemoryPool().malloc]
_current: list[Stream] = []
_pools: list[Any] = []


def reset() -> None:
    """As a process begins."""
    _current[:], _pools[:] = [Stream()], []
    _current[0].ptr = 7


def get_current_stream() -> Stream:
    return _current[-1]


@contextmanager
def using_allocator(allocator: Any) -> Iterator[None]:
    _pools.append(allocator)
    try:
        yield
    finally:
        _pools.pop()


def is_capturing() -> bool:
    return _current[-1].capturing and hasattr(_current[-1], "_work")


def refuse(what: str) -> None:
    """To be called before what a captured stream cannot do."""
    if is_capturing():
        raise CaptureError(f"operation not permitted when stream is capturing: {what}")


def do(work: Work) -> None:
    """Run ``work`` now, or whenever the graph that is being captured is launched."""
    if is_capturing():
        get_current_stream()._work.append(work)
    else:
        work()


def allocate() -> None:
    """To be called for every fresh array."""
    if is_capturing() and not _pools:
        raise CaptureError("memory of a graph must come from a pool of its own, or others are given it later")


def made(compute: Callable[[], Any], sources: list[Any], wrap: Callable[[Any], Any]) -> Any:
    """``wrap`` of what ``compute`` returns; what is no view of a source is computed when the graph is launched."""
    if not is_capturing():
        return wrap(compute())
    with np.errstate(all="ignore"):  # what is read has not been computed
        result = np.asarray(compute())
    array = wrap(result)
    if not any(np.may_share_memory(result, source) for source in sources):
        allocate()
        values = array._values
        do(lambda: values.__setitem__(..., compute()))
        poison(values)
    return array


def poison(values: Any) -> None:
    """Full of ones, bit by bit, which are NaN: whoever reads what nobody has written shall notice."""
    values[...] = np.frombuffer(b"\xff" * values.itemsize, values.dtype)


reset()
