"""The card that is measured, or, where there is none, its stand-ins of the tests: the same code on smaller work."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from autograd.array import DeviceError, count_gpus, namespace_of_device, to_device
from autograd.kernels.cuda import cases, register_all
from autograd.precision import rounded
from minitransformer import ModelConfig, presets

register_all()
TESTS = Path(__file__).resolve().parent.parent / "tests"
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


FULL = Sizes(
    models={"base": presets.base(37_000), "big": presets.big(37_000)}, tokens=(25_000, 3_168),
    numerics=cases.FULL, elements=2**29, product=8_192, repeats=10, updates=9, rounds=7,
)  # fmt: skip
SMALLEST = Sizes(
    models={"base": ModelConfig(61, n_layers=1, d_model=128, d_ff=32, n_heads=2, d_k=16, d_v=16)}, tokens=(48, 32),
    numerics=cases.CaseSizes(lengths=(1, 17), vocabularies=(61, 64), wave=256), elements=1_000, product=16, repeats=1,
    updates=2, rounds=1,
)  # fmt: skip


@dataclass(frozen=True)
class Card:
    """Where the stages run: ``name`` is the device as PyTorch calls it; to us both are "cuda"."""

    name: Name
    results: Path
    models: tuple[str, ...] = ()
    """These only, if there are any."""
    ends: float = math.inf
    """When the time is over, as ``time.time`` has it."""

    def open(self) -> None:
        """To be called first: without a GPU stand-ins take the place of CuPy, the driver and cuBLASLt."""
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

    def record(self, **facts: Any) -> None:
        """Append a line to the results and print it."""
        line = json.dumps(facts, ensure_ascii=False, default=str)
        with self.results.open("a", encoding="utf-8") as file:
            print(line, file=file)
        print(line, flush=True)

    def attempt(self, what: str, work: Callable[[], dict[str, Any]], **facts: Any) -> bool:
        """Record what ``work`` returns, or the error that it raises; return whether it raised none."""
        try:
            self.record(what=what, **facts, **work())
        except Exception as error:  # whatever it is: the next one may go better
            self.record(what=what, **facts, error=f"{type(error).__name__}: {error}"[:1_000])
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


def synchronize() -> None:
    """Wait for the card."""
    namespace_of_device("cuda").cuda.get_current_stream().synchronize()


def draw(*shape: int, dtype: str = "bfloat16") -> Any:
    """Normal random numbers on the card, the same ones again every 2²⁰."""
    some = np.random.default_rng(1).standard_normal(min(2**20, int(np.prod(shape))), np.float32)
    xp = namespace_of_device("cuda")
    values = to_device(some, "cuda")[xp.arange(int(np.prod(shape))) % len(some)].reshape(shape)
    return rounded(values) if dtype == "bfloat16" else values.astype(dtype)
