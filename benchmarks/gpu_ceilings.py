"""What the card, its memory and its library of products can do: nothing is faster than that."""

from __future__ import annotations

from typing import Any

from contest import describe_machine
from gpu_card import Card, draw
from gpu_products import products

from autograd.array import namespace_of_device
from autograd.kernels.cuda import cublaslt


def run(card: Card) -> bool:
    """Versions, the speed of copies and of a large product, then the models' own products."""
    describe_machine()
    works = [
        card.attempt("properties", properties),
        card.attempt("copy", lambda: copy(card, card.sizes.elements)),
        card.attempt("product of float32", lambda: large_product(card, "float32")),
        card.attempt("product of bfloat16", lambda: large_product(card, "bfloat16")),
    ]
    for name in card.sizes.models:
        works.append(card.attempt(f"products of {name}", lambda name=name: products(card, name)))
    return all(works)


def properties() -> dict[str, Any]:
    """Return the card's properties, and the versions of libraries that it runs."""
    xp = namespace_of_device("cuda")
    found = xp.cuda.runtime.getDeviceProperties(0)
    facts: dict[str, Any] = {
        "card": found["name"].decode(),
        "cuBLASLt": cublaslt.version(),
        "CuPy": xp.__version__,
    }
    for name in ("totalGlobalMem", "multiProcessorCount", "l2CacheSize", "major", "minor"):
        facts[name] = found.get(name)
    return facts


def copy(card: Card, n_elements: int) -> dict[str, Any]:
    """Of float32 numbers, bytes read and bytes written counted."""
    x = draw(n_elements, dtype="float32")
    y = namespace_of_device("cuda").empty_like(x)

    def work() -> None:
        y[...] = x

    milliseconds = card.milliseconds(work)
    return {"mb": 2 * x.nbytes / 1e6, "ms": milliseconds, "gb_per_s": 2 * x.nbytes / 1e6 / milliseconds}


def large_product(card: Card, dtype: str) -> dict[str, Any]:
    """Square matrices of random numbers, by our binding."""
    from autograd.kernels.cuda.products import product  # noqa: PLC0415 (after the card was opened)

    n = card.sizes.product
    left, right = draw(n, n, dtype=dtype), draw(n, n, dtype=dtype)
    out = namespace_of_device("cuda").empty_like(left)
    milliseconds = card.milliseconds(lambda: product(left, right, out))
    return {"n": n, "ms": milliseconds, "tflops": 2e-9 * n**3 / milliseconds}
