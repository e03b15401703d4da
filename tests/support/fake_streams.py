"""Part of a stand-in for ``cupy.cuda``: streams, events, memory pools, and graphs that can be launched again.

The current stream computes at once.  What is late on a GPU is late here too, where code could rely on it: copies that
another stream was given run when somebody waits for an event behind them, and read the host's memory then; copies to
the host arrive when the host waits.  While a stream is captured nothing runs: it is kept, and run by every launch of
the graph, on the same memory.  What CuPy refuses then, or what would leave a graph in memory that others are given, is
refused: to read a value, to copy from the host, to wait, to allocate outside a pool of the graph's own.  After that
there is no graph of the capture, as in CUDA; and a stream cannot be left before its capture has been ended.  A pool
gives memory to the next array as soon as it is free, and graphs that have used it still write to it.
"""

from __future__ import annotations

import ctypes
import itertools
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        self.was_refused = False

    def __enter__(self) -> Stream:
        _current.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.pop()
        if self.ptr in _capturing:
            raise CaptureError("a capture was begun and not ended")

    def begin_capture(self) -> None:
        if not self.non_blocking:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        if self.capturing:
            raise CaptureError("the stream is being captured already")
        self.capturing, self.was_refused, self.work = True, False, list[Work]()
        _capturing[self.ptr] = self

    def end_capture(self) -> Graph:
        if _capturing.pop(self.ptr, None) is None:
            raise CaptureError("the stream is not being captured")
        self.capturing = False
        if self.was_refused:
            raise CaptureError("operation failed due to a previous error during capture")
        return Graph(self.work)

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
        refuse("synchronize", self)
        fake_cuda.CALLS.append(("synchronize",))
        _run_all(self.late)


class Event:
    """A place in a stream."""

    def __init__(self, **how: bool) -> None:
        self._before: list[Work] = []
        self.number, self.ptr = -1, id(self)

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or get_current_stream()
        self.seconds, self.number = time.perf_counter(), len(fake_cuda.CALLS)
        fake_cuda.CALLS.append(("event",))
        if fake_cuda.nccl.is_stuck:
            fake_cuda.NEVER_REACHED.add(self.ptr)
        self._before = stream.late  # shared with later events, so that what has run is gone for all
        self._n_before = len(stream.late)

    def let_pass(self) -> None:
        """Run what stands before it."""
        _run_all(self._before, self._n_before)

    def synchronize(self) -> None:
        refuse("synchronize")
        assert self.ptr not in fake_cuda.NEVER_REACHED, "the host waits for ever"
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


class MemoryPool:
    """Memory that is given to the next array as soon as the last one in it is gone, whatever graphs write to it."""

    def __init__(self, allocator: Allocator | None = None) -> None:
        self._allocate = allocator or (lambda size: fake_cuda.MemoryPointer(fake_cuda.Memory(size), 0))
        self._free: list[fake_cuda.Memory] = []
        self._n_bytes = 0

    def malloc(self, size: int) -> Pointer:
        fitting = [i for i, memory in enumerate(self._free) if memory.size >= size]
        if fitting:
            return Pointer(Block(self, self._free.pop(min(fitting, key=lambda i: self._free[i].size))))
        try:
            memory = self._allocate(size).mem
        except fake_cuda.CUDARuntimeError:
            self.free_all_blocks()
            try:
                memory = self._allocate(size).mem
            except fake_cuda.CUDARuntimeError as error:
                raise MemoryError(f"Out of memory allocating {size:,} bytes") from error
        self._n_bytes += size
        return Pointer(Block(self, memory))

    def take_back(self, memory: fake_cuda.Memory) -> None:
        poison(memory.buffer)
        self._free.append(memory)

    def free_all_blocks(self) -> None:
        self._n_bytes -= sum(memory.size for memory in self._free)
        self._free.clear()

    def total_bytes(self) -> int:
        return self._n_bytes


class Block:
    """Memory of a pool, in use until the last array in it is gone."""

    def __init__(self, pool: MemoryPool, memory: fake_cuda.Memory) -> None:
        self.pool, self.memory = pool, memory
        _blocks[id(memory.owner)] = self

    def __del__(self) -> None:
        self.pool.take_back(self.memory)


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
_blocks = weakref.WeakValueDictionary[int, Block]()  # by the identity of their memory's owners
_default: list[MemoryPool] = []


def reset() -> None:
    """As a process begins."""
    _current[:], _pools[:] = [Stream()], []
    _capturing.clear()
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
    if stream.ptr in _capturing:
        stream.was_refused = True
        raise CaptureError(f"operation not permitted when stream is capturing: {what}")


def do(work: Work, address: int | None = None) -> None:
    """Run ``work`` now, or whenever the graph that is being captured is launched.

    The stream is the current one, unless its address is given.
    """
    stream = _capturing.get(get_current_stream().ptr if address is None else address)
    if stream:
        stream.work.append(work)
    else:
        work()


def is_captured(address: int) -> bool:
    return address in _capturing


def n_capturing() -> int:
    return len(_capturing)


def allocate() -> None:
    """To be called for every fresh array."""
    if is_capturing() and (not _pools or _pools[-1] == get_default_memory_pool().malloc):
        get_current_stream().was_refused = True
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
