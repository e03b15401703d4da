"""Our CUDA kernels, compiled by the C++ compiler of this machine and run on its CPU, between guards."""

import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from autograd.kernels.cuda.nvrtc import SOURCES

COMPILER = shutil.which("g++")
HEADER, F16 = Path(__file__).with_suffix(".h"), Path(__file__).with_name("f16_on_cpu.h")
GUARD = 64  # bytes before and behind every array, which no kernel may touch
PATTERN = 0xA5


BUILT = Path(__file__).parents[2] / "build" / "compiled-for-tests"


def built(name: str, sources: Iterable[Path], build: Callable[[Path], None]) -> ctypes.CDLL:
    """Load the library that ``build`` writes; all processes share it while the sources are the same."""
    texts = b"".join(source.read_bytes() for source in sorted(sources))
    path = BUILT / f"{name}.{hashlib.blake2b(texts, digest_size=8).hexdigest()}.so"
    if not path.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILT) as folder:
            build(Path(folder) / "library.so")
            (Path(folder) / "library.so").replace(path)
    return ctypes.CDLL(str(path))


@functools.cache
def library(source: str) -> ctypes.CDLL:
    """All kernels of a source file, as functions of the sizes of grid and block, and pointers to arguments."""
    return built(source, [Path(__file__), HEADER, F16, *SOURCES.glob("*.cu*")], functools.partial(_build, source))


def _build(source: str, compiled: Path) -> None:
    shim = compiled.with_suffix(".cpp")
    shim.write_text(f'#include "{HEADER.name}"\n#include "{source}"\n', encoding="utf-8")
    names = re.findall(r'extern "C"\s+void\s+(\w+)\s*\(', _compile("-E", "-P", str(shim)))
    with shim.open("a", encoding="utf-8") as end:
        end.writelines(f"RUN_ON_CPU({name})\n" for name in names if not name.startswith("run_"))
    _compile("-O1", "-shared", "-fPIC", "-Wall", "-Wno-unknown-pragmas", "-Werror", str(shim), "-o", str(compiled))


def _compile(*options: str) -> str:
    """Run the compiler; return what it writes to its output."""
    assert COMPILER is not None
    command = [COMPILER, "-std=c++17", f"-I{HEADER.parent}", f"-I{SOURCES}", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{COMPILER} does not compile it:\n{done.stderr}"
    return done.stdout


class Guarded:
    """A copy of an array with guards around it, at an address that is aligned as the array's is."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        assert array.flags.c_contiguous, "a kernel was given an array that is not contiguous"
        self.array = array
        self.bytes = np.full(array.nbytes + 3 * GUARD, PATTERN, np.uint8)
        self.start = GUARD + (array.ctypes.data - self.bytes.ctypes.data) % GUARD
        self.inside[...] = array.reshape(-1).view(np.uint8)

    @property
    def inside(self) -> np.ndarray[Any, Any]:
        return self.bytes[self.start : self.start + self.array.nbytes]

    def finish(self) -> None:
        """Copy back what the kernel has left; nothing else may have changed."""
        assert (self.bytes[: self.start] == PATTERN).all(), "a kernel wrote before the beginning of an array"
        assert (self.bytes[self.start + self.array.nbytes :] == PATTERN).all(), (
            "a kernel wrote behind the end of an array"
        )
        if self.array.flags.writeable:
            self.array.reshape(-1).view(np.uint8)[...] = self.inside
        else:
            assert (self.array.reshape(-1).view(np.uint8) == self.inside).all(), (
                "a kernel wrote to what it may only read"
            )


def launch(source: str, kernel: str, n_blocks: int, n_threads: int, *arguments: Any) -> None:
    """As ``autograd.kernels.cuda.driver.launch``."""
    assert n_blocks > 0
    assert 0 < n_threads <= 1024
    guarded = [Guarded(x) if isinstance(x, np.ndarray) else None for x in arguments]
    values = [
        ctypes.c_void_p(None if x is None else g.inside.ctypes.data) if x is None or g else _scalar(x)
        for x, g in zip(arguments, guarded, strict=True)
    ]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    getattr(library(source), f"run_{kernel}")(n_blocks, n_threads, pointers)
    for g in guarded:
        if g:
            g.finish()


def _scalar(x: Any) -> Any:
    assert isinstance(x, np.generic), f"a kernel was given {x!r}, which has no type"
    return np.ctypeslib.as_ctypes_type(x.dtype)(x.item())


def to_bf16(x: Any) -> np.ndarray[Any, Any]:
    """The bits of float32 numbers rounded to bfloat16, to the nearest, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)


def from_bf16(bits: Any) -> np.ndarray[Any, Any]:
    """The numbers whose bits these are."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def near(got: Any, expected: Any, tolerance: float) -> None:
    """Both finite, and near each other by the Euclidean norm."""
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    assert got.shape == expected.shape
    assert np.isfinite(got).all()
    assert np.linalg.norm(got - expected) <= tolerance * max(np.linalg.norm(expected), 1e-30)


def double(*arrays: Any) -> tuple[Any, ...]:
    """float32 arrays as float64, others as they are."""
    return tuple(x.astype(np.float64) if x is not None and x.dtype == np.float32 else x for x in arrays)
