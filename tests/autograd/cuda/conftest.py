"""The very sources of the CUDA kernels run on the CPU, forwards and backwards; where there is a GPU, on that."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import cuda_on_cpu
import numpy as np
import pytest
from cuda_kernels import GPU, MODULES

from autograd import to_device, to_host
from autograd.kernels.cuda import driver


def launch_on_gpu(source: str, kernel: str, n_blocks: int, n_threads: int, *arguments: Any) -> None:
    """As ``driver.launch``, with NumPy arrays."""
    on_device = [to_device(x, "cuda") if isinstance(x, np.ndarray) else x for x in arguments]
    driver.launch(source, kernel, n_blocks, n_threads, *on_device)
    for x, result in zip(arguments, on_device, strict=True):
        if isinstance(x, np.ndarray) and x.flags.writeable:
            x[...] = to_host(result)


@pytest.fixture(params=["first thread first", "last thread first", pytest.param("on a GPU", marks=GPU)])
def launch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """How kernels run; on the CPU, if they lack a barrier, the order of threads changes their results."""
    run: Callable[..., None] = launch_on_gpu
    if request.param != "on a GPU":
        if cuda_on_cpu.COMPILER is None:
            pytest.skip("there is no C++ compiler (g++)")
        run = functools.partial(cuda_on_cpu.launch, backwards=request.param == "last thread first")
    for module in MODULES:
        monkeypatch.setattr(module, "launch", run)
    return run
