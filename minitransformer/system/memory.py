"""Settings of the C library's allocator, and the memory that this process has taken.

Updates reuse the memory that was freed.
"""

from __future__ import annotations

import ctypes
import resource
import sys

# The parameters of mallopt(3) and their numbers in glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_GREATEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let ``malloc`` keep the memory of large arrays that are freed, instead of returning it to the system.

    Every update allocates the same arrays again, and each fresh page costs a page fault and zeroing.  The process then
    keeps the memory of its peak.  All threads share one heap, because only the main heap can hold large arrays.

    Returns: whether the C library accepted the settings.  Libraries other than glibc do not accept them, and work as
        before.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    settings = {_M_ARENA_MAX: 1, _M_MMAP_THRESHOLD: _GREATEST, _M_TRIM_THRESHOLD: _GREATEST}
    return all([mallopt(parameter, value) == 1 for parameter, value in settings.items()])


def peak_memory() -> int:
    """Return the most main memory that this process has had so far, in bytes; memory of a GPU is not counted."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # getrusage(2): kibibytes, except on macOS
