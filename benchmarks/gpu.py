"""Training on one GPU: is it correct, how fast is it compared with PyTorch, and which kernels take the time?

    python benchmarks/gpu.py                              all stages, within ten minutes
    python benchmarks/gpu.py                              the same again: continues where the time was over
    python benchmarks/gpu.py numerics contests            these stages
    python benchmarks/gpu.py --device cpu                 all stages without a GPU: a dry run, no figures

Every stage runs in a process of its own, so that its failure does not affect the others; only a failed preflight ends
the call.  All results are in one JSON file, which is complete after every item.  An item that has a result for the same
code and the same card is not run again.  A table is printed last.
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

from gpu_card import Card, default_name, describe, die_with_parent  # noqa: E402
from gpu_results import Results, table  # noqa: E402

from minitransformer.system.provenance import code_version  # noqa: E402


class Stage(NamedTuple):
    """A module with a function named like the stage, and the seconds that it may take in one call."""

    module: str
    seconds: float
    about: str


STAGES = {
    "preflight": Stage("gpu_ours", 60, "the compiler, a launch, bfloat16 arrays, a graph, epilogues of products"),
    "numerics": Stage("gpu_ours", 150, "the check of the kernels, forward and backward, against float64"),
    "sameness": Stage("gpu_ours", 90, "the same bits: in two runs, and from a graph"),
    "host": Stage("gpu_ours", 30, "the work of a core that prepares a batch; needs no GPU"),
    "ours": Stage("gpu_peers", 240, "our updates alone, with and without graphs"),
    "classes": Stage("gpu_ours", 100, "the time of an update by class of kernel"),
    "contests": Stage("gpu_peers", 560, "updates in turns with PyTorch, in pairs"),
    "decoding": Stage("gpu_peers", 200, "beam search, in turns with PyTorch's and CTranslate2's"),
    "ranks": Stage("gpu_ranks", 300, "several GPUs: the same bits, the time of updates and of sums"),
    "multi30k": Stage("gpu_peers", 300, "the recipe of Multi30k, to its BLEU"),
}
PACKAGE_OF = {"cupy": "cupy-cuda13x[ctk]"}  # packages whose modules have other names
SLOWER_ON_CPU = 10  # a stage of a dry run may take so many times as long
WELL, LEFT, FAILED = 0, 4, 5  # statuses of a stage that came to its end
ENDED = {WELL: "well", FAILED: "with failures", LEFT: "before its last item: too little time was left"}


def main() -> int:
    """Run the stages; return 1 if one of them failed or did not come to its end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="stage", help=f"{', '.join(STAGES)}; all if none is named")
    parser.add_argument("--device", choices=["cuda", "cpu"], default=None, help="the GPU if there is one")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="the results, of earlier calls too")
    parser.add_argument("--seconds", type=float, default=570, help="for all stages of this call together")
    parser.add_argument("--multi30k", type=Path, help="Multi30k as minitransformer-prepare wrote it")
    parser.add_argument("--commit", default=code_version(), help="to be recorded, where the tree has no .git")
    parser.add_argument("--retry", action="store_true", help="run again what failed")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)  # run as this stage
    parser.add_argument("--machine", type=json.loads, help=argparse.SUPPRESS)  # as the parent described it
    options = parser.parse_args()
    unknown = set(options.stages) - set(STAGES)
    if unknown:
        parser.error(f"there is no stage {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    device = options.device or default_name()
    results = Results(options.out, options.machine or describe(device, options.commit))
    card = Card(device, results, options.stage or "", time.time() + options.seconds, options.multi30k)
    if options.stage:
        return be(options.stage, card)
    if options.retry:
        results.forget_failures()
    ended_well = []
    for name in options.stages or STAGES:
        ended_well.append(run_apart(name, card, results))
        if name == "preflight" and not ended_well[-1]:
            print("stopped: what the preflight tries must work before anything else is measured")
            break
    print(table(results.rows(), results.machine))
    return 0 if all(ended_well) else 1


def run_apart(name: str, card: Card, results: Results) -> bool:
    """Run a stage in a process of its own, unless it came to its end before; return whether it ended well.

    If the process crashes, another one continues with the next item.
    """
    print(f"\n## {name}: {STAGES[name].about}", flush=True)
    before = results.result_of({"stage": name, "complete": True})
    if before is not None:
        print(f"ended {before['ended']} before")
        return bool(before["ended"] == "well")
    if name == "multi30k" and card.multi30k is None:
        results.add(stage=name, ended="skipped: no directory was given with --multi30k", complete=False)
        return True
    start = time.time()
    limit = STAGES[name].seconds * (1 if card.name == "cuda" else SLOWER_ON_CPU)
    ends = min(start + limit, card.ends)
    status, n_rows = None, -1
    while time.time() < ends and status not in ENDED and len(results.rows()) != n_rows:
        n_rows = len(results.rows())
        status = status_of(name, card, results, ends)
    if status is None and ends == card.ends:
        results.forget_begun()
    ended = "stopped: its time was over" if status is None else ENDED.get(status, f"with status {status}")
    seconds = round(time.time() - start, 1)
    results.add(stage=name, ended=ended, complete=status in (WELL, FAILED), seconds=seconds)
    return status == WELL


def status_of(name: str, card: Card, results: Results, ends: float) -> int | None:
    """Run one process of a stage and return its status; when its time is over, kill its group and return None."""
    command = [sys.executable, __file__, "--stage", name, "--device", card.name, "--out", str(results.path)]
    command += ["--seconds", str(ends - time.time()), "--machine", json.dumps(results.machine)]
    command += ["--multi30k", str(card.multi30k)] if card.multi30k else []
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait(max(0, ends - time.time()))
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def be(name: str, card: Card) -> int:
    """Run a stage in this process."""
    die_with_parent()
    try:
        card.open()
        is_good = getattr(importlib.import_module(STAGES[name].module), name)(card)
    except Exception as error:  # an error outside of the stage's items
        missing = error.name.partition(".")[0] if isinstance(error, ModuleNotFoundError) and error.name else None
        if missing is None:
            traceback.print_exc()
        lacks = f"{missing} is not installed: pip install {PACKAGE_OF.get(missing or '', missing)}"
        card.record(what="all of it", error=lacks if missing else f"{type(error).__name__}: {error}"[:1_000])
        return FAILED
    return LEFT if card.n_left else WELL if is_good else FAILED


if __name__ == "__main__":
    sys.exit(main())
