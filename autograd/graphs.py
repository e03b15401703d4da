"""CUDA graphs: work that is captured once, and then enqueued by one call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from autograd.array import Device, gpu_module, namespace_of_device

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
_log = logging.getLogger(__name__)


def capture_graph(work: Callable[[], Any], stream: Any) -> tuple[Any, Any]:
    """Capture what ``work`` enqueues on ``stream``; return the CUDA graph and the result of ``work``.

    The arrays of the result have no values yet: each launch of the graph writes them.
    If ``work`` raises an error, the capture is ended, too, because a stream computes nothing during a capture.
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
    """Return a memory pool for the arrays of CUDA graphs, so that no other array gets memory that graphs write to."""
    return namespace_of_device("cuda").cuda.MemoryPool(_allocate)


def _allocate(size: int) -> Any:
    """Allocate GPU memory for the pool of graphs; if none is left, free the unused memory of CuPy's default pool.

    CuPy itself would free the unused memory of the pool of graphs, but graphs write to this memory at each launch.
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

    ``kept`` has graphs for later users of the stream.  They may be launched only on this stream.
    """

    stream: Any
    pool: Any
    kept: list[Any]

    def capture(self, work: Callable[[], object]) -> Any:
        """Return the CUDA graph of what ``work`` enqueues on the stream, which must be the current one."""
        with namespace_of_device("cuda").cuda.using_allocator(self.pool.malloc):
            return capture_graph(work, self.stream)[0]

    def try_capture(self, work: Callable[[], object], name: str) -> Any:
        """Return the CUDA graph of ``work``, which messages call ``name``; if it has none, log why and return None."""
        try:
            return self.capture(work)
        except (RuntimeError, MemoryError) as error:  # such as CuPy's, for an operation without a kernel
            _log.info("no CUDA graph of %s: %s", name, error)
            return None


class ShapedGraphs:
    """CUDA graphs of a step that is repeated: one graph for each shape of the arrays that a step reads and writes.

    The first step of new shapes has no graph, because it chooses the algorithms of products.  The next step of the same
    shapes is captured.  After a capture that fails, no step is captured.
    """

    def __init__(self, stream: GraphStream, name: str) -> None:
        self.stream, self._name, self._may_capture = stream, name, True
        self._graphs: dict[tuple[int, ...], Any] = {}  # kept until they have run
        self._shapes: tuple[int, ...] = ()  # of the last step
        self.has_launched = False
        """True if the last step had a graph."""

    def launch(self, shapes: tuple[int, ...], step: Callable[[], object]) -> bool:
        """Launch the graph of ``step`` with these shapes; return False if it has none: then the caller calls ``step``.

        ``step`` must overwrite the arrays that the next step reads.
        """
        graph = self._graphs.get(shapes)
        if graph is None and shapes == self._shapes and self._may_capture:
            graph = self.stream.try_capture(step, self._name)
            if graph is None:
                self._may_capture = False
            else:
                self._graphs[shapes] = graph
        self._shapes, self.has_launched = shapes, graph is not None
        if graph is not None:
            graph.launch()
        return self.has_launched


_idle: dict[int, list[GraphStream]] = {}  # by GPU; reused, because cuBLASLt's workspace of a stream is never freed


@contextmanager
def graph_stream(device: Device) -> Iterator[GraphStream | None]:
    """Enter a stream that can be captured, and yield it; on a CPU yield None.

    No other thread uses this stream meanwhile.  Its graphs must have finished when the context ends; only graphs in
    ``kept`` may be launched later.
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
        except MemoryError:  # the caller may try smaller work, which needs the memory that graphs wrote to
            ours.kept.clear()
            ours.pool.free_all_blocks()
            raise
        finally:
            after = ours.stream.record()
            idle.append(ours)
    caller.wait_event(after)
