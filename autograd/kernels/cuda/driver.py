"""Launching our own CUDA kernels on CuPy's arrays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from autograd.array import Array, namespace_of_device
from autograd.kernels.cuda.compiler import compile_source

STORAGE = {"float32": "float", "bfloat16": "bf16"}  # what numbers are stored as, by the name that kernels have for it


def launch(source: str, kernel: str, n_blocks: int, n_threads: int, *arguments: Array | np.generic | None) -> None:
    """Run ``kernel`` of a source file on ``n_blocks`` · ``n_threads`` threads of the current device and stream.

    Arguments: arrays on the device, None for a null pointer, and NumPy scalars of exactly the types that the kernel
    declares: a Python number has none.
    """
    pointers = tuple(np.uintp(0) if argument is None else argument for argument in arguments)
    _function(source, kernel, _architecture())((n_blocks,), (n_threads,), pointers)


def _architecture() -> str:
    return f"sm_{namespace_of_device('cuda').cuda.Device().compute_capability}"


@functools.cache
def _function(source: str, kernel: str, architecture: str) -> Any:
    return _module(source, architecture).get_function(kernel)


@functools.cache
def _module(source: str, architecture: str) -> Any:
    module = namespace_of_device("cuda").cuda.function.Module()
    module.load(compile_source(source, architecture).cubin)
    return module
