"""Part of a stand-in for ``cupy.cuda``: streams, events, memory pools, and graphs that can be launched again.

The current stream computes at once.  What is late on a GPU is late here too, where code could rely on it: copies that
another stream was given run when somebody waits for an event behind them, and read the host's memory then; copies to
the host arrive when the host waits.  A second stream, which waits for an event of the current one, computes late, too:
when a stream waits for an event behind its work.  A stream within another one must have waited for all that the other
was given.  While a stream is captured nothing runs: it is kept, and run by every launch of the graph, on the same
memory.  A stream that waits for an event of a capture is captured with it, and must be waited for before the capture
ends.  What CuPy refuses then, or what would leave a graph in memory that others are given, is refused: to read a value,
to copy from the host, to wait, to allocate outside a pool of the graph's own.  After that there is no graph of the
capture, as in CUDA; and a stream cannot be left before its capture has been ended.  A pool gives memory to the next
array of the same stream as soon as it is free, and graphs that have used it still write to it.
"""

from __future__ import annotations

import ctypes
import itertools
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import fake_cuda
import numpy as np

Work = Callable[[], None]
Allocator = Callable[[int], Any]


class CaptureError(RuntimeError):
    """What cannot be done while a stream is captured."""


class Stream:
    """A row of work."""

    _pointers = itertools.count(64, 8)

    def __init__(self, *, non_blocking: bool = False) -> None:
        self.ptr, self.non_blocking, self.capturing = next(Stream._pointers), non_blocking, False
        self.late: list[Work] = []
        self.n_begun = 0  # work that was late and is no more
        self.n_given = 0  # work that was given to it
        self.seen: dict[int, int] = {}  # by address: how much of a stream's work it has waited for
        self.origin: Stream | None = None  # the stream whose capture it is part of
        self.was_refused = False

    def __enter__(self) -> Stream:
        _current.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.pop()
        if _capturing.get(self.ptr) and self.origin is self:
            raise CaptureError("a capture was begun and not ended")

    def begin_capture(self) -> None:
        if not self.non_blocking:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        if self.capturing:
            raise CaptureError("the stream is being captured already")
        self.was_refused, self.work = False, list[Work]()
        self._join_capture(self)

    def _join_capture(self, origin: Stream) -> None:
        self.capturing, self.origin = True, origin
        _capturing[self.ptr] = self

    def end_capture(self) -> Graph:
        if self.origin is not self:
            raise CaptureError("the stream is not being captured, or as part of another stream's capture")
        members = [stream for stream in _capturing.values() if stream.origin is self]
        is_joined = not any(stream.late for stream in members if stream is not self)
        for stream in members:
            del _capturing[stream.ptr]
            stream.capturing, stream.origin = False, None
            if stream is not self:
                stream.n_begun += len(stream.late)
                stream.late.clear()
        if self.was_refused:
            raise CaptureError("operation failed due to a previous error during capture")
        if not is_joined:
            raise CaptureError("capturing stream has unjoined work")
        return Graph(self.work)

    def is_capturing(self) -> bool:
        return self.capturing

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Wait; within a capture only for an event of that capture, which a stream joins by waiting for it."""
        if self.origin is None and event.origin and event.origin.origin is event.origin:
            self._join_capture(event.origin)
        if self.origin is not event.origin:
            refuse("wait_event", self)
            raise CaptureError("dependency created on uncaptured work in another stream, or on an earlier capture")
        self.seen[event.stream.ptr] = max(event.n_given, self.seen.get(event.stream.ptr, 0))
        if self is not get_current_stream():
            _second[self.ptr] = self
        if event.stream is not self:
            event.let_pass(self.origin.work.append if self.origin else None)

    def synchronize(self) -> None:
        refuse("synchronize")
        refuse("synchronize", self)
        fake_cuda.CALLS.append(("synchronize",))
        run_late(self)


class Event:
    """A place in a stream."""

    def __init__(self, **how: bool) -> None:
        self.stream, self.origin, self.n_given, self._end = get_current_stream(), None, 0, 0
        self.number, self.ptr = -1, id(self)

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or get_current_stream()
        self.seconds, self.number = time.perf_counter(), len(fake_cuda.CALLS)
        fake_cuda.CALLS.append(("event",))
        if fake_cuda.nccl.is_stuck:
            fake_cuda.NEVER_REACHED.add(self.ptr)
        self.stream, self.origin, self.n_given = stream, stream.origin, stream.n_given
        self._end = stream.n_begun + len(stream.late)

    def let_pass(self, take: Callable[[Work], None] | None = None) -> None:
        """Run what stands before it, or give it to ``take``."""
        _begin(self.stream, self._end, take)

    def synchronize(self) -> None:
        refuse("synchronize")
        assert self.ptr not in fake_cuda.NEVER_REACHED, "the host waits for ever"
        fake_cuda.CALLS.append(("wait", self.number))
        self.let_pass()


def run_late(stream: Stream) -> None:
    """Run what is late on the stream: somebody waits for its end."""
    _begin(stream, stream.n_begun + len(stream.late))


def _begin(stream: Stream, end: int, take: Callable[[Work], None] | None = None) -> None:
    while stream.n_begun < end:
        stream.n_begun += 1
        work = stream.late.pop(0)
        if take:
            take(work)
        else:
            work()


class Graph:
    """Work that was captured."""

    def __init__(self, work: list[Work]) -> None:
        self.work = work

    def launch(self, stream: Stream | None = None) -> None:
        refuse("a launch of a graph")
        fake_cuda.CALLS.append(("graph", len(self.work)))
        for run in self.work:
            do(run, stream.ptr if stream else None)


class MemoryPool:
    """Memory that is given to a stream's next array as soon as its last one is gone, whatever graphs write to it."""

    def __init__(self, allocator: Allocator | None = None) -> None:
        self._allocate = allocator or (lambda size: fake_cuda.MemoryPointer(fake_cuda.Memory(size), 0))
        self._free: dict[int, list[fake_cuda.Memory]] = {}  # by address of the stream that has used it
        self._n_bytes = 0

    def malloc(self, size: int) -> Pointer:
        free = self._free.setdefault(get_current_stream().ptr, [])
        fitting = [i for i, memory in enumerate(free) if memory.size >= size]
        if fitting:
            return Pointer(Block(self, free.pop(min(fitting, key=lambda i: free[i].size)), free))
        try:
            memory = self._allocate(size).mem
        except fake_cuda.CUDARuntimeError:
            self.free_all_blocks()
            try:
                memory = self._allocate(size).mem
            except fake_cuda.CUDARuntimeError as error:
                raise MemoryError(f"Out of memory allocating {size:,} bytes") from error
        self._n_bytes += size
        return Pointer(Block(self, memory, free))

    def free_all_blocks(self) -> None:
        self._n_bytes -= self.free_bytes()
        for free in self._free.values():
            free.clear()

    def total_bytes(self) -> int:
        return self._n_bytes

    def free_bytes(self) -> int:
        return sum(memory.size for free in self._free.values() for memory in free)


class Block:
    """Memory of a pool, in use until the last array in it is gone; then it is ``free`` for the same stream."""

    def __init__(self, pool: MemoryPool, memory: fake_cuda.Memory, free: list[fake_cuda.Memory]) -> None:
        self.pool, self.memory, self._free = pool, memory, free
        _blocks[id(memory.owner)] = self

    def __del__(self) -> None:
        poison(self.memory.buffer)
        self._free.append(self.memory)


class Pointer:
    """A place in a block."""

    def __init__(self, block: Block, offset: int = 0) -> None:
        self.block, self.offset, self.buffer = block, offset, block.memory.buffer[offset:]

    def __add__(self, n_bytes: int) -> Pointer:
        return Pointer(self.block, self.offset + n_bytes)

    def memset_async(self, value: int, size: int, stream: Stream | None = None) -> None:
        self.buffer[:size] = value

    def copy_to_host(self, address: int, size: int) -> None:
        ctypes.memmove(address, self.buffer.ctypes.data, size)


def memory(n_bytes: int) -> tuple[Any, Block | None]:
    """Aligned memory, and its block if it is of a pool; whoever has an array in it must keep the block."""
    allocator = _pools[-1] if _pools else _allocators[0]
    if allocator is None:
        return fake_cuda.aligned(n_bytes), None
    pointer = allocator(n_bytes)
    return pointer.buffer[:n_bytes], pointer.block


def block_of(view: Any) -> Block | None:
    """The block of a pool that the array lies in."""
    while view is not None and _blocks:
        if block := _blocks.get(id(view)):
            return block
        view = getattr(view, "base", None)
    return None


def set_allocator(allocator: Allocator) -> None:
    """Let the arrays of the whole process lie in memory that ``allocator`` returns."""
    _allocators[:] = [allocator]


_allocators: list[Allocator | None] = [None]
_current: list[Stream] = []
_pools: list[Any] = []
_capturing: dict[int, Stream] = {}  # by address
_second: dict[int, Stream] = {}  # streams that compute late, by address
_blocks = weakref.WeakValueDictionary[int, Block]()  # by the identity of their memory's owners
_default: list[MemoryPool] = []


def reset() -> None:
    """As a process begins."""
    _current[:], _pools[:] = [Stream()], []
    _capturing.clear()
    _second.clear()
    _allocators[:] = [None]
    _default[:] = [MemoryPool()]
    _current[0].ptr = 7


def get_current_stream() -> Stream:
    return _current[-1]


def get_default_memory_pool() -> MemoryPool:
    return _default[0]


@contextmanager
def using_allocator(allocator: Any) -> Iterator[None]:
    _pools.append(allocator)
    try:
        yield
    finally:
        _pools.pop()


def is_capturing() -> bool:
    return _current[-1].ptr in _capturing


def refuse(what: str, stream: Stream | None = None) -> None:
    """To be called before what a captured stream cannot do."""
    stream = stream or get_current_stream()
    if stream.origin:
        stream.origin.was_refused = True
        raise CaptureError(f"operation not permitted when stream is capturing: {what}")


def do(work: Work, address: int | None = None) -> None:
    """Run ``work`` now, or late if it is a second stream's, or whenever the captured graph is launched.

    The stream is the current one, unless its address is given.
    """
    address = get_current_stream().ptr if address is None else address
    stream = _capturing.get(address) or _second.get(address)
    begin(address)
    if stream is None:
        work()
    elif stream.origin is stream:
        stream.work.append(work)
    else:
        stream.late.append(work)


def begin(address: int) -> None:
    """Count work that is given to the stream at an address; refuse it if that stream has not waited for the first."""
    stream = get_current_stream()
    if stream.ptr != address:
        return
    first = _current[-2] if len(_current) > 1 else stream
    if stream is not first and stream.origin is not stream and stream.seen.get(first.ptr, 0) < first.n_given:
        raise RuntimeError("this stream has not waited for what the first stream was given before")
    stream.n_given += 1


def is_late(address: int) -> bool:
    """Whether the stream at this address computes later than it is given work."""
    return address in _capturing or address in _second


def n_capturing() -> int:
    return len(_capturing)


def allocate() -> None:
    """To be called for every fresh array."""
    if is_capturing() and (not _pools or _pools[-1] == get_default_memory_pool().malloc):
        with suppress(CaptureError):
            refuse("an allocation")
        raise CaptureError("memory of a graph must come from a pool of its own, or others are given it later")


def made(compute: Callable[[], Any], sources: list[Any], wrap: Callable[[Any], Any]) -> Any:
    """``wrap`` of what ``compute`` returns; what is no view of a source is computed when the graph is launched."""
    address = get_current_stream().ptr
    if not is_late(address):
        result = compute()
        if not any(np.may_share_memory(result, source) for source in sources):
            begin(address)
        return wrap(result)
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
