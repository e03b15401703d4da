"""The PTX that NVRTC makes of the CUDA sources, run on the CPU by an interpreter; needs no GPU.

    python ptx.py LIBRARY SOURCES DIRECTORY NAME …     compile SOURCES/NAME.cu to DIRECTORY/NAME.ptx

The interpreter, ptxrun.py, is not in the repository: it lies beside the data.
"""

import contextlib
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import BUILT
from shared_data import DATA

from autograd.kernels.cuda import nvrtc

ROOT = Path(__file__).parents[2]
INTERPRETER = DATA.parent / "tools" / "ptx" / "ptxrun.py"
needs_interpreter = pytest.mark.skipif(
    not INTERPRETER.exists(), reason=f"{INTERPRETER} is absent; MINITRANSFORMER_DATA names the folder beside tools"
)


@functools.cache
def compiled(library: Path) -> Path:
    """Return the directory with the PTX of all kernels; all processes share it while the sources are the same."""
    texts = b"".join(path.read_bytes() for path in sorted(nvrtc.SOURCES.glob("*.cu*")))
    name = f"{library.name}.{hashlib.blake2b(texts + bytes(library), digest_size=8).hexdigest()}"
    if not (BUILT / name).exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILT) as folder:
            complete = Path(folder) / "complete"
            complete.mkdir()
            write(library, nvrtc.SOURCES, complete, *(path.stem for path in nvrtc.SOURCES.glob("*.cu")))
            with contextlib.suppress(OSError):  # another process may have been faster
                complete.rename(BUILT / name)
    return BUILT / name


def write(library: Path, sources: Path, directory: Path, *names: str) -> None:
    """Compile in a child process: a process can load one NVRTC."""
    command = [sys.executable, __file__, library, sources, directory, *names]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)


@functools.cache
def interpreter(directory: Path) -> dict[str, Any]:
    """Load the interpreter with the kernels of a directory."""
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch, np.errstate():  # it changes what NumPy does with errors
        patch.setenv("PTX_DIR", str(directory))
        exec(compile(INTERPRETER.read_bytes(), INTERPRETER, "exec"), names)
    return names


def launch(directory: Path, source: str, kernel: str, n_blocks: int, n_threads: int, *arguments: Any) -> None:
    """As ``autograd.kernels.cuda.driver.launch``; a race and a read of memory without a value are errors, too."""
    names = interpreter(directory)
    names["FAULTS"].clear()
    with np.errstate(all="ignore"):
        names["launch"](source, kernel, n_blocks, n_threads, *arguments, seed=1)
    assert not names["FAULTS"], "\n".join(names["FAULTS"])


def _write(library: str, sources: str, directory: str, *stems: str) -> None:
    nvrtc.paths_of = lambda name: iter([library])
    nvrtc.SOURCES = Path(sources)
    functions = nvrtc._nvrtc()
    for what in ("", "Size"):
        setattr(functions, f"nvrtcGetCUBIN{what}", getattr(functions, f"nvrtcGetPTX{what}"))
    for stem in stems:
        text = nvrtc.compile_source(f"{stem}.cu", "compute_80").cubin.rstrip(b"\0")
        (Path(directory) / f"{stem}.ptx").write_bytes(text)


if __name__ == "__main__":
    _write(*sys.argv[1:])
