"""How fast are a model's own matrix products: by cuBLASLt's first guess, by the best of its proposals, by CuPy?

Everything in bfloat16, gradients of weights in float32.  A product's matrices may be in the card's cache from the run
before, as they often are in training too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gpu_card import Card, draw

from autograd.array import namespace_of_device
from autograd.kernels.cuda.algorithms import CANDIDATES, timed
from autograd.kernels.cuda.cublaslt import WORKSPACE, Epilogue, Operands, Problem, Product, alignment, version
from autograd.kernels.cuda.products import matrix_of
from minitransformer import ModelConfig

ROUNDS = 3
EPILOGUE_OF: dict[str, Epilogue] = {"hidden": "relu_bias", "output": "bias"}


class Case(NamedTuple):
    """A product of the model; the bias is None where it has none."""

    name: str
    left: Any
    right: Any
    out: Any
    epilogue: Epilogue
    bias: Any


def cases(n_tokens: int, config: ModelConfig) -> Iterator[Case]:
    """Forward, and backward to x and to the weight, of every kind of linear map; one after the other."""
    xp, d_model, d_ff = namespace_of_device("cuda"), config.d_model, config.d_ff
    for name, (d_in, d_out) in {
        "attention": (d_model, config.n_heads * config.d_k), "hidden": (d_model, d_ff), "output": (d_ff, d_model),
        "vocabulary": (d_model, config.vocabulary_size),
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


def times(case: Case, card: Card) -> tuple[dict[int, float], float | None]:
    """Milliseconds, medians of rounds, of every proposal, and of CuPy's own product, which writes bfloat16."""
    cuda = namespace_of_device("cuda").cuda
    operands = Operands(*(0 if x is None else x.data.ptr for x in (case.left, case.right, case.out, case.bias)))
    matrices = matrix_of(case.left), matrix_of(case.right), matrix_of(case.out)
    product = Product(Problem(*matrices, case.epilogue, False, alignment(operands.bias)), cuda.Device().id)
    workspace, stream = namespace_of_device("cuda").empty(WORKSPACE, "uint8"), cuda.get_current_stream()
    proposals = product.proposals(operands, CANDIDATES)
    rounds = [timed(proposals, product, operands, workspace.data.ptr, stream) for _ in range(ROUNDS)]
    of_proposals = {rank: float(np.median([times[rank] for times in rounds])) for rank in rounds[0]}
    try:
        of_cupy = card.milliseconds(lambda: case.left @ case.right)
    except TypeError:  # the stand-in for CuPy has none of bfloat16
        return of_proposals, None
    return of_proposals, of_cupy


def products(card: Card, model: str) -> dict[str, Any]:
    """Print a table of TFLOP/s; returns the first guesses and the best, and all of them together by the clock."""
    config, n_tokens = card.sizes.models[model], card.sizes.tokens[0]
    print(f"\n| {model}, {n_tokens:,} tokens, TFLOP/s, cuBLASLt {version()}, {CANDIDATES} proposals | M × K × N | first"
          " | best | its rank | CuPy |\n|-|-|-|-|-|-|")  # fmt: skip
    facts, seconds = {}, {"first": 0.0, "best": 0.0}
    for case in cases(n_tokens, config):
        (m, k), n = case.left.shape, case.right.shape[1]
        of_proposals, of_cupy = times(case, card)
        rank = min(of_proposals, key=of_proposals.__getitem__)
        first, best, cupy = (
            2e-9 * m * k * n / ms if ms else None for ms in (of_proposals.get(0), of_proposals[rank], of_cupy)
        )
        print(f"| {case.name} | {m} × {k} × {n} | {_shown(first)} | {_shown(best)} | {rank + 1} | {_shown(cupy)} |")
        facts[case.name] = {"first": first, "best": best, "rank": rank + 1, "CuPy": cupy}
        seconds["first"] += of_proposals.get(0, of_proposals[rank])
        seconds["best"] += of_proposals[rank]
    return {"tokens": n_tokens, "tflops": facts, "ms of one each": seconds}


def _shown(tflops: float | None) -> str:
    return "none" if tflops is None else f"{tflops:.0f}"
