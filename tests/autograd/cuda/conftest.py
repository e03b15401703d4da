"""The very sources of the CUDA kernels run on the CPU, forwards and backwards.

Importing the kernels registers them, which would send other tests' stand-in for CuPy to a GPU: here they are called by
name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import cuda_on_cpu
import pytest

from autograd import kernels  # noqa: F401  (their registration comes first)
from autograd.kernels.cuda import adam, cross_entropy, dropout, embedding, layer_norm
from autograd.op import Dispatch, operations
from autograd.optim import adam_update
from autograd.random import random_words

_dispatchers: list[Dispatch] = [*operations.values(), adam_update, random_words]
for _dispatcher in _dispatchers:
    _dispatcher.kernels[:] = [kernel for kernel in _dispatcher.kernels if kernel.device != "cuda"]


@pytest.fixture(params=[False, True], ids=["first thread first", "last thread first"])
def launch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Kernels run on the CPU; if they lack a barrier, the order of threads changes their results."""
    if cuda_on_cpu.COMPILER is None:
        pytest.skip("there is no C++ compiler (g++)")
    run = functools.partial(cuda_on_cpu.launch, backwards=request.param)
    for module in (adam, cross_entropy, dropout, embedding, layer_norm):
        monkeypatch.setattr(module, "launch", run)
    return run
