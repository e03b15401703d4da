"""Run the CUDA kernels on the CPU, from their sources and from their PTX, and on a GPU if there is one."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cublaslt_on_cpu
import cuda_on_cpu
import fake_streams
import numpy as np
import pytest
from cuda_kernels import GPU, MODULES, registered
from nvrtc_versions import installed, launch_ptx, needs_interpreter, ptx_of

from autograd import to_device, to_host
from autograd.kernels.cuda import driver, products


def launch_on_gpu(source: str, kernel: str, n_blocks: int, n_threads: int, *arguments: Any) -> None:
    """Launch as ``driver.launch`` does, with NumPy arrays."""
    on_device(functools.partial(driver.launch, source, kernel, n_blocks, n_threads), *arguments)


def on_device(run: Callable[..., None], *arguments: Any) -> None:
    """Run on device copies of NumPy arrays, and copy the results back."""
    copies = [to_device(x, "cuda") if isinstance(x, np.ndarray) else x for x in arguments]
    run(*copies)
    for x, result in zip(arguments, copies, strict=True):
        if isinstance(x, np.ndarray) and x.flags.writeable:
            x[...] = to_host(result)


def product_of_host_arrays(left: Any, right: Any, out: Any, *, bias: Any = None, **how: Any) -> None:
    """Compute ``products.product`` with NumPy arrays."""
    multiply = functools.partial(PRODUCT, **how)
    on_device(lambda left, right, out, bias: multiply(left, right, out, bias=bias), left, right, out, bias)


PRODUCT = products.product


def unwritten(allocate: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``numpy.empty`` with memory full of NaN, which shows results that a kernel does not write."""

    def poisoned(*arguments: Any, **keywords: Any) -> Any:
        array = allocate(*arguments, **keywords)
        fake_streams.poison(array)
        return array

    return poisoned


PTX = [
    pytest.param(library, id=f"PTX of {library.name}", marks=[pytest.mark.slow, needs_interpreter])
    for library in installed()
]


@pytest.fixture(params=["on the CPU", *PTX, pytest.param("on a GPU", marks=GPU)])
def launch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return the function that launches kernels."""
    run: Callable[..., None] = launch_on_gpu
    if request.param != "on a GPU":
        if cuda_on_cpu.COMPILER is None:
            pytest.skip("there is no C++ compiler (g++)")
        is_source = request.param == "on the CPU"
        run = cuda_on_cpu.launch if is_source else functools.partial(launch_ptx, ptx_of(request.param))
        request.getfixturevalue("products_on_cpu")
        for name in ("empty", "empty_like"):
            monkeypatch.setattr(np, name, unwritten(getattr(np, name)))
    for module in MODULES:
        monkeypatch.setattr(module, "launch", run)
    monkeypatch.setattr(products, "product", product_of_host_arrays)
    return run


@pytest.fixture
def products_on_cpu(cupy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[cublaslt_on_cpu.Recorder]:
    """Replace cuBLASLt by a library for the CPU, and CuPy by its stand-in."""
    yield cublaslt_on_cpu.install(monkeypatch, tmp_path)
    cublaslt_on_cpu.forget()


@pytest.fixture
def emulated(cupy: Any, products_on_cpu: cublaslt_on_cpu.Recorder, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Launch kernels on the CPU, with arrays of the stand-in for CuPy; return a list that grows with their names."""
    names: list[str] = []

    def launch(source: str, kernel: str, n_blocks: int, n_threads: int, *arguments: Any) -> None:
        assert not any(isinstance(x, np.ndarray) for x in arguments), f"{kernel} was given an array of the host"
        values = [x._values if isinstance(x, cupy.ndarray) else x for x in arguments]

        def run() -> None:
            names.append(kernel)
            cuda_on_cpu.launch(source, kernel, n_blocks, n_threads, *values)

        fake_streams.do(run)

    for module in MODULES:
        monkeypatch.setattr(module, "launch", launch)
    return names


@pytest.fixture
def launched(emulated: list[str]) -> Iterator[list[str]]:
    """Register all kernels; return a list that grows with the names of those that run."""
    with registered():
        yield emulated


@pytest.fixture(params=["on the CPU", pytest.param("on a GPU", marks=GPU)])
def device_products(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with products and kernels on the CPU stand-in, and on a GPU if there is one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if request.param == "on the CPU":
        request.getfixturevalue("emulated")
