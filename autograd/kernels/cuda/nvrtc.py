"""Compilation of CUDA C++ to machine code by NVIDIA's run-time compiler (NVRTC); needs no GPU.

CuPy's entry points to NVRTC need a device, and do not accept architectures like ``sm_90a``.
"""

from __future__ import annotations

import ctypes
import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from autograd.kernels.compiler import CompilerError, cached_code, code_of
from autograd.kernels.cuda.library import paths_of

SOURCES = Path(__file__).parent
_HEADERS = ("attention.cuh", "attention_long.cuh", "common.cuh", "mma.cuh", "philox.cuh")
_OPTIONS = (
    "--std=c++17",
    "-default-device",  # before 13.2, NVRTC refuses lambdas as functions of the host
    "--ptxas-options=-v",
)


class Program(NamedTuple):
    """Machine code, and the assembler's log of registers and spills."""

    cubin: bytes
    log: str


def machine_code(name: str, architecture: str) -> bytes:
    """Return ``name`` compiled for an architecture, from the cache if it is there.  Raises: CompilerError."""
    sources = [(SOURCES / file).read_bytes() for file in (name, *_HEADERS)]
    options = [*_OPTIONS, architecture, version()]
    inputs = [*sources, *(option.encode() for option in options)]
    return code_of(cached_code(f"cuda-{name}", inputs, lambda: compile_source(name, architecture).cubin))


def compile_all(architecture: str) -> None:
    """Compile all sources in parallel into the cache; ignore errors, which the first use of a source raises again."""
    with ThreadPoolExecutor() as pool:
        for path in SOURCES.glob("*.cu"):
            pool.submit(machine_code, path.name, architecture)


def version() -> str:
    """Return the version of the compiler, such as "13.0".  Raises: CompilerError if it is not installed."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "version")
    return f"{major.value}.{minor.value}"


def compile_source(name: str, architecture: str) -> Program:
    """Compile ``name``, a file beside this one, for an architecture such as "sm_90".  Raises: CompilerError."""
    nvrtc = _nvrtc()
    program = ctypes.c_void_p()
    contents = [(SOURCES / header).read_bytes() for header in _HEADERS]
    options = [option.encode() for option in (f"--gpu-architecture={architecture}", *_OPTIONS)]
    _check(
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(program),
            (SOURCES / name).read_bytes(),
            name.encode(),
            len(_HEADERS),
            (ctypes.c_char_p * len(_HEADERS))(*contents),
            (ctypes.c_char_p * len(_HEADERS))(*(header.encode() for header in _HEADERS)),
        ),
        name,
    )
    try:
        code = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = _bytes_of(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).rstrip(b"\0").decode()
        _check(code, f"{name} for {architecture}: {log}")
        return Program(_bytes_of(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@functools.cache
def _nvrtc() -> ctypes.CDLL:
    path = next(paths_of("nvrtc"), None)
    if path is None:
        raise CompilerError('NVRTC, the compiler of CUDA kernels, is not installed; pip install "nvidia-cuda-nvrtc"')
    for builtins in sorted(Path(path).parent.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(path)


def _bytes_of(get_size: ctypes._NamedFuncPointer, get: ctypes._NamedFuncPointer, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    get_size(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    get(program, buffer)
    return buffer.raw


def _check(code: int, what: str) -> None:
    if code:
        nvrtc = _nvrtc()
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise CompilerError(f"{nvrtc.nvrtcGetErrorString(code).decode()}: {what}")
