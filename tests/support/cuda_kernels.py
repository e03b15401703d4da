"""The CUDA kernels, registered where a test asks for them: importing them registers them for the whole process."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from autograd.kernel_registry import Kernels, kernels_for
from autograd.kernels import cuda
from autograd.kernels.cuda import driver, register_all

register_all()
MODULES = [module for module in vars(cuda).values() if hasattr(module, "launch") and module is not driver]
DISPATCHERS: dict[str, Kernels[Any]] = kernels_for("cuda")
KERNELS = {
    name: [kernel for kernel in dispatcher.kernels if kernel.device == "cuda"]
    for name, dispatcher in DISPATCHERS.items()
}
for _dispatcher in DISPATCHERS.values():
    _dispatcher.remove_kernels("cuda")


@contextmanager
def registered() -> Iterator[None]:
    """Within this context they run, as after ``register_all``."""
    before = {name: list(dispatcher.kernels) for name, dispatcher in DISPATCHERS.items()}
    for name, dispatcher in DISPATCHERS.items():
        dispatcher.kernels[:0] = KERNELS[name]
    try:
        yield
    finally:
        for name, dispatcher in DISPATCHERS.items():
            dispatcher.kernels[:] = before[name]


def why_no_gpu() -> str:
    """Why tests that need a GPU are skipped; nothing if they can run."""
    try:
        return "" if importlib.import_module("cupy").cuda.runtime.getDeviceCount() else "there is no CUDA device"
    except ImportError:
        return 'CuPy is not installed: pip install -e ".[cuda12]" or ".[cuda13]"'
    except Exception as error:  # CuPy's own, of a driver that is missing or too old
        return f"CuPy finds no CUDA device ({error})"


REASON = why_no_gpu()
GPU = [pytest.mark.gpu, pytest.mark.skipif(bool(REASON), reason=REASON)]


def needs_gpu(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test."""
    for mark in GPU:
        test = mark(test)
    return test
