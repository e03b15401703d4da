"""Count the translations that change if a search on a GPU rounds numbers, simulated on a CPU.

    python benchmarks/weights.py RUN SOURCE REFERENCE

TF32 rounds the factors of products.  In 16 bits the weights and the result of each operation are rounded, as are keys
and values; logits are float32.  Not simulated: other orders of addition, and in bfloat16 the attention weights of the
encoder, which its kernel rounds.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from autograd.blas import product
from minitransformer import Transformer, Translator
from minitransformer.inference.bleu import bleu
from minitransformer.inference.search import SearchConfig


def as_tf32(x: Any) -> Any:
    """Round float32 numbers to 10 bits of fraction, to nearest, ties to even."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFFE000)).view(np.float32)


def translations(run: Path, lines: list[str], numbers: str) -> list[str]:
    """Translate lines with float32, "TF32", "float16" or "bfloat16"."""
    translator = Translator.load(run)
    if numbers != "float32":  # without packed weights, which C multiplies in float32
        translator.models = [Transformer.load(run, dtype=numbers.replace("TF32", "float32"))]
    multiply = (lambda x, y: product(as_tf32(x), as_tf32(y))) if numbers == "TF32" else product
    modules = ("autograd.ops.linear", "autograd.kernels.cpu.linear")  # of the projection, and of the layers
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(patch(f"{module}.product", multiply))
        return [best.text for (best,) in translator.n_best(lines, SearchConfig(), n_threads=1)]


def main() -> None:
    """Print a row for each kind of numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("run", "source", "reference"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    lines, references = (path.read_text(encoding="utf-8").splitlines() for path in (options.source, options.reference))
    exact = translations(options.run, lines, "float32")
    for numbers in ("float32", "TF32", "float16", "bfloat16"):
        found = exact if numbers == "float32" else translations(options.run, lines, numbers)
        n_changed = sum(ours != theirs for ours, theirs in zip(found, exact, strict=True))
        print(f"{numbers}: {n_changed} of {len(lines)} changed, {bleu(found, [references]).detail}", flush=True)


if __name__ == "__main__":
    main()
