"""How fast are the matrix products of a step of translation, which has few rows?

    python benchmarks/products.py [4 64 192 2000] [--rounds 30]

A row is a hypothesis: beam 4 makes 4 of a sentence.  On one core; the matrices are those of the base model, each time
another one, so that they come from memory as in a search.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
from contest import describe_machine
from threadpoolctl import threadpool_limits

from autograd import Tensor, no_tape, ops
from minitransformer.memory import keep_freed_memory

SHAPES = {"attention": (512, 512), "hidden": (512, 2048), "output": (2048, 512), "vocabulary": (512, 37_000)}
BYTES = 200_000_000  # of all matrices of a shape: more than any cache


def products() -> Iterator[tuple[str, tuple[int, int], Callable[[Tensor, np.ndarray], Tensor]]]:
    """What is measured, the shape of x's factor as it is stored, and the product."""
    for name, shape in SHAPES.items():
        yield name, shape, lambda x, weight: ops.linear(x, weight, None)
    d_model, n_words = SHAPES["vocabulary"]
    yield "vocabulary, a row a word", (n_words, d_model), ops.linear_transposed


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
    for name, shape, product in products():
        n_matrices = -(-BYTES // (4 * shape[0] * shape[1]))
        weights = itertools.cycle([random.standard_normal(shape, np.float32) for _ in range(n_matrices)])
        speeds = []
        for n_rows in options.rows:
            width = shape[1] if product is ops.linear_transposed else shape[0]
            x, seconds = Tensor(random.standard_normal((n_rows, width), np.float32)), []
            with threadpool_limits(1, user_api="blas"), no_tape():
                for _ in range(options.rounds):
                    weight = next(weights)
                    start = time.perf_counter()
                    product(x, weight)
                    seconds.append(time.perf_counter() - start)
            speeds.append(2e-9 * n_rows * shape[0] * shape[1] / statistics.median(seconds))
        print(f"| {name} | " + " | ".join(f"{speed:.0f}" for speed in speeds) + " |")


if __name__ == "__main__":
    main()
