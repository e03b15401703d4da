"""The CUDA sources, compiled by several versions of NVRTC, and their PTX, run on the CPU; needs no GPU.

    python nvrtc_versions.py check LIBRARY ARCHITECTURE               compile all sources, print a JSON object
    python nvrtc_versions.py write LIBRARY SOURCES DIRECTORY NAME …   compile SOURCES/NAME.cu to DIRECTORY/NAME.ptx

A process can load one NVRTC.  An environment holds one version for each major version of CUDA; others are installed in
build/nvrtc.  The interpreter of PTX, ptxrun.py, is not in the repository: it lies beside the data.
"""

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import BUILT
from shared_data import DATA

from autograd.kernels.compiler import CompilerError
from autograd.kernels.cuda import nvrtc

ROOT = Path(__file__).parents[2]
# The interpreter does not know the instruction that joins two numbers of 16 bits; these four do the same.
PAIR = re.compile(rb"mov\.b32\s+(%r\d+), \{(%rs\d+), (%rs\d+)\};")
AS_KNOWN = rb"cvt.u32.u16 \1, \2; cvt.u32.u16 %r999999, \3; shl.b32 %r999999, %r999999, 16; or.b32 \1, \1, %r999999;"
INTERPRETER = DATA.parent / "tools" / "ptx" / "ptxrun.py"
needs_interpreter = pytest.mark.skipif(
    not INTERPRETER.exists(), reason=f"{INTERPRETER} is absent; MINITRANSFORMER_DATA names the folder beside tools"
)


def installed() -> list[Path]:
    """Return the libraries in the wheels of this environment: one for each major version of CUDA."""
    wheels = importlib.util.find_spec("nvidia")
    folders = (wheels.submodule_search_locations or ()) if wheels else ()
    return [path for folder in folders for path in _libraries(folder)]


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


def _in_child(*arguments: str | Path) -> bytes:
    command = [sys.executable, __file__, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout


def compiled_by(library: Path, architecture: str) -> dict[str, Any]:
    """Compile every source, and return what ``_check`` prints."""
    return dict(json.loads(_in_child("check", library, architecture)))


def _check(library: str, architecture: str) -> None:
    """Print the version of NVRTC, whether it knows the architecture, and errors and spilled bytes by source.

    A source without a kernel has None.
    """
    nvrtc.paths_of = lambda name: iter([library])
    errors, spilled = dict[str, str](), dict[str, int | None]()
    functions, count = nvrtc._nvrtc(), ctypes.c_int()
    functions.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    functions.nvrtcGetSupportedArchs(numbers)
    is_known = architecture in [f"sm_{number}" for number in numbers]
    for source in sorted(path.name for path in nvrtc.SOURCES.glob("*.cu")) if is_known else ():
        try:
            log = nvrtc.compile_source(source, architecture).log
            spilled[source] = max(map(int, re.findall(r"(\d+) bytes spill stores", log)), default=None)
        except CompilerError as error:
            errors[source] = str(error)
    print(json.dumps({"version": nvrtc.version(), "is known": is_known, "errors": errors, "spilled": spilled}))


@functools.cache
def ptx_of(library: Path) -> Path:
    """Return the directory with the PTX of all kernels; all processes share it while the sources are the same."""
    texts = b"".join(path.read_bytes() for path in sorted(nvrtc.SOURCES.glob("*.cu*")))
    name = f"{library.name}.{hashlib.blake2b(texts + bytes(library), digest_size=8).hexdigest()}"
    if not (BUILT / name).exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILT) as folder:
            complete = Path(folder) / "complete"
            complete.mkdir()
            write_ptx(library, nvrtc.SOURCES, complete, *(path.stem for path in nvrtc.SOURCES.glob("*.cu")))
            with contextlib.suppress(OSError):  # another process may have been faster
                complete.rename(BUILT / name)
    return BUILT / name


def write_ptx(library: Path, sources: Path, directory: Path, *names: str) -> None:
    _in_child("write", library, sources, directory, *names)


def _write(library: str, sources: str, directory: str, *stems: str) -> None:
    nvrtc.paths_of = lambda name: iter([library])
    nvrtc.SOURCES = Path(sources)
    functions = nvrtc._nvrtc()
    for what in ("", "Size"):
        setattr(functions, f"nvrtcGetCUBIN{what}", getattr(functions, f"nvrtcGetPTX{what}"))
    for stem in stems:
        text = nvrtc.compile_source(f"{stem}.cu", "compute_80").cubin.rstrip(b"\0")
        (Path(directory) / f"{stem}.ptx").write_bytes(PAIR.sub(AS_KNOWN, text))


@functools.cache
def _interpreter(directory: Path) -> dict[str, Any]:
    """Load the interpreter with the kernels of a directory."""
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch, np.errstate():  # it changes what NumPy does with errors
        patch.setenv("PTX_DIR", str(directory))
        exec(compile(INTERPRETER.read_bytes(), INTERPRETER, "exec"), names)
    names["TY"]["f16"] = "float16"  # a type that it lacks
    return names


def launch_ptx(directory: Path, source: str, kernel: str, n_blocks: int, n_threads: int, *arguments: Any) -> None:
    """As ``autograd.kernels.cuda.driver.launch``; a race and a read of memory without a value are errors, too."""
    names = _interpreter(directory)
    names["FAULTS"].clear()
    with np.errstate(all="ignore"):
        names["launch"](source, kernel, n_blocks, n_threads, *arguments, seed=1)
    assert not names["FAULTS"], "\n".join(names["FAULTS"])


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    {"check": _check, "write": _write}[what](*arguments)
