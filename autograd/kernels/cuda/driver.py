"""Launch of this package's CUDA kernels on CuPy arrays."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from autograd.array import Array, namespace_of_device
from autograd.kernels.cuda.nvrtc import machine_code

STORAGE = {"float32": "float", "bfloat16": "bf16", "float16": "f16"}  # dtype → the name of the type in kernels


def launch(source: str, kernel: str, n_blocks: int, n_threads: int, *arguments: Array | np.generic | None) -> None:
    """Run ``kernel`` of a source file on ``n_blocks`` · ``n_threads`` threads of the current device and stream.

    Arguments: arrays on the device, None for a null pointer, and NumPy scalars of exactly the types that the kernel
    declares.  Python numbers have no such type.
    """
    pointers = tuple(np.uintp(0) if argument is None else argument for argument in arguments)
    device = namespace_of_device("cuda").cuda.Device()
    _function(source, kernel, device.id)((n_blocks,), (n_threads,), pointers)


@functools.cache
def _function(source: str, kernel: str, device: int) -> Any:
    return _module(source, device).get_function(kernel)


@functools.cache
def _module(source: str, device: int) -> Any:
    """Load the compiled source on ``device``, which must be the current one."""
    cuda = namespace_of_device("cuda").cuda
    module = cuda.function.Module()
    module.load(machine_code(source, f"sm_{cuda.Device(device).compute_capability}"))
    return module
