"""The memory that the C library keeps for the arrays of the next update."""

from __future__ import annotations

import ctypes

# The parameters of mallopt(3) and their numbers in glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_GREATEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let ``malloc`` keep the memory of large arrays that are freed, instead of returning it to the system.

    Every update allocates the same arrays again, and each fresh page costs a page fault and zeroing.  The memory of
    the process then stays at its peak.  All threads share one heap, because only the main heap can hold large arrays.

    Returns: whether the C library accepted the settings.  Libraries other than glibc do not accept them, and work as
        before.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    settings = {_M_ARENA_MAX: 1, _M_MMAP_THRESHOLD: _GREATEST, _M_TRIM_THRESHOLD: _GREATEST}
    return all([mallopt(parameter, value) == 1 for parameter, value in settings.items()])
