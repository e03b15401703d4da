"""Products of float32 arrays that multiply in bfloat16 and add in float32."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from autograd.array import Array


class PackedOperands:
    """A cache of packed weights; the thread that first needs a weight packs it."""

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._lock = threading.Lock()
        self._entries: dict[tuple[int, bool], _CacheEntry] = {}

    def get(self, weight: Array, *, transposed: bool, pack: Callable[[Array, bool, int], Any]) -> Any:
        """Return ``pack(weight, transposed, n_threads)``, cached by weight and ``transposed``."""
        with self._lock:
            packed = self._entries.setdefault((id(weight), transposed), _CacheEntry(weight))
        with packed.lock:  # other threads wait, so the one that packs may use their cores
            if packed.value is None:
                packed.value = pack(weight, transposed, self.n_threads)
        return packed.value


class _CacheEntry:
    """A packed weight, and a reference to the weight, so that no other array gets the same id."""

    def __init__(self, weight: Array) -> None:
        self.weight, self.lock, self.value = weight, threading.Lock(), None


_operands: ContextVar[PackedOperands | None] = ContextVar("packed_operands", default=None)


@contextmanager
def bfloat16_products(n_threads: int, *, when: bool = True) -> Iterator[None]:
    """Let the kernels of the CPU round the operands of products to bfloat16 in this context; sums stay float32.

    Weights are packed once for the context, by ``n_threads`` threads, so they must not change within the context.  A
    thread that is started in the context rounds, too, if it runs in a copy of the context
    (``contextvars.copy_context``).  With ``when`` false, nothing changes.  References and GPUs ignore this context.
    """
    token = _operands.set(PackedOperands(n_threads) if when else _operands.get())
    try:
        yield
    finally:
        _operands.reset(token)


def packed_operands() -> PackedOperands | None:
    """Return the packed weights of the context; None outside of ``bfloat16_products``."""
    return _operands.get()
