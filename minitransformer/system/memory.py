"""The memory of this process: its peak so far, and the number of bytes that the process may still allocate.

This number is limited by the system, by control groups, and by the limits of the process.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import psutil

resource: Any = import_module("resource") if find_spec("resource") else None  # None on Windows
_PROC, _CONTROL_GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


class _MemoryFiles(NamedTuple):
    """The names of the memory files of one version of Linux's control groups."""

    mount: str
    limit: str
    usage: str
    cached_files: str  # a field of memory.stat: bytes that count as used, but are released on demand


_UNIFIED = _MemoryFiles("", "memory.max", "memory.current", "inactive_file")
_FIRST_VERSION = _MemoryFiles("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_memory(n_processes: int) -> float:
    """Return the number of bytes that a process may still allocate.

    This is an even share of the free memory for each of ``n_processes``, and at most what the process' limit of address
    space allows.  Free memory is limited by the system and by control groups (of a container or a batch job).
    """
    available = float(psutil.virtual_memory().available)
    with suppress(OSError):  # a system without control groups
        available = min(available, *_left_in_control_groups(), math.inf)
    share = available / n_processes
    limit = resource.getrlimit(resource.RLIMIT_AS)[0] if resource else -1
    return share if limit < 0 else min(share, limit - psutil.Process().memory_info().vms)  # RLIM_INFINITY is -1


def describe_free_memory(n_processes: int) -> str | None:
    """Describe the memory that a process may allocate, such as "2.00 GB for each of 4 processes"; None: no limit."""
    free = free_memory(n_processes)
    share = f" for each of {n_processes} processes" if n_processes > 1 else ""
    return f"{format_bytes(free)}{share}" if math.isfinite(free) else None


@contextmanager
def limited_memory(n_bytes: float) -> Iterator[None]:
    """Let this process allocate at most ``n_bytes`` more within this context; beyond that, NumPy raises MemoryError.

    Without a limit Linux grants more memory than it has, and kills a process that uses it.  Other systems get no limit.
    """
    taken = getattr(psutil.Process().memory_info(), "data", None)  # data and stack; only on Linux
    if taken is None or resource is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = taken + int(n_bytes)
    limit = limit if soft == resource.RLIM_INFINITY else min(limit, soft)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def format_bytes(n_bytes: float) -> str:
    """Format a number of bytes in GB or MB."""
    return f"{n_bytes / 1e9:,.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.1f} MB"


def _left_in_control_groups() -> Iterator[float]:
    """Yield the free memory of each control group of the process, from the innermost outwards."""
    for line in (_PROC / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            files = _FIRST_VERSION if controllers else _UNIFIED
            mount = _CONTROL_GROUPS / files.mount
            group = mount / path.lstrip("/")
            for directory in (group, *group.parents):
                if directory.is_relative_to(mount):
                    yield _left_in(directory, files)


def _left_in(group: Path, files: _MemoryFiles) -> float:
    try:
        limit = (group / files.limit).read_text().strip()
        if limit == "max":
            return math.inf
        cached = _fields(group / "memory.stat")[files.cached_files]
        return int(limit) - int((group / files.usage).read_text()) + cached
    except OSError:  # the root has no limit, and groups outside a container cannot be read
        return math.inf


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers in a file with lines such as "inactive_file 123"."""
    return {line.split()[0].rstrip(":"): int(line.split()[1]) for line in path.read_text().splitlines()}


def peak_memory() -> int:
    """Return this process's peak of main memory so far, in bytes; GPU memory is not counted."""
    if resource is None:
        return int(getattr(psutil.Process().memory_info(), "peak_wset", 0))
    peak: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # getrusage(2): kibibytes, except on macOS
