"""What must be known about a machine before anything is tuned on it: seven questions, each asked whatever comes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
from gpu_card import Card, draw, synchronize
from gpu_ceilings import copy
from gpu_products import products

from autograd.array import namespace_of_device, to_device, to_host
from autograd.kernels.cuda.products import mask_shape, product
from autograd.precision import dtype_named, rounded, upcast

COPIED = (2**21, 2**22, 2**23, 2**24, 2**26, 2**28)  # elements: the cache holds the smaller ones
RELU_BACKWARD = (25_344, 512, 2_048)  # rows of dy, its columns, d_ff: the base model's


def run(card: Card) -> bool:
    """Ask all of them."""
    asked: dict[str, Callable[[], dict[str, Any]]] = {
        "1. are bfloat16 arrays of CuPy those of NumPy and ml_dtypes": numbers_in_bfloat16,
        "2. is a product by ctypes captured, and launched again on other inputs": lambda: captured_product(None),
        "3. how much is lost by cuBLASLt's first guess": lambda: first_guesses(card),
        "4. which kernels run for ReLU's derivative and the bias's gradient": lambda: fused_epilogues(card),
        "5. which MPI is there": message_passing,
        "6. is a graph whose memory comes from a pool of its own right": lambda: captured_product(
            namespace_of_device("cuda").cuda.MemoryPool()
        ),
        "7. how fast are copies of the size of activations": lambda: copies(card),
    }
    return all([card.attempt(question, work) for question, work in asked.items()])


def numbers_in_bfloat16() -> dict[str, Any]:
    """Conversions to and fro, on both sides, of numbers that are no bfloat16."""
    values = np.concatenate([np.random.default_rng(1).standard_normal(100_000), [0, -0.0, np.inf, 3e38, 1e-40]])
    on_host = np.float32(values)
    on_device = to_device(on_host, "cuda")
    there_and_back = to_host(rounded(on_device))
    alike = {
        "rounding on the card": bool((there_and_back.view(np.uint16) == rounded(on_host).view(np.uint16)).all()),
        "widening on the card": bool((to_host(upcast(rounded(on_device))) == upcast(rounded(on_host))).all()),
        "dtype": there_and_back.dtype == dtype_named("bfloat16"),
        "a sum of two": bool(
            (to_host(rounded(on_device) + rounded(on_device)) == rounded(on_host) + rounded(on_host)).all()
        ),
    }
    assert all(alike.values()), alike
    return {"numpy": np.__version__, "CuPy": namespace_of_device("cuda").__version__, "ml_dtypes": version("ml_dtypes")}


def captured_product(pool: Any) -> dict[str, Any]:
    """A graph of one product whose result is new memory, from ``pool`` if there is one, launched on other numbers."""
    xp = namespace_of_device("cuda")
    stream = xp.cuda.Stream(non_blocking=True)
    pool = pool or xp.cuda.MemoryPool()  # a graph's memory must never be given to others
    before = xp.cuda.get_current_stream().record()
    with stream, xp.cuda.using_allocator(pool.malloc):
        stream.wait_event(before)
        x, weight = draw(300, 64), draw(64, 128)

        def compute() -> Any:
            y = xp.empty((300, 128), x.dtype)
            product(x, weight, y)
            return y

        compute()  # the algorithm is chosen, the workspace allocated
        stream.begin_capture()
        y = compute()
        graph = stream.end_capture()
        x[...] = rounded(2 * upcast(x))
        expected = to_host(compute())
        graph.launch(stream)
        others = [xp.full((300, 128), 7, np.float32) for _ in range(4)]  # may not lie where y does
        stream.synchronize()
        same = bool((to_host(y) == expected).all()) and all(bool((other == 7).all()) for other in others)
    assert same, "the graph's result is not that of the same product outside of it"
    return {"same bits": same}


def first_guesses(card: Card) -> dict[str, Any]:
    """Of the first model's products, each once."""
    facts = products(card, next(iter(card.sizes.models)))
    return {"tokens": facts["tokens"], "ms of all, each once": facts["ms of one each"]}


def fused_epilogues(card: Card) -> dict[str, Any]:
    """Names of what runs for a product whose result goes through ReLU's derivative, with the bias's gradient."""
    n, d_model, d_ff = RELU_BACKWARD if card.name == "cuda" else (64, 32, 128)
    xp = namespace_of_device("cuda")
    x, dy, of_hidden, of_output = draw(n, d_model), draw(n, d_model), draw(d_model, d_ff), draw(d_ff, d_model)
    bias, hidden = draw(d_ff), xp.empty((n, d_ff), dtype_named("bfloat16"))
    mask = xp.empty(mask_shape(n, d_ff), "uint8")
    works = {
        "relu_mask_bias": lambda: product(x, of_hidden, hidden, epilogue="relu_mask_bias", bias=bias, mask=mask),
        "none": lambda: product(dy, of_output.T, hidden),
        "relu_backward": lambda: product(dy, of_output.T, hidden, epilogue="relu_backward", mask=mask),
        "relu_bias_backward": lambda: product(
            dy, of_output.T, hidden, epilogue="relu_bias_backward", bias=bias, mask=mask
        ),
    }
    return {
        name: {"ms": card.milliseconds(work), "kernels": names_of_kernels(card, work)} for name, work in works.items()
    }


def names_of_kernels(card: Card, work: Callable[[], Any]) -> Any:
    """What runs on the card, as NVIDIA's tracing tells PyTorch's profiler."""
    try:
        from gpu_classes import traced  # noqa: PLC0415 (PyTorch may not be there)

        return sorted(traced(card, work))
    except Exception as error:  # the times say something without the names
        return f"{type(error).__name__}: {error}"


def message_passing() -> dict[str, Any]:
    """Asked in another process: a library that cannot start may end the one that asks."""
    code = "from mpi4py import MPI; print(MPI.Get_library_version())"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    return {"mpirun": shutil.which("mpirun"), "library": asked.stdout.strip()[:100] or asked.stderr.strip()[-300:],
            "cores": os.cpu_count()}  # fmt: skip


def copies(card: Card) -> dict[str, Any]:
    """GB/s by size of the array."""
    sizes = COPIED if card.name == "cuda" else (100, 1_000)
    speeds = {}
    for size in sizes:
        facts = copy(card, size)
        speeds[f"{facts['mb'] / 2:.1f} MB"] = round(facts["gb_per_s"])
    synchronize()
    return {"gb_per_s": speeds}
