"""CUDA graphs: work that is captured once, and then enqueued by one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from autograd.array import Device, gpu_module, namespace_of_device

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation


def capture_graph(work: Callable[[], Any], stream: Any) -> tuple[Any, Any]:
    """Return the CUDA graph of what ``work`` enqueues on ``stream``, and the arrays that each launch will write.

    Nothing is computed yet; the arrays are the result of ``work``.
    The capture is ended even if ``work`` raises an error: until then the stream computes nothing.
    """
    stream.begin_capture()
    try:
        result = work()
    except BaseException:
        with suppress(RuntimeError):  # CUDA makes no graph of an interrupted capture
            stream.end_capture()
        raise
    return stream.end_capture(), result


def graph_pool() -> Any:
    """Return a memory pool for what is captured, so that no other array gets memory that graphs use."""
    return namespace_of_device("cuda").cuda.MemoryPool(_allocate)


def _allocate(size: int) -> Any:
    """Allocate memory of the GPU for the pool of graphs; if none is left, free what CuPy's default pool does not use.

    CuPy itself would free the unused memory of the pool that asks.  Graphs write to it at each launch.
    Raises: MemoryError.
    """
    cupy = namespace_of_device("cuda")
    try:
        return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if error.status != _OUT_OF_MEMORY:
            raise
        other, before = cupy.get_default_memory_pool(), cupy.get_default_memory_pool().total_bytes()
        other.free_all_blocks()
        if other.total_bytes() == before:
            raise MemoryError(f"the GPU has no {size:,} bytes left for CUDA graphs") from error
    return _allocate(size)


class GraphStream(NamedTuple):
    """A stream that can be captured, and the memory pool of its graphs.

    ``kept`` is what the last work on the stream keeps for the next: graphs, which may only be launched on this stream.
    """

    stream: Any
    pool: Any
    kept: list[Any]

    def capture(self, work: Callable[[], object]) -> Any:
        """Return the CUDA graph of what ``work`` enqueues on the stream, which must be the current one."""
        with namespace_of_device("cuda").cuda.using_allocator(self.pool.malloc):
            return capture_graph(work, self.stream)[0]


_idle: dict[int, list[GraphStream]] = {}  # by GPU; kept, because cuBLASLt's workspace of each stream is kept, too


@contextmanager
def graph_stream(device: Device) -> Iterator[GraphStream | None]:
    """Enter a stream that can be captured, and yield it; on a CPU yield None.

    No other thread has the same stream.  Its graphs must have ended when the context ends; only ``kept`` ones may be
    launched later.
    """
    cupy = gpu_module(device)
    if cupy is None:
        yield None
        return
    idle, caller = _idle.setdefault(cupy.cuda.Device().id, []), cupy.cuda.get_current_stream()
    try:
        ours = idle.pop()
    except IndexError:  # also if another thread was faster
        ours = GraphStream(cupy.cuda.Stream(non_blocking=True), graph_pool(), [])
    before = caller.record()
    with ours.stream:
        ours.stream.wait_event(before)
        try:
            yield ours
        finally:
            after = ours.stream.record()
            idle.append(ours)
    caller.wait_event(after)
