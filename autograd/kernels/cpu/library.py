"""The C functions of this folder, compiled on first use for this machine and loaded with ctypes.

Every ``NAME.c`` is part of one shared library.  Without a C compiler, builds of the wheel are used.  If there are none,
there is no library, no kernel supports any arguments, and the references run.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from autograd.array import Array
from autograd.kernels.compiler import CompilerError, cached_code
from autograd.kernels.cpu.options import FLAGS, WIDE

_log = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
WHEEL_BUILDS = SOURCES / "builds"  # compiled libraries, in wheels for users without a compiler
NATIVE = {True: "-march=native", False: "-mcpu=native"}  # x86, and Arm and others: use all instructions of this CPU
SECONDS = 120.0  # that the compiler may take; it usually takes 3
_PROTOTYPE = re.compile(r"^(void|float|double) (\w+)\(([^)]*)\)\s*\{", re.MULTILINE)
_NUMBERS = {"int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "float": ctypes.c_float, "double": ctypes.c_double}
_DTYPES = {
    "int8_t": "int8",
    "uint8_t": "uint8",
    "int32_t": "int32",
    "int64_t": "int64",
    "float": "float32",
    "double": "float64",
}
_NO_BYTES = ctypes.c_char * 0  # ``from_buffer`` of this type is the fastest way to get an array's address


class _Pointer:
    """An argument of a C function: an array of one dtype, or None for a null pointer."""

    def __init__(self, dtype: str) -> None:
        self.dtype = np.dtype(dtype)

    def from_param(self, x: Array | None) -> Any:
        """Return the address of a contiguous array.  Raises: TypeError, which ctypes turns into an ArgumentError."""
        if x is None:
            return None
        if x.dtype != self.dtype or not x.flags.c_contiguous:
            raise TypeError(f"expected a contiguous array of {self.dtype}; got {x.dtype}, strides {x.strides}")
        if x.flags.writeable:
            return _NO_BYTES.from_buffer(x)
        return ctypes.c_void_p(x.ctypes.data)


class Function:
    """A function of the library, by name.  Its arguments are the C function's, with arrays for pointers.

    The call releases Python's interpreter lock.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._function: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        if self._function is None:
            self._function = library().functions[self.name]
        return self._function(*arguments)


class _RefusalError(CompilerError):
    """An error: the compiler refuses an option or a source."""


class _NoCompilerError(CompilerError):
    """An error: there is no compiler."""


class Library(NamedTuple):
    """The compiled C functions by name, the command that compiled them, and a hash of the machine code.

    ``instruction_sets`` names the instructions that products of each type of numbers use; None if the CPU has none for
    the type, or none that are as fast as those of float32.  If there are no functions, ``obstacle`` is the reason.
    """

    functions: dict[str, Callable[..., Any]]
    command: str = ""
    sha256: str = ""
    obstacle: str | None = None
    instruction_sets: Mapping[str, str | None] = MappingProxyType({})


_lock = threading.Lock()
_libraries: list[Library] = []


def library() -> Library:
    """Return the library, compiled in the first call; the same object in every call."""
    if not _libraries:
        with _lock:
            if not _libraries:
                _libraries.append(_open())
    return _libraries[0]


def bfloat16_set() -> str | None:
    """Return the name of the instructions that multiply bfloat16; None if this CPU or its compiler has no fast ones."""
    return library().instruction_sets.get("bfloat16")


def is_for_c(*arrays: Array | None) -> bool:
    """Return whether C kernels can take these arrays: the library exists, and all are contiguous float32.

    Arrays of a subclass, which may watch what NumPy computes with them, are left to the references.
    """
    return bool(library().functions) and all(
        x is None or (type(x) is np.ndarray and x.dtype == np.float32 and x.flags.c_contiguous) for x in arrays
    )


def _open() -> Library:
    """Return the library for this CPU, compiled without extensions that the CPU does not report."""
    try:
        command, shared, sha256 = _load_native()
        unreported = _unreported_extensions(shared)
        if unreported and _is_x86():
            command, shared, sha256 = _load_native(*(f"-mno-{extension}" for extension in unreported))
            without, unreported = unreported, _unreported_extensions(shared)
            if not unreported:
                _log.warning(f"this CPU does not report {', '.join(without)}: the kernels are compiled without them")
        if unreported:
            raise CompilerError(
                f"{shlex.join(command)} compiles for extensions that this CPU does not report: "
                f"{', '.join(unreported)}; remove them from the environment variable MINITRANSFORMER_CFLAGS"
            )
        return Library(_functions_of(shared), shlex.join(command), sha256, None, _instruction_sets(shared))
    except (CompilerError, OSError) as error:
        if builds := sorted(WHEEL_BUILDS.glob("kernels-*")):
            if not isinstance(error, _NoCompilerError):
                _log.warning(f"{error}; the kernels of the wheel are used")
            return _open_build(builds)
        _log.warning(f"{error}; NumPy computes instead, which takes up to three times as long")
        return Library({}, obstacle=str(error))


def _open_build(builds: list[Path]) -> Library:
    """Return the library of the last of a wheel's builds that this CPU runs; any CPU runs the first."""
    runs_build = ctypes.CDLL(str(builds[0])).runs_build
    path = max(path for n, path in enumerate(builds) if runs_build(ctypes.c_int64(n)))
    shared, sha256 = ctypes.CDLL(str(path)), hashlib.sha256(path.read_bytes()).hexdigest()
    return Library(_functions_of(shared), f"the wheel's builder ({path.stem})", sha256, None, _instruction_sets(shared))


def _instruction_sets(shared: ctypes.CDLL) -> dict[str, str | None]:
    """Return the instructions that products of each type of numbers use; see ``Library``."""
    sets = {type_: None if name == "none" else name for type_, name in _pairs(shared, "instruction_sets").items()}
    if sets.get("bfloat16") == "AVX-512 BF16":  # the processor decides, not only the compiler
        sets["bfloat16"] = {1: "AMX", 0: "AVX-512 BF16", -1: None}[shared.bfloat16_difference()]
    return sets


def _load_native(*restrictions: str) -> tuple[list[str], ctypes.CDLL, str]:
    """Load the library for this CPU, or for any CPU of its kind if the compiler refuses ``NATIVE``; see ``_load``."""
    command = _command(NATIVE[_is_x86()], *restrictions)
    try:
        return command, *_load(command)
    except _RefusalError as error:
        refused, command = error, _command(*restrictions)
    loaded = command, *_load(command)
    _log.warning(f"{refused}; the kernels are compiled for any processor of this kind, which can be slower")
    return loaded


def _load(command: list[str]) -> tuple[ctypes.CDLL, str]:
    """Return the library that this command compiles, and its SHA-256."""
    path = cached_code("cpu", _inputs(command), lambda: _compile(command))
    return ctypes.CDLL(str(path)), hashlib.sha256(path.read_bytes()).hexdigest()


def _unreported_extensions(shared: ctypes.CDLL) -> list[str]:
    """Return the extensions of the instruction set that the library may use, but this CPU does not report.

    The list is empty on a system without /proc/cpuinfo, such as macOS.
    """
    reported = _processor().partition(":")[2].replace("_", "").split()
    used = [extension for extension, value in _pairs(shared, "used_extensions").items() if value == "1"]
    return [extension for extension in used if re.sub("[.-]", "", extension) not in reported] if reported else []


def _pairs(shared: ctypes.CDLL, name: str) -> dict[str, str]:
    """Return the lines ``key=value`` of a text in the library as a dict; run no code of the library."""
    text = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(shared, name))).decode()
    return dict(line.split("=") for line in text.splitlines())


def _functions_of(shared: ctypes.CDLL) -> dict[str, Callable[..., Any]]:
    """Return all functions by name, with the argument types of their definitions in C."""
    functions: dict[str, Callable[..., Any]] = {}
    for path in sorted(SOURCES.glob("*.c")):
        for result, name, parameters in _PROTOTYPE.findall(path.read_text(encoding="utf-8")):
            function = getattr(shared, name)
            function.restype = _NUMBERS.get(result)
            function.argtypes = [_type_of(parameter) for parameter in parameters.split(",")]
            functions[name] = function
    return functions


def _type_of(parameter: str) -> Any:
    c_type = parameter.replace("const", "").split()[0]
    return _Pointer(_DTYPES[c_type]) if "*" in parameter else _NUMBERS[c_type]


def _command(*tuning: str) -> list[str]:
    """Return the compiler and its options.  Raises: CompilerError if there is no compiler."""
    name, *options = shlex.split(os.environ.get("CC") or "cc")
    compiler = shutil.which(name)
    if compiler is None:
        raise _NoCompilerError(
            "no C compiler was found (cc, or what the environment variable CC names): install GCC or Clang"
        )
    wide = (WIDE,) if _is_x86() else ()
    own = shlex.split(os.environ.get("MINITRANSFORMER_CFLAGS", ""))
    return [compiler, *options, *FLAGS, *wide, *tuning, *own]


def _is_x86() -> bool:
    return platform.machine() in ("x86_64", "AMD64")


def _inputs(command: list[str]) -> list[bytes]:
    """Return all that the library depends on.  Size and date identify the compiler: to ask for its version is slow."""
    status = Path(command[0]).stat()
    sources = [path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]"))]
    return [*sources, *(part.encode() for part in (*command, f"{status.st_size} {status.st_mtime_ns}", _processor()))]


def _compile(command: list[str]) -> bytes:
    """Compile the library, load it as a test, and return its bytes.

    Raises: CompilerError if the compiler fails or hangs, or if its output is not this library.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "kernels.so"
        sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
        _run([*command, *sources, "-lm", "-o", str(out)], shlex.join(command), Path(directory))
        try:
            _functions_of(ctypes.CDLL(str(out)))
        except (OSError, AttributeError) as error:
            raise CompilerError(f"{shlex.join(command)} made a library that cannot be loaded ({error})") from error
        code = out.read_bytes()
    _log.info(f"compiled the kernels for this CPU in {time.perf_counter() - start:.1f} s; they are kept")
    return code


def _run(command: list[str], description: str, directory: Path) -> None:
    """Run a compiler; after ``SECONDS`` kill it and all processes that it has started."""
    with (directory / "messages").open("w+b") as messages:  # no pipe: a process that is left would block its reader
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages, cwd=directory, start_new_session=True
        )
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise CompilerError(f"{description} did not end within {SECONDS:.0f} s") from None
        finally:
            if process.poll() is None:  # also after Ctrl-C
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                else:  # Windows
                    process.kill()
                process.wait()
        if status:
            messages.seek(0)
            raise _RefusalError(f"{description} failed:\n{messages.read().decode(errors='replace').strip()}")


def _processor() -> str:
    """Return a text that differs between processors with different instruction sets."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            return next((line for line in file if line.startswith(("flags", "Features"))), platform.machine())
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
