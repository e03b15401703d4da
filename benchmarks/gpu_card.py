"""The card that is measured, or, where there is none, its stand-ins of the tests: the same code on smaller work."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import math
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gpu_results import Results, Row, hash_of_code

from autograd.array import DeviceError, count_gpus, namespace_of_device, to_device
from autograd.kernels.cuda import cases, register_all
from autograd.precision import rounded
from minitransformer import ModelConfig, presets

register_all()
TESTS = Path(__file__).resolve().parent.parent / "tests"
PACKAGES = ("numpy", "cupy-cuda13x", "cupy-cuda12x", "ml_dtypes", "torch", "triton", "nvidia-cuda-nvrtc", "mpi4py")
LOST = 3  # status of a stage that cannot use the card any more
PR_SET_PDEATHSIG = 1  # of Linux's prctl
WARM_UP = 2  # runs that are not counted: something is compiled, or allocated
Name = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Sizes:
    """How much work the stages do."""

    models: dict[str, ModelConfig]
    tokens: tuple[int, ...]  # of a side of an update, at most
    numerics: cases.CaseSizes
    elements: int  # of the large arrays that are copied
    product: int  # rows and columns of the large product
    repeats: int  # of what is timed
    updates: int  # of a unit of work of a contestant
    rounds: int  # of contests
    sentences: tuple[int, ...]  # that are translated at once
    steps: int  # of decoding


FULL = Sizes(
    models={"base": presets.base(37_000), "big": presets.big(37_000)}, tokens=(25_000, 3_168),
    numerics=cases.FULL, elements=2**29, product=8_192, repeats=10, updates=9, rounds=7,
    sentences=(1, 32, 96), steps=30,
)  # fmt: skip
SMALLEST = Sizes(
    models={"base": ModelConfig(61, n_layers=1, d_model=128, d_ff=32, n_heads=2, d_k=16, d_v=16)}, tokens=(48, 32),
    numerics=cases.CaseSizes(lengths=(1, 17), vocabularies=(61, 64), wave=256), elements=1_000, product=16, repeats=1,
    updates=2, rounds=1, sentences=(1, 3), steps=29,
)  # fmt: skip


@dataclass
class Card:
    """The device on which the stages run: ``name`` as PyTorch calls it; to us both are "cuda"."""

    name: Name
    results: Results | None = None
    stage: str = ""
    models: tuple[str, ...] = ()
    """These only, if there are any."""
    ends: float = math.inf
    """When the time is over, as ``time.time`` has it."""
    multi30k: Path | None = None
    """Multi30k as ``minitransformer-prepare`` wrote it."""
    n_left: int = 0
    """Items that were not begun, because too little time was left."""

    def open(self) -> None:
        """Install stand-ins for CuPy, the driver and cuBLASLt if there is no GPU.  Call it first."""
        if self.name == "cpu":
            sys.path[:0] = [str(TESTS / "support")]
            importlib.import_module("gpu_stand_in").install()

    @property
    def sizes(self) -> Sizes:
        sizes = FULL if self.name == "cuda" else SMALLEST
        return dataclasses.replace(
            sizes,
            models={name: config for name, config in sizes.models.items() if name in (self.models or sizes.models)},
        )

    def attempt(self, what: str, work: Callable[[], Row], *, seconds: float = 0, **facts: Any) -> bool:
        """Record what ``work`` returns, or the error that it raises; return whether it raised none.

        What has a result is not run again.

        Args:
            seconds: the least time in which it can end; if less is left, it is not begun.
            facts: what tells this item from others of the stage.
        """
        assert self.results is not None
        item = {"stage": self.stage, "what": what, **facts}
        if (row := self.results.result_of(item)) is not None:
            print(f"has a result: {item}", flush=True)
            return "error" not in row
        if time.time() + seconds > self.ends:
            self.n_left += 1
            print(f"too little time is left: {item}", flush=True)
            return False
        if not self.results.begin(item):
            self.results.end(item, {"error": "begun twice without a result: it crashes, hangs, or takes too long"})
            return False
        outcome = _outcome_of(work)
        self.results.end(item, outcome)
        if "error" in outcome and not self._still_works():
            sys.exit(LOST)
        return "error" not in outcome

    def _still_works(self) -> bool:
        """Return False after an illegal access to memory: everything else in this process would fail, too."""
        try:
            synchronize()
        except Exception:
            return False
        return True

    def milliseconds(self, work: Callable[[], Any]) -> float:
        """Median time on the card of one run."""
        cuda = namespace_of_device("cuda").cuda
        times, stream = [], cuda.get_current_stream()
        for _ in range(WARM_UP + self.sizes.repeats):
            start, end = cuda.Event(), cuda.Event()
            start.record(stream)
            work()
            end.record(stream)
            end.synchronize()
            times.append(cuda.get_elapsed_time(start, end))
        return float(np.median(times[WARM_UP:]))


def default_name() -> Name:
    """The GPU, if there is one."""
    try:
        return "cuda" if count_gpus("cuda") else "cpu"
    except DeviceError:
        return "cpu"


def describe(device: Name, commit: str) -> Row:
    """Return what figures need beside them: device, card, driver, commit, and a hash of the code."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    card, driver = "CPU", None
    if device == "cuda":
        asked = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True)
        card, driver = asked.stdout.splitlines()[0].split(", ")
    return {"device": device, "card": card, "driver": driver, "commit": commit, "code": hash_of_code(), **versions()}


def versions() -> dict[str, str | None]:
    """Return the versions of what is installed of ``PACKAGES``."""
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def die_with_parent() -> None:
    """Let Linux kill this process when its parent ends, however it ends: nothing shall compute beside the next call."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _outcome_of(work: Callable[[], Row]) -> Row:
    try:
        return work()
    except Exception as error:  # whatever it is: the next one may go better
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:1_000]}


def synchronize() -> None:
    """Wait for the card."""
    namespace_of_device("cuda").cuda.get_current_stream().synchronize()


def draw(*shape: int, dtype: str = "bfloat16") -> Any:
    """Normal random numbers on the card, the same ones again every 2²⁰."""
    some = np.random.default_rng(1).standard_normal(min(2**20, int(np.prod(shape))), np.float32)
    xp = namespace_of_device("cuda")
    values = to_device(some, "cuda")[xp.arange(int(np.prod(shape))) % len(some)].reshape(shape)
    return rounded(values) if dtype == "bfloat16" else values.astype(dtype)
