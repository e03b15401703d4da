"""How fast are the matrix products of a step of translation, which has few rows?

    python benchmarks/products.py [4 64 192 2000] [--rounds 30]

A row is a hypothesis; with beam 4 a sentence has 4.  One core multiplies by matrices of the base model's shapes, each
time another one, so that it is read from memory as in a search.  Each shape is measured as stored, then packed
(``pack_weight``).
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator

import numpy as np
from contest import describe_machine
from threadpoolctl import threadpool_limits

from autograd import Tensor, no_tape, ops
from autograd.array import Array
from autograd.malloc import keep_freed_memory
from autograd.ops.linear import pack_weight

SHAPES = {"attention": (512, 512), "hidden": (512, 2048), "output": (2048, 512), "vocabulary": (512, 37_000)}
BYTES = 200_000_000  # of all matrices of a shape: more than any cache


def matrices(random: np.random.Generator) -> Iterator[tuple[str, list[Array]]]:
    """Yield a name and the matrices (I, O) that are measured under it."""
    for name, shape in SHAPES.items():
        n_matrices = -(-BYTES // (4 * shape[0] * shape[1]))
        stored = [random.standard_normal(shape, np.float32) for _ in range(n_matrices)]
        if name == "vocabulary":
            yield f"{name}, a row a word", [np.asfortranarray(matrix) for matrix in stored]
        yield name, stored
        yield f"{name}, for few rows", [pack_weight(matrix) for matrix in stored]


def gigaflops(n_rows: int, weights: list[Array], random: np.random.Generator, rounds: int) -> float:
    """Return the median GFLOP/s of products of ``n_rows`` rows, each with the next matrix."""
    width, n_columns = weights[0].shape
    x, seconds = Tensor(random.standard_normal((n_rows, width), np.float32)), []
    with threadpool_limits(1, user_api="blas"), no_tape():
        for weight in itertools.islice(itertools.cycle(weights), rounds):
            start = time.perf_counter()
            ops.linear(x, weight, None)
            seconds.append(time.perf_counter() - start)
    return 2e-9 * n_rows * width * n_columns / statistics.median(seconds)


def main() -> None:
    """Measure, and print a table of GFLOP/s."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", type=int, default=[4, 64, 192, 2000])
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    keep_freed_memory()
    describe_machine()
    random = np.random.default_rng(1)
    print("\n| GFLOP/s | " + " | ".join(f"{n_rows} rows" for n_rows in options.rows) + " |")
    print("|-|" + "-|" * len(options.rows))
    for name, weights in matrices(random):
        speeds = [gigaflops(n_rows, weights, random, options.rounds) for n_rows in options.rows]
        print(f"| {name} | " + " | ".join(f"{speed:.0f}" for speed in speeds) + " |", flush=True)


if __name__ == "__main__":
    main()
