"""The GPU that is measured; without one, the tests' stand-ins for a GPU run the same code on smaller work."""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import math
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gpu_results import LARGE, SMALL, Results, Row
from workload import IdPairs, Workload

from autograd.array import DeviceError, count_gpus, namespace_of_device, to_device
from autograd.kernels.cuda import register_all
from autograd.precision import rounded
from minitransformer import ModelConfig, presets

ROOT = Path(__file__).resolve().parents[1]
CODE = ("autograd", "benchmarks", "cli", "minitransformer", "parallel", "recipes")
PACKAGES = ("numpy", "cupy-cuda13x", "cupy-cuda12x", "ml_dtypes", "torch", "triton", "ctranslate2", "nvidia-cuda-nvrtc")
LOST = 3  # status of a stage that cannot use the card any more
PR_SET_PDEATHSIG = 1  # of Linux's prctl
N_BATCHES = 3
Name = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Sizes:
    """The amount of work of the stages."""

    models: dict[str, ModelConfig]
    tokens: tuple[int, int]  # on one side of a large and of a small batch
    updates: int  # in a contestant's unit of work
    rounds: int  # of contests
    sentences: tuple[int, ...]  # numbers of sentences translated at once
    steps: int  # of decoding


FULL = Sizes(
    {name: getattr(presets, name)(37_000) for name in ("base", "big")}, (LARGE, SMALL), 9, 7, (1, 32, 96, 256), 30
)
SMALLEST = Sizes(
    {"base": ModelConfig(61, n_layers=1, d_model=128, d_ff=32, n_heads=2, d_k=16, d_v=16)}, (48, 32), 2, 1, (1, 3), 29
)


@dataclass
class Card:
    """The device on which the stages run; ``name`` is for PyTorch, our code uses "cuda" for both."""

    name: Name
    results: Results | None = None
    stage: str = ""
    ends: float = math.inf
    """The moment when the time is over, in seconds of ``time.time``."""
    multi30k: Path | None = None
    """Multi30k as ``minitransformer-prepare`` wrote it."""
    n_left: int = 0
    """Items that were not begun, because too little time was left."""

    def open(self, n_gpus: int = 1) -> None:
        """Install stand-ins for CuPy, the driver and cuBLASLt if there is no GPU.  Call it first.

        ``n_gpus`` is the number of GPUs that the stand-in has.

        On a GPU the first model registers the kernels that passed their check; on the stand-ins all are registered.
        """
        if self.name == "cpu":
            sys.path[:0] = [str(ROOT / "tests" / "support")]
            importlib.import_module("gpu_stand_in").install()
            importlib.import_module("fake_cuda").N_GPUS = n_gpus
            register_all()

    @property
    def sizes(self) -> Sizes:
        return FULL if self.name == "cuda" else SMALLEST

    def batches(self, model: str, tokens: int) -> tuple[ModelConfig, list[IdPairs]]:
        """Return a model and the batches on which all contestants train it."""
        config = self.sizes.models[model]
        return config, Workload(config, tokens, N_BATCHES, zipf=True).batches()

    def record(self, **facts: Any) -> None:
        """Add a row of this stage."""
        assert self.results is not None
        self.results.add(stage=self.stage, **facts)

    def attempt(self, what: str, work: Callable[[], Row], *, seconds: float = 0, **facts: Any) -> bool:
        """Record what ``work`` returns, or the error that it raises; return whether it raised none.

        An item that has a result is not run again.

        Args:
            seconds: the time that must be left; with less, the item is not begun.
            facts: names and values that distinguish this item from others of the stage.
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
        try:
            outcome = work()
        except Exception as error:  # of any kind: the next item may succeed
            traceback.print_exc()
            outcome = {"error": f"{type(error).__name__}: {error}"[:1_000]}
        self.results.end(item, outcome)
        if "error" in outcome:
            try:
                synchronize()
            except Exception:  # after an illegal access to memory everything else in this process would fail, too
                sys.exit(LOST)
        return "error" not in outcome

    def attempt_each(self, items: Iterable[tuple[str, Row, Callable[[], Row]]], *, seconds: float = 0) -> bool:
        """Attempt items, each with its facts and its work; return whether none raised an error."""
        return all([self.attempt(what, work, seconds=seconds, **facts) for what, facts, work in items])


def default_name() -> Name:
    """Return "cuda" if there is a GPU, else "cpu"."""
    try:
        return "cuda" if count_gpus("cuda") else "cpu"
    except DeviceError:
        return "cpu"


def describe(device: Name, commit: str) -> Row:
    """Return the facts to record with figures: device, card, driver, commit, and a hash of the code."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    card, driver = "CPU", None
    if device == "cuda":
        asked = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True)
        card, driver = asked.stdout.splitlines()[0].split(", ")
    versions = {found.name: found.version for found in distributions() if found.name in PACKAGES}
    return {"device": device, "card": card, "driver": driver, "commit": commit, "code": hash_of_code(), **versions}


def hash_of_code() -> str:
    """Return a hash of all files that may change a result: a copied tree may lack a commit, or differ from it."""
    total = hashlib.blake2b(digest_size=8)
    files = (path for folder in CODE for path in (ROOT / folder).rglob("*"))
    for path in sorted(path for path in files if path.suffix in (".py", ".cu", ".cuh", ".toml")):
        total.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def die_with_parent() -> None:
    """Let Linux kill this process when its parent ends in any way, so that it does not compute beside the next call."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def synchronize() -> None:
    """Wait until the GPU has finished all work."""
    namespace_of_device("cuda").cuda.get_current_stream().synchronize()


def draw(*shape: int) -> Any:
    """Return normal random numbers on the card, in bfloat16."""
    return rounded(to_device(np.random.default_rng(1).standard_normal(shape, np.float32), "cuda"))
