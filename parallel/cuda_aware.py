"""A query of the MPI library: can it read the memory of a GPU?

The library is asked, because a message from a GPU's address would crash a library without this ability.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

_LIBRARY = re.compile(r"/libmpi(?:_abi)?\.so[.\d]*$")
_MAPPED_FILES = Path("/proc/self/maps")


def reads_gpu_memory() -> bool | None:
    """Return whether the loaded MPI library reads the memory of GPUs; None without such a library or its answer.

    MPI must have been initialised.  Source: MPIX_Query_cuda_support, an extension of both Open MPI and MPICH
    (docs.open-mpi.org, "MPIX_Query_cuda_support").  Its answer depends on how the library was built and configured.
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
    """Return the files of the MPI libraries that this process has loaded; [] on systems other than Linux."""
    try:
        files = {line.split(maxsplit=5)[-1].strip() for line in _MAPPED_FILES.read_text().splitlines()}
    except OSError:
        return []
    return sorted(file for file in files if _LIBRARY.search(file))
