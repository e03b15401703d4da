"""What do rounded weights cost in BLEU, and what do they gain in time?

    python benchmarks/weights.py RUN SOURCE REFERENCE [--beam 4]

RUN: a run, or any directory with a model and its tokenizer.  SOURCE and REFERENCE: text, a sentence per line.  With
each kind of weights, all lines are translated at once, then the first ten one at a time.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import get_args

from autograd.packed_weight import PackedDtype
from minitransformer.inference.bleu import bleu
from minitransformer.inference.translator import Translator


def main() -> None:
    """Translate with all kinds of weights, and print BLEU and times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--beam", type=int, default=4)
    options = parser.parse_args()
    lines, references = (path.read_text(encoding="utf-8").splitlines() for path in (options.source, options.reference))
    found: list[list[str]] = []
    for weights in get_args(PackedDtype):
        translator = Translator.load(options.run, weights=weights)
        start = time.perf_counter()
        found.append(translator.translate(lines, beam=options.beam))
        middle = time.perf_counter()
        for line in lines[:10]:
            translator.translate([line], beam=options.beam)
        end = time.perf_counter()
        alone = (end - middle) / len(lines[:10])
        score = bleu(found[-1], [references])
        n_same = sum(one == other for one, other in zip(found[0], found[-1], strict=True))
        print(
            f"{weights}: BLEU {score.value:.2f}, {n_same} of {len(lines)} translations as in float32; all"
            f" {middle - start:.2f} s; one at a time {alone * 1e3:.0f} ms each"
        )


if __name__ == "__main__":
    main()
