"""Search for NVIDIA's libraries on this machine."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path


def paths_of(name: str) -> Iterator[str]:
    """Yield paths of a library such as "nvrtc".

    CuPy's own search comes first, then NVIDIA's wheels, the newest first, then the libraries of the system.
    """
    with contextlib.suppress(ImportError, RuntimeError):  # no pathfinder (it comes with CuPy 14), or nothing found
        yield importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib(name).abs_path
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels.submodule_search_locations or ()) if wheels else ():
        yield from map(str, sorted(Path(folder).glob(f"*/lib/lib{name}.so.*"), key=_soname_version, reverse=True))
    system = find_library(name)
    if system:
        yield system


def _soname_version(path: Path) -> list[int]:
    """Return the numbers at the end of a name such as "libnvrtc.so.13"."""
    return [int(number) for number in path.name.partition(".so.")[2].split(".")]
