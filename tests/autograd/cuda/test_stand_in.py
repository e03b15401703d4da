"""The stand-in for CuPy's streams, graphs and memory pools is as strict as it says."""

from contextlib import nullcontext
from typing import Any

import fake_streams
import numpy as np
import pytest


def test_the_stand_in_captures_what_cupy_captures_and_refuses_what_it_refuses(cupy: Any) -> None:
    x, y, pool, stream = cupy.ones(3), cupy.zeros(3), cupy.cuda.MemoryPool(), cupy.cuda.Stream(non_blocking=True)
    reads = (
        lambda: float(x[0]),
        x.get,
        lambda: bool(x[0]),
        lambda: cupy.asarray(np.ones(2)),
        lambda: x.set(np.ones(3)),
        lambda: cupy.cuda.Event().synchronize(),
    )
    for work in (*reads, lambda: x + y, lambda: cupy.empty(2)):
        with stream, cupy.cuda.using_allocator(pool.malloc) if work in reads else nullcontext():
            stream.begin_capture()
            with pytest.raises(fake_streams.CaptureError):
                work()
            with pytest.raises(fake_streams.CaptureError, match="previous error"):
                stream.end_capture()
    with stream, cupy.cuda.using_allocator(pool.malloc):
        stream.begin_capture()
        y += 2 * x[:2].sum()
        captured = stream.end_capture()
    assert y.get().tolist() == [0, 0, 0]
    for total in (4, 8):
        captured.launch(stream)
        assert y.get().tolist() == [total] * 3
    x[0] = 2
    captured.launch(stream)
    assert y.get().tolist() == [14] * 3
    with pytest.raises(RuntimeError, match="legacy"):
        cupy.cuda.get_current_stream().begin_capture()


def test_a_pool_of_the_stand_in_gives_free_memory_to_the_next_that_fits_in(cupy: Any) -> None:
    stream, pool = cupy.cuda.Stream(non_blocking=True), cupy.cuda.MemoryPool()
    x, first = cupy.ones(3), cupy.cuda.get_current_stream()
    with stream, cupy.cuda.using_allocator(pool.malloc):
        stream.wait_event(first.record())
        stream.begin_capture()
        y = x + x
        x[...] = y * y
        of_y = y[:1]
        del y
        captured = stream.end_capture()
        kept, n_bytes = cupy.zeros(3), pool.total_bytes()  # where y · y was, which is gone; y is not
        captured.launch(stream)
        assert kept.get().tolist() == [4] * 3
        assert of_y.get().tolist() == [2]
        address = kept.data.ptr
        del kept
        other = cupy.empty(2)
        assert (other.data.ptr, pool.total_bytes()) == (address, n_bytes)
        with cupy.cuda.using_allocator(cupy.get_default_memory_pool().malloc):
            assert cupy.empty(2).data.ptr != address


def test_a_capture_of_the_stand_in_must_be_ended(cupy: Any) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    with pytest.raises(fake_streams.CaptureError, match="not ended"), stream:
        stream.begin_capture()
    with pytest.raises(fake_streams.CaptureError, match="already"):
        stream.begin_capture()
    with pytest.raises(fake_streams.CaptureError, match="synchronize"):
        stream.synchronize()
    with pytest.raises(fake_streams.CaptureError, match="previous error"):
        stream.end_capture()
    with pytest.raises(fake_streams.CaptureError, match="is not being captured"):
        stream.end_capture()


def test_copies_of_the_stand_in_come_when_somebody_waits(cupy: Any) -> None:
    there, here, other = cupy.zeros(2), np.zeros(2), cupy.cuda.Stream(non_blocking=True)
    host = np.ones(2)
    there.set(host, other)
    assert np.isnan(there.get()).all()
    host[1] = 5
    cupy.cuda.get_current_stream().wait_event(other.record())
    assert there.get().tolist() == [1, 5]
    there.get(out=here, blocking=False)
    assert np.isnan(here).all()
    cupy.cuda.get_current_stream().record().synchronize()
    assert here.tolist() == [1, 5]


def test_a_second_stream_of_the_stand_in_computes_when_somebody_waits(cupy: Any) -> None:
    x, first, second = cupy.zeros(2), cupy.cuda.get_current_stream(), cupy.cuda.Stream(non_blocking=True)
    second.wait_event(first.record())
    with second:
        x += 1
        middle = second.record()
        x *= 5
        y = x + x
    assert x.get().tolist() == [0, 0]
    first.wait_event(middle)
    assert x.get().tolist() == [1, 1]
    assert np.isnan(y.get()).all()
    first.wait_event(second.record())
    assert (x.get().tolist(), y.get().tolist()) == ([5, 5], [10, 10])


@pytest.mark.parametrize("has_waited", [False, True])
def test_a_stream_of_the_stand_in_must_have_waited_for_the_first(has_waited: bool, cupy: Any) -> None:
    first, second = cupy.cuda.get_current_stream(), cupy.cuda.Stream(non_blocking=True)
    if has_waited:
        second.wait_event(first.record())
    x = cupy.ones(2)
    with pytest.raises(RuntimeError, match="has not waited"), second:
        x += 1


def forked(cupy: Any) -> tuple[Any, Any, Any]:
    """Begin a capture, and give work to a second stream of it; return both streams and the array."""
    x, default = cupy.zeros(2), cupy.cuda.get_current_stream()
    first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    first.wait_event(default.record())
    first.__enter__()
    first.begin_capture()
    x += 1
    second.wait_event(first.record())
    with second:
        x *= 5
    x += 0.5
    return first, second, x


def test_a_second_stream_of_the_stand_in_is_captured_with_the_first(cupy: Any) -> None:
    first, second, x = forked(cupy)
    assert second.is_capturing()
    first.wait_event(second.record())
    x += 2
    graph = first.end_capture()
    assert not second.is_capturing()
    first.__exit__()
    assert x.get().tolist() == [0, 0]
    graph.launch()
    assert x.get().tolist() == [9.5, 9.5]  # (1 + 0.5) · 5 + 2: as late as it may be


def test_a_capture_of_the_stand_in_does_not_end_before_its_streams_are_joined(cupy: Any) -> None:
    first, second, _ = forked(cupy)
    with pytest.raises(fake_streams.CaptureError, match="part of another"):
        second.end_capture()
    with pytest.raises(fake_streams.CaptureError, match="unjoined"):
        first.end_capture()
    assert not fake_streams.n_capturing()
    first.__exit__()


def test_a_captured_stream_of_the_stand_in_waits_for_nothing_outside(cupy: Any) -> None:
    before = cupy.cuda.get_current_stream().record()
    first, second, _ = forked(cupy)
    with pytest.raises(fake_streams.CaptureError, match="wait_event"):
        second.wait_event(before)
    first.wait_event(second.record())
    with pytest.raises(fake_streams.CaptureError, match="previous error"):
        first.end_capture()
    first.__exit__()
