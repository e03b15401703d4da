"""Arrays on the CPU (NumPy) and on a GPU (CuPy); the only module that distinguishes them.

All other modules write ``xp = namespace(x)`` and call functions of ``xp``, an array namespace as in the
Python array API.  CuPy is imported only when device "cuda" is used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, Literal, TypeAlias

import numpy as np

from autograd.packed_weight import PackedWeight

Array: TypeAlias = Any  # numpy.ndarray or cupy.ndarray: they share methods, not a base class
IntArray: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"  # on the host, like the next two types
FloatArray: TypeAlias = "np.ndarray[Any, np.dtype[np.floating[Any]]]"
BoolArray: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
Device: TypeAlias = Literal["cpu", "cuda"]


class DeviceError(RuntimeError):
    """An error: this machine or installation lacks the requested device or dtype."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"device: {problem}; {remedy}")
        self.problem, self.remedy = problem, remedy


def namespace(x: Array) -> Any:
    """Return the module (``numpy`` or ``cupy``) whose functions accept ``x``; Python scalars belong to NumPy.

    A packed weight (``autograd.ops.linear.pack_weight``), which only kernels of the CPU read, belongs to NumPy too.

    Raises: TypeError if ``x`` is not an array.
    """
    # The first test is the fastest.
    if type(x) is np.ndarray or isinstance(x, (np.ndarray, np.generic, int, float, PackedWeight)):
        return np
    if not (hasattr(x, "dtype") and hasattr(x, "get")):
        raise TypeError(f"expected an array of NumPy or CuPy, got {type(x).__name__}: {x!r:.60}")
    return namespace_of_device("cuda")


def device_of(x: Array) -> Device:
    """Return the device that holds the values of ``x``."""
    return "cpu" if namespace(x) is np else "cuda"


def namespace_of_device(device: Device) -> Any:
    """Return the array module of a device: ``numpy`` for "cpu", ``cupy`` for "cuda".

    Raises: DeviceError if the device is unknown or CuPy cannot be imported.
    """
    if device == "cpu":
        return np
    if device == "cuda":
        return _import_cupy()
    raise DeviceError(f"got {device!r}", 'expected "cpu" or "cuda"')


def _import_cupy() -> ModuleType:
    try:
        return sys.modules.get("cupy") or importlib.import_module("cupy")  # called often: sys.modules is faster
    except ImportError as error:
        raise DeviceError(
            f"CuPy cannot be imported ({error})",
            'install it with pip install "cupy-cuda13x[ctk]" or "cupy-cuda12x[ctk]", for the CUDA version that'
            ' nvidia-smi shows, or use device "cpu"',
        ) from error


def gpu_module(device: Device) -> ModuleType | None:
    """Return the CuPy module for "cuda", None for "cpu"."""
    return None if device == "cpu" else namespace_of_device(device)


def count_gpus(device: Device) -> int:
    """Return the number of GPUs visible to this process; 0 for "cpu".

    Raises: DeviceError if CuPy cannot be imported, or finds no driver or no GPU.
    """
    cupy = gpu_module(device)
    if cupy is None:
        return 0
    remedy = 'look whether nvidia-smi lists a GPU, or use device "cpu"'
    try:
        n_gpus = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(f"CuPy {cupy.__version__} finds no usable driver ({error})", remedy) from error
    if not n_gpus:
        raise DeviceError("the driver sees no GPU", remedy)
    return n_gpus


def free_gpu_memory() -> int:
    """Return the bytes of the current GPU that are free, with those that CuPy's default pool keeps for new arrays."""
    cupy = namespace_of_device("cuda")
    return int(cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes())


def use_gpu(index: int) -> None:
    """Select a GPU for this thread, which otherwise uses GPU 0.  Call this before anything is allocated."""
    namespace_of_device("cuda").cuda.Device(index).use()


def pin_to_device(device: Device) -> Callable[[], None]:
    """Return a thread initialiser that selects the caller's GPU; CUDA starts every thread on GPU 0."""
    cupy = gpu_module(device)
    return (lambda: None) if cupy is None else cupy.cuda.Device().use


def persistent_pool(device: Device) -> AbstractContextManager[object]:
    """Return a context for allocating arrays that are kept for later updates, such as cached tables.

    On a GPU these arrays come from CuPy's default pool.  While kernels warm up for a CUDA graph, the current pool is
    another one, that of graphs.  Its free memory is not safe: earlier graphs write to it at each launch.
    """
    cupy = gpu_module(device)
    return nullcontext() if cupy is None else cupy.cuda.using_allocator(cupy.get_default_memory_pool().malloc)


def to_device(x: Array, device: Device) -> Array:
    """Return ``x`` on ``device``, "cpu" or "cuda": itself if it is there already, else a copy.

    Raises: DeviceError if the device is unknown or CuPy cannot be imported.
    """
    xp = namespace_of_device(device)
    return to_host(x) if xp is np else xp.asarray(x)


def to_host(x: Array) -> np.ndarray[Any, Any]:
    """Return ``x`` as a NumPy array: itself if it is one, else a copy (which waits for the device)."""
    return x if isinstance(x, np.ndarray) else np.asarray(x.get() if hasattr(x, "get") else x)


def pinned_bytes(n: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Allocate pinned host memory, which a GPU can copy asynchronously."""
    return np.frombuffer(namespace_of_device("cuda").cuda.alloc_pinned_memory(n), np.uint8, n)


class ReadLater:
    """An asynchronous copy of an array to the host, which starts at once; ``read`` waits for it.

    On a GPU the copy goes to pinned memory on the current stream.  ``x`` must not change in place before ``read``.
    """

    def __init__(self, x: Array) -> None:
        cupy = gpu_module(device_of(x))
        self._host: np.ndarray[Any, Any] = x
        self._copy_end: Any = None
        if cupy is not None:
            self._host = pinned_bytes(x.nbytes).view(x.dtype).reshape(x.shape)
            self._copy_end = cupy.cuda.Event(disable_timing=True)
            x.get(out=self._host, blocking=False)
            self._copy_end.record()

    def read(self) -> np.ndarray[Any, Any]:
        """Wait for the copy and for work that was enqueued before it, not for later work; return the values."""
        if self._copy_end is not None:
            self._copy_end.synchronize()
        return self._host
