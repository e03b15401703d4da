"""Training on one GPU: is it right, how fast is it beside PyTorch, and where does the time go?

    python benchmarks/gpu.py                              all stages, in less than ten minutes
    python benchmarks/gpu.py questions ceilings           these stages
    python benchmarks/gpu.py timing --models big          of this model only
    python benchmarks/gpu.py --device cpu                 all stages without a GPU: a dry run, no figures

Every stage runs in a process of its own, so that the failure of one, or its time running out, leaves the others alone.
Results are appended to a file as they come, a line of JSON each; a summary comes last.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from gpu_card import FULL, Card, default_name
from gpu_summary import summary

from minitransformer.system.provenance import code_version


class Stage(NamedTuple):
    """A module with a function ``run(card)``, and the seconds that it may take."""

    module: str
    seconds: float
    about: str


STAGES = {
    "questions": Stage("gpu_questions", 120, "what must be known about the machine before anything is tuned"),
    "ceilings": Stage("gpu_ceilings", 90, "versions, copies, a large product, the models' own products"),
    "numerics": Stage("gpu_numerics", 120, "every kernel, forward and backward, against float64"),
    "sameness": Stage("gpu_sameness", 60, "the same bits: in two runs, from a graph, and as NumPy draws them"),
    "parity": Stage("gpu_parity", 60, "loss and gradients of PyTorch on the same weights and sentences"),
    "timing": Stage("gpu_timing", 330, "updates in turns with PyTorch"),
    "classes": Stage("gpu_classes", 100, "the time of an update by class of kernel"),
    "kernels": Stage("gpu_kernels", 60, "every kernel beside its reference"),
}

SLOWER_ON_CPU = 10  # a stage of a dry run may take its time


def main() -> int:
    """Run stages; 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="stage", help=f"{', '.join(STAGES)}; all if none is named")
    parser.add_argument("--device", choices=["cuda", "cpu"], default=None, help="the GPU if there is one")
    parser.add_argument("--models", nargs="+", choices=FULL.models, default=[], help="all if none is named")
    parser.add_argument("--out", type=Path, default=Path("gpu.jsonl"), help="where results are appended")
    parser.add_argument("--seconds", type=float, default=570, help="for all stages together")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)  # be this stage
    options = parser.parse_args()
    device = options.device or default_name()
    card = Card(device, options.out, tuple(options.models), time.time() + options.seconds)
    if options.stage:
        return be(options.stage, card)
    unknown = set(options.stages) - set(STAGES)
    if unknown:
        parser.error(f"there is no stage {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    card.record(device=device, commit=code_version(), stages=options.stages or list(STAGES))
    ended_well = [run_apart(name, card) for name in options.stages or STAGES]
    print(summary(options.out))
    return 0 if all(ended_well) else 1


def run_apart(name: str, card: Card) -> bool:
    """Run a stage in a process of its own; end it, and all that it has started, when its time is over."""
    start = time.time()
    seconds = min(STAGES[name].seconds * (1 if card.name == "cuda" else SLOWER_ON_CPU), card.ends - start)
    print(f"\n## {name}: {STAGES[name].about}", flush=True)
    if seconds <= 0:
        card.record(stage=name, ended="not begun: no time is left", seconds=0)
        return False
    command = [sys.executable, __file__, "--stage", name, "--device", card.name, "--out", str(card.results)]
    command += ["--seconds", str(seconds), *(["--models", *card.models] if card.models else [])]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        status = process.wait(seconds)
        ended = "well" if status == 0 else f"with status {status}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        ended = f"stopped after {seconds:.0f} s"
    card.record(stage=name, ended=ended, seconds=round(time.time() - start, 1))
    return ended == "well"


def be(name: str, card: Card) -> int:
    """Run a stage in this process."""
    card.open()
    try:
        return 0 if importlib.import_module(STAGES[name].module).run(card) else 1
    except Exception as error:  # whatever it is, it is a result
        traceback.print_exc()
        card.record(what=name, error=f"{type(error).__name__}: {error}"[:1_000])
        return 1


if __name__ == "__main__":
    sys.exit(main())
