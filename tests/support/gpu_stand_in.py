"""A process without a GPU in which everything that is meant for one runs all the same: on the stand-ins, on the CPU.

Python imports the stand-in where it is told to import CuPy; kernels and products go to the programs that this machine's
C++ compiler makes of their sources.  As a plugin of pytest it lets the tests that need a GPU run:

    PYTHONPATH=tests/support python -m pytest -p gpu_stand_in -m gpu tests/gpu tests/autograd/cuda
"""

from collections.abc import Callable
from typing import Any

import fake_cuda
import fake_streams
import pytest
from cublaslt_on_cpu import Recorder
from cuda_on_cpu import launch

from autograd.kernels.cuda import cublaslt, driver, nvrtc


def install() -> None:
    """To be called before anything asks for CuPy."""
    fake_cuda.stand_in_for_cupy()
    products_on_cpu = Recorder()
    cublaslt.library = lambda: products_on_cpu
    driver._function = _function_on_cpu
    nvrtc.version = lambda: "stand-in"
    nvrtc.compile_source = lambda name, architecture: nvrtc.Program(b"stand-in", "")


def _function_on_cpu(source: str, kernel: str, device: int) -> Callable[..., None]:
    """As the driver's, for arrays of the stand-in for CuPy."""

    def run(grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
        values = [getattr(x, "_values", x) for x in arguments]
        fake_streams.do(lambda: launch(source, kernel, *grid, *block, *values))

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Called by pytest, before anything of the tests is imported."""
    install()
