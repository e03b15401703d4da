"""NVRTC in several versions, each for a process of its own; needs no GPU.

    python nvrtc_versions.py LIBRARY ARCHITECTURE     compile every CUDA source, and print a JSON object

An environment holds one version for each major version of CUDA.  Others are installed in build/nvrtc.
"""

import ctypes
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from autograd.kernels.compiler import CompilerError
from autograd.kernels.cuda import nvrtc

ROOT = Path(__file__).parents[2]


def installed() -> list[Path]:
    """Return the libraries in the wheels of this environment: one for each major version of CUDA."""
    wheels = importlib.util.find_spec("nvidia")
    return (
        [path for folder in (wheels.submodule_search_locations or ()) for path in _libraries(folder)] if wheels else []
    )


def install(requirement: str) -> Path:
    """Return the library of a requirement like "nvidia-cuda-nvrtc==13.0.*"; skip the test if pip cannot install it."""
    directory = ROOT / "build" / "nvrtc" / re.sub(r"[^\w.]+", "-", requirement).strip("-.")
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as name:
            complete = Path(name) / "complete"
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", complete, requirement],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                pytest.skip(f"{requirement} cannot be installed: {done.stderr.strip()[-300:]}")
            if not directory.exists():  # another worker may have been faster
                complete.rename(directory)
    (library,) = _libraries(directory / "nvidia")
    return library


def _libraries(folder: Path | str) -> list[Path]:
    return sorted(Path(folder).glob("*/lib/libnvrtc.so.*"))


def compiled_by(library: Path, architecture: str) -> dict[str, Any]:
    """Compile every source in a child process, and return what ``compile_sources`` returns."""
    command = [sys.executable, __file__, str(library), architecture]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return dict(json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout))


def compile_sources(library: str, architecture: str) -> dict[str, Any]:
    """Return the version of NVRTC, whether it knows the architecture, and errors and spilled bytes by source.

    A source without a kernel has None.
    """
    nvrtc.paths_of = lambda name: iter([library])
    errors, spilled = dict[str, str](), dict[str, int | None]()
    is_known = architecture in _architectures()
    for source in sorted(path.name for path in nvrtc.SOURCES.glob("*.cu")) if is_known else ():
        try:
            log = nvrtc.compile_source(source, architecture).log
            spilled[source] = max(map(int, re.findall(r"(\d+) bytes spill stores", log)), default=None)
        except CompilerError as error:
            errors[source] = str(error)
    return {"version": nvrtc.version(), "is known": is_known, "errors": errors, "spilled": spilled}


def _architectures() -> list[str]:
    library, count = nvrtc._nvrtc(), ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(numbers)
    return [f"sm_{number}" for number in numbers]


if __name__ == "__main__":
    print(json.dumps(compile_sources(*sys.argv[1:])))
