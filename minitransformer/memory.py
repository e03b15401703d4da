"""Memory of the process: what one update frees the next one uses, and what the start freed the system gets back."""

from __future__ import annotations

import contextlib
import ctypes

# The parameters of mallopt(3) and their numbers in glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_GREATEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let ``malloc`` keep the large arrays that are freed, instead of giving them back to the system page by page.

    Every update asks for the same arrays again, and a fresh page costs the system a fault and the zeroing of it.  The
    process then keeps what it needed at its peak.  All threads share one heap: only that one can hold large arrays.

    Returns: whether the C library took it; one that is not glibc does not, and works as before.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    settings = {_M_ARENA_MAX: 1, _M_MMAP_THRESHOLD: _GREATEST, _M_TRIM_THRESHOLD: _GREATEST}
    return all([mallopt(parameter, value) == 1 for parameter, value in settings.items()])


def give_back_freed_memory() -> None:
    """Let ``malloc`` give back what was freed so far, once: what the start needed and updates do not."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)
