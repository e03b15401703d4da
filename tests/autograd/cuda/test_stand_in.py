"""The stand-in for CuPy's streams, graphs and memory pools is as strict as it says."""

from __future__ import annotations

from typing import Any

import fake_streams
import numpy as np
import pytest


def refused(work: Any, cupy: Any, *, allocator: Any = None) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(fake_streams.CaptureError):
            if allocator:
                with cupy.cuda.using_allocator(allocator):
                    work()
            else:
                work()
        with pytest.raises(fake_streams.CaptureError, match="previous error"):
            stream.end_capture()


def test_the_stand_in_captures_what_cupy_captures_and_refuses_what_it_refuses(cupy: Any) -> None:
    x, y, pool = cupy.ones(3), cupy.zeros(3), cupy.cuda.MemoryPool()
    for work in (lambda: float(x[0]), x.get, lambda: bool(x[0]), lambda: cupy.asarray(np.ones(2)),
                 lambda: x.set(np.ones(3)), lambda: cupy.cuda.Event().synchronize()):  # fmt: skip
        refused(work, cupy, allocator=pool.malloc)
    refused(lambda: x + y, cupy)
    refused(lambda: cupy.empty(2), cupy)
    stream = cupy.cuda.Stream(non_blocking=True)
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
    x = cupy.ones(3)
    with stream, cupy.cuda.using_allocator(pool.malloc):
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
