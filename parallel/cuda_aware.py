"""Whether the MPI library can read the memory of a GPU: the library is asked, nothing is tried.

A library that cannot, and is given an address on a GPU all the same, crashes.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

_LIBRARY = re.compile(r"/libmpi(?:_abi)?\.so[.\d]*$")
_MAPPED_FILES = Path("/proc/self/maps")


def reads_gpu_memory() -> bool | None:
    """What the MPI library that this process has loaded answers; None if there is none, or it has no answer.

    MPI must have been initialised.  Source: MPIX_Query_cuda_support, an extension that both Open MPI and MPICH have
    (docs.open-mpi.org, "MPIX_Query_cuda_support"); it answers for the library as it was built and configured.
    """
    for path in loaded_mpi_libraries():
        try:
            query = ctypes.CDLL(path).MPIX_Query_cuda_support
        except (OSError, AttributeError):
            continue
        query.argtypes, query.restype = [], ctypes.c_int
        return bool(query())
    return None


def loaded_mpi_libraries() -> list[str]:
    """The files of MPI libraries in this process' memory; none where the system does not list them (not Linux)."""
    try:
        files = {line.split(maxsplit=5)[-1].strip() for line in _MAPPED_FILES.read_text().splitlines()}
    except OSError:
        return []
    return sorted(file for file in files if _LIBRARY.search(file))
