"""How fast are the model's own matrix products on one GPU: cuBLASLt's first guess, the best of its proposals, CuPy?

    python benchmarks/gpu_products.py [--tokens 25344]

Everything in bfloat16, gradients of weights in float32.  A product's matrices may be in the card's cache from the run
before, as they often are in training too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from contest import describe_machine

from autograd.array import namespace_of_device
from autograd.kernels.cuda.algorithms import CANDIDATES, milliseconds, timed
from autograd.kernels.cuda.cublaslt import WORKSPACE, Epilogue, Operands, Problem, Product, alignment, version
from autograd.kernels.cuda.products import matrix_of

WIDTHS = {"base": (512, 2_048), "big": (1_024, 4_096)}  # d_model and d_ff
N_WORDS = 37_000
ROUNDS = 5
EPILOGUE_OF: dict[str, Epilogue] = {"hidden": "relu_bias", "output": "bias"}


class Case(NamedTuple):
    """A product of the model; the bias is None where it has none."""

    name: str
    left: Any
    right: Any
    out: Any
    epilogue: Epilogue
    bias: Any


def cases(n_tokens: int, d_model: int, d_ff: int) -> Iterator[Case]:
    """Forward, and backward to x and to the weight, of every kind of linear map; one after the other."""
    xp = namespace_of_device("cuda")

    def draw(*shape: int, dtype: str = "bfloat16") -> Any:
        return xp.random.standard_normal(shape, np.float32).astype(dtype)

    for name, (d_in, d_out) in {
        "attention": (d_model, d_model), "hidden": (d_model, d_ff), "output": (d_ff, d_model),
        "vocabulary": (d_model, N_WORDS),
    }.items():  # fmt: skip
        x, dy, bias = draw(n_tokens, d_in), draw(n_tokens, d_out), draw(d_out)
        weight = draw(d_out, d_in).T if name == "vocabulary" else draw(d_in, d_out)
        if name in EPILOGUE_OF:
            epilogue = EPILOGUE_OF[name]
            yield Case(f"{name}, with {epilogue}", x, weight, xp.empty_like(dy), epilogue, bias)
        yield Case(name, x, weight, xp.empty_like(dy), "none", None)
        yield Case(f"{name}, dx", dy, weight.T, xp.empty_like(x), "none", None)
        factors = (dy.T, x) if name == "vocabulary" else (x.T, dy)
        gradient = xp.empty((factors[0].shape[0], factors[1].shape[1]), np.float32)
        yield Case(f"{name}, dW", *factors, gradient, "none", None)


def times(case: Case) -> tuple[dict[int, float], float]:
    """Milliseconds, medians of rounds, of every proposal, and of CuPy's own product, which writes bfloat16."""
    cuda = namespace_of_device("cuda").cuda
    operands = Operands(*(0 if x is None else x.data.ptr for x in (case.left, case.right, case.out, case.bias)))
    matrices = matrix_of(case.left), matrix_of(case.right), matrix_of(case.out)
    product = Product(Problem(*matrices, case.epilogue, False, alignment(operands.bias)), cuda.Device().id)
    workspace, stream = namespace_of_device("cuda").empty(WORKSPACE, "uint8"), cuda.get_current_stream()
    proposals = product.proposals(operands, CANDIDATES)
    rounds = [timed(proposals, product, operands, workspace.data.ptr, stream) for _ in range(ROUNDS)]
    of_cupy = [milliseconds(lambda: case.left @ case.right, stream) for _ in range(ROUNDS)]
    of_proposals = {place: float(np.median([times[place] for times in rounds])) for place in rounds[0]}
    return of_proposals, float(np.median(of_cupy))


def products(n_tokens: int) -> None:
    """Print a table of TFLOP/s for each model."""
    print(f"\ncuBLASLt {version()}, {CANDIDATES} proposals")
    for model, widths in WIDTHS.items():
        print(f"\n| {model}, {n_tokens:,} tokens, TFLOP/s | M × K × N | first | best | its place | CuPy |")
        print("|-|-|-|-|-|-|")
        for case in cases(n_tokens, *widths):
            (m, k), n = case.left.shape, case.right.shape[1]
            of_proposals, of_cupy = times(case)
            place = min(of_proposals, key=of_proposals.__getitem__)
            first, best, cupy = (
                f"{2e-9 * m * k * n / time:.0f}" if time else "none"
                for time in (of_proposals.get(0), of_proposals[place], of_cupy)
            )
            print(f"| {case.name} | {m} × {k} × {n} | {first} | {best} | {place + 1} | {cupy} |", flush=True)


def main() -> None:
    """Measure them alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=25_344)
    options = parser.parse_args()
    describe_machine()
    products(options.tokens)


if __name__ == "__main__":
    main()
