"""What do int8 weights cost in BLEU, and what do they gain in time?

    python benchmarks/int8_weights.py RUN SOURCE REFERENCE [--beam 4]

RUN: a run, or any directory with a model and its tokenizer.  SOURCE and REFERENCE: text, a sentence per line.  Both
kinds of weights translate all lines at once, then the first ten one at a time.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import get_args

from minitransformer.inference.bleu import bleu
from minitransformer.inference.translator import Translator, WeightsDtype


def main() -> None:
    """Translate with both kinds of weights, and print BLEU and times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--beam", type=int, default=4)
    options = parser.parse_args()
    lines, references = (path.read_text(encoding="utf-8").splitlines() for path in (options.source, options.reference))
    found: list[list[str]] = []
    for weights in get_args(WeightsDtype):
        translator = Translator.load(options.run, weights=weights)
        start = time.perf_counter()
        found.append(translator.translate(lines, beam=options.beam))
        middle = time.perf_counter()
        for line in lines[:10]:
            translator.translate([line], beam=options.beam)
        end = time.perf_counter()
        alone = (end - middle) / len(lines[:10])
        score = bleu(found[-1], [references])
        print(f"{weights}: BLEU {score.value:.2f}; all {middle - start:.2f} s; one at a time {alone * 1e3:.0f} ms each")
    n_same = sum(one == other for one, other in zip(*found, strict=True))
    print(f"{n_same} of {len(lines)} translations are the same")


if __name__ == "__main__":
    main()
