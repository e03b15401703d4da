"""Parallel work on all cores: one thread per core, each with one BLAS thread while there is work for all cores.

NumPy releases the interpreter lock while it computes.  So threads run every operation in parallel, not only the matrix
products that BLAS itself would parallelise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import partial
from threading import Event, Thread, local
from typing import Any, ParamSpec, TypeVar

from autograd.blas import product_threads

Item = TypeVar("Item")
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")

SECONDS_TO_END = 0.2

_this_thread = local()
_abandoned_work: list[Future[Any]] = []  # work of on_a_thread that still ran when Ctrl-C ended the caller


class UnwantedError(Exception):
    """An error that ends work on a thread whose result is no longer wanted."""


def allowed_cores() -> frozenset[int]:
    """Return the numbers of the cores that the system allows this process to use."""
    return frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))


def available_cores() -> int:
    """Return the number of cores that the system allows this process to use."""
    return len(allowed_cores())


class ThreadPool(ThreadPoolExecutor):
    """A pool whose threads compute with the same choice of kernels as the thread that submits the work.

    A new thread does not inherit the context variables of the thread that starts it.
    """

    def submit(
        self, function: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Future[Result]:
        """Compute ``function(*args, **kwargs)`` in a copy of the caller's context."""
        return super().submit(copy_context().run, partial(function, *args, **kwargs))


def start_thread(work: Callable[[], object], name: str | None = None) -> Thread:
    """Start a daemon thread that computes ``work`` in a copy of the caller's context, as a ``ThreadPool`` does."""
    thread = Thread(target=copy_context().run, args=(work,), name=name, daemon=True)
    thread.start()
    return thread


def map_in_threads(function: Callable[[Item], Result], items: Sequence[Item], n_threads: int) -> Iterator[Result]:
    """Yield ``function(item)`` for every item, in order, computed on at most ``n_threads`` threads.

    With fewer items than threads, BLAS and products with packed weights use the remaining threads.  If the caller ends
    early, for example by Ctrl-C, the threads end at their next ``require_wanted``.
    """
    n_workers = max(1, min(n_threads, len(items)))
    n_inside = n_threads // n_workers
    unwanted = Event()

    def compute(item: Item) -> Result:
        _this_thread.unwanted = unwanted
        with product_threads(n_inside):
            return function(item)

    with ThreadPool(n_workers) as executor:
        try:
            yield from executor.map(compute, items)
        except BaseException:
            unwanted.set()
            raise


def on_a_thread(work: Callable[[], Result]) -> Result:
    """Return the result of ``work``, computed on a thread of its own, so that Ctrl-C ends the wait for it at once.

    Python handles Ctrl-C only between its own instructions, and one call of a library may take minutes.  After Ctrl-C
    the work ends at its next ``require_wanted``, or with the process.
    """
    unwanted, result = Event(), Future[Result]()

    def compute() -> None:
        _this_thread.unwanted = unwanted
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    try:
        start_thread(compute)
        while not result.done():  # before Python 3.13, Thread.join marks an interrupted thread as ended (bpo-46726)
            wait([result], SECONDS_TO_END)  # a signal that another thread receives does not end a wait
    except KeyboardInterrupt:
        unwanted.set()
        wait([result], SECONDS_TO_END)
        _abandoned_work[:] = [*(earlier for earlier in _abandoned_work if not earlier.done()), result]
        raise
    return result.result()


def is_still_computing() -> bool:
    """Return whether a thread still computes after Ctrl-C has ended the wait for its result."""
    return not all(result.done() for result in _abandoned_work)


def require_wanted() -> None:
    """Raise UnwantedError if the caller that waits for this thread has ended."""
    unwanted: Event | None = getattr(_this_thread, "unwanted", None)
    if unwanted is not None and unwanted.is_set():
        raise UnwantedError


def even_slices(size: int, n_parts: int) -> list[slice]:
    """Return slices of nearly equal size that cover ``size`` elements."""
    return [slice(size * i // n_parts, size * (i + 1) // n_parts) for i in range(n_parts)]
