"""Training on one GPU: is it right, how fast is it beside PyTorch, and where does the time go?

    python benchmarks/gpu.py                              all stages, as far as ten minutes go
    python benchmarks/gpu.py                              the same again: goes on where it was cut
    python benchmarks/gpu.py numerics timing              these stages
    python benchmarks/gpu.py timing --models big          of this model only
    python benchmarks/gpu.py --device cpu                 all stages without a GPU: a dry run, no figures

Every stage runs in a process of its own, so that the failure of one, or its time running out, leaves the others alone.
All results are in one JSON file, complete after every item; what has a result for the same code and the same card is
not run again.  A table comes last.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

ROOT = str(Path(__file__).resolve().parents[1])
sys.path.insert(0, ROOT)  # a checkout need not be installed
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))

from gpu_card import FULL, Card, default_name, describe, die_with_parent  # noqa: E402
from gpu_results import Results  # noqa: E402
from gpu_summary import shown  # noqa: E402

from minitransformer.system.provenance import code_version  # noqa: E402


class Stage(NamedTuple):
    """A module with a function ``run(card)``, and the seconds that it may take in one call."""

    module: str
    seconds: float
    about: str


STAGES = {
    "numerics": Stage("gpu_numerics", 150, "every kernel, forward and backward, against float64"),
    "sameness": Stage("gpu_sameness", 90, "the same bits: in two runs, from a graph, and as NumPy draws them"),
    "parity": Stage("gpu_parity", 90, "loss and gradients of PyTorch on the same weights and sentences"),
    "timing": Stage("gpu_timing", 480, "updates in turns with PyTorch"),
    "decoding": Stage("gpu_decoding", 240, "beam search, in turns with PyTorch's"),
    "multi30k": Stage("gpu_multi30k", 420, "the recipe of Multi30k, to its BLEU"),
    "ceilings": Stage("gpu_ceilings", 90, "versions, copies, a large product, the models' own products"),
    "classes": Stage("gpu_classes", 150, "the time of an update by class of kernel"),
    "kernels": Stage("gpu_kernels", 90, "every kernel beside its reference"),
    "questions": Stage("gpu_questions", 120, "what must be known about the machine before anything is tuned"),
}

PACKAGE_OF = {"cupy": "cupy-cuda13x[ctk]"}  # of a module with another name
SLOWER_ON_CPU = 10  # a stage of a dry run may take its time
WELL, LEFT, FAILED = 0, 4, 5  # statuses of a stage that came to its end
ENDED = {WELL: "well", FAILED: "with failures", LEFT: "before its last item: too little time was left"}


def main() -> int:
    """Run stages; 1 if one of them failed or did not come to its end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="stage", help=f"{', '.join(STAGES)}; all if none is named")
    parser.add_argument("--device", choices=["cuda", "cpu"], default=None, help="the GPU if there is one")
    parser.add_argument("--models", nargs="+", choices=FULL.models, default=[], help="all if none is named")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="the results, of earlier calls too")
    parser.add_argument("--seconds", type=float, default=570, help="for all stages of this call together")
    parser.add_argument("--multi30k", type=Path, help="Multi30k as minitransformer-prepare wrote it")
    parser.add_argument("--commit", default=code_version(), help="to be recorded, where the tree has no .git")
    parser.add_argument("--retry", action="store_true", help="run again what failed")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)  # be this stage,
    parser.add_argument("--machine", type=json.loads, help=argparse.SUPPRESS)  # of a call that described it so
    options = parser.parse_args()
    unknown = set(options.stages) - set(STAGES)
    if unknown:
        parser.error(f"there is no stage {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    device = options.device or default_name()
    results = Results(options.out, options.machine or describe(device, options.commit))
    card = Card(
        device, results, options.stage or "", tuple(options.models), time.time() + options.seconds, options.multi30k
    )
    if options.stage:
        return be(options.stage, card)
    if options.retry:
        results.forget_failures()
    ended_well = [run_apart(name, card) for name in options.stages or STAGES]
    print(shown(results.rows(), results.machine))
    return 0 if all(ended_well) else 1


def run_apart(name: str, card: Card) -> bool:
    """Run a stage in processes of its own, unless it came to its end before; return whether it ended well.

    A process that crashes is followed by another, which goes on with the next item.
    """
    assert card.results is not None
    stage = {"stage": name, "models": list(card.models)}
    print(f"\n## {name}: {STAGES[name].about}", flush=True)
    before = card.results.result_of({**stage, "complete": True})
    if before is not None:
        print(f"ended {before['ended']} before")
        return bool(before["ended"] == "well")
    if name == "multi30k" and card.multi30k is None:
        card.results.add(**stage, ended="skipped: no directory was given with --multi30k", complete=False)
        return True
    start = time.time()
    limit = STAGES[name].seconds * (1 if card.name == "cuda" else SLOWER_ON_CPU)
    ends = min(start + limit, card.ends)
    status = to_its_end(name, card, ends)
    if status is None and ends == card.ends:
        card.results.forget_begun()
    ended = "stopped: its time was over" if status is None else ENDED.get(status, f"with status {status}")
    seconds = round(time.time() - start, 1)
    card.results.add(**stage, ended=ended, complete=status in (WELL, FAILED), seconds=seconds)
    return status == WELL


def to_its_end(name: str, card: Card, ends: float) -> int | None:
    """Run processes of a stage until one comes to its end, or nothing more is recorded; return the last status."""
    assert card.results is not None
    while time.time() < ends:
        n_rows = len(card.results.rows())
        status = status_of(name, card, ends)
        if status is None or status in ENDED or len(card.results.rows()) == n_rows:
            return status
    return None


def status_of(name: str, card: Card, ends: float) -> int | None:
    """Run one process of a stage; end it, and all that it has started, when its time is over, and return None then."""
    assert card.results is not None
    command = [sys.executable, __file__, "--stage", name, "--device", card.name, "--out", str(card.results.path)]
    command += ["--seconds", str(ends - time.time()), "--machine", json.dumps(card.results.machine)]
    command += ["--models", *card.models] if card.models else []
    command += ["--multi30k", str(card.multi30k)] if card.multi30k else []
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait(max(0, ends - time.time()))
    except subprocess.TimeoutExpired:
        return None
    finally:
        end_all(process)


def end_all(process: subprocess.Popen[bytes]) -> None:
    """End a stage, and what it has started and left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def be(name: str, card: Card) -> int:
    """Run a stage in this process."""
    die_with_parent()
    try:
        card.open()
        is_good = importlib.import_module(STAGES[name].module).run(card)
    except ModuleNotFoundError as error:
        assert card.results is not None
        card.results.add(stage=name, what="all of it", error=missing(error.name))
        return FAILED
    except Exception as error:  # outside of its items
        traceback.print_exc()
        assert card.results is not None
        card.results.add(stage=name, what="all of it", error=f"{type(error).__name__}: {error}"[:1_000])
        return FAILED
    return LEFT if card.n_left else WELL if is_good else FAILED


def missing(module: str | None) -> str:
    """Return which package a stage lacks, and how to install it."""
    package = str(module).partition(".")[0]
    return f"{package} is not installed: pip install {PACKAGE_OF.get(package, package)}"


if __name__ == "__main__":
    sys.exit(main())
