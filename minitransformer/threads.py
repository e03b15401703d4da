"""Work on all cores: a thread for each, and one BLAS thread for each of these while there is work for all.

NumPy lets go of the interpreter while it computes, so threads run every operation side by side, not only the matrix
products that BLAS would spread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

Item = TypeVar("Item")
Result = TypeVar("Result")


def allowed_cores() -> frozenset[int]:
    """The cores that the system lets this process use, by their numbers."""
    return frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))


def available_cores() -> int:
    """How many these are."""
    return len(allowed_cores())


def map_in_threads(function: Callable[[Item], Result], items: Sequence[Item], n_threads: int) -> Iterator[Result]:
    """``function`` of every item, in order, on at most ``n_threads``; BLAS has those that fewer items leave idle."""
    n_workers = max(1, min(n_threads, len(items)))
    with threadpool_limits(n_threads // n_workers, user_api="blas"), ThreadPoolExecutor(n_workers) as executor:
        yield from executor.map(function, items)


def even_slices(size: int, n_parts: int) -> list[slice]:
    """Slices of nearly equal size that cover ``size`` elements."""
    return [slice(size * i // n_parts, size * (i + 1) // n_parts) for i in range(n_parts)]
