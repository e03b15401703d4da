"""Contestants: processes that do the same work in turns.

Disturbances of the machine affect all contestants alike, so ratios of times are more reliable than times.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

from cli.processor import name_processor_to_openblas
from minitransformer.system.provenance import code_version
from minitransformer.system.threads import available_cores
from parallel.communicator import Communicator, SerialCommunicator

# Settings of an expert: malloc keeps freed memory for the next allocation, instead of returning it to the system.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "268435456",
}

FLAGS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve")  # printed with the figures

Work = Callable[[], int]  # does one unit of work and returns the tokens that count


@dataclass
class Contestant:
    """One or more processes that do units of work on request (``serve``); ``seconds`` has the time of each unit."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    n_processes: int = 1
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    peak_mb: float = 0

    def start(self) -> None:
        """Start the process and wait until it is ready, which includes its warm-up."""
        self.begin()
        self.wait_until_ready()

    def begin(self) -> None:
        """Start the process."""
        self._process = subprocess.Popen(
            [*self._mpirun, sys.executable, *self.command],
            env=os.environ | self.environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def wait_until_ready(self) -> None:
        """Wait until the process is ready.  Raises: RuntimeError if it has ended."""
        self._receive()

    @property
    def _mpirun(self) -> list[str]:
        launcher = [str(Path(sys.executable).with_name("mpirun")), "-n", str(self.n_processes)]
        return launcher if self.n_processes > 1 else []

    def run(self) -> None:
        """Let the process do one unit of work; note its time, tokens and peak memory."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        answer = self._receive()
        self.seconds.append(answer["seconds"])
        self.tokens, self.peak_mb = answer["tokens"], answer["peak_mb"]

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: the process ended with status {self._process.wait()}")
        return dict(json.loads(line))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def peak_mb() -> float:
    """Return the peak memory of this process in MB; that of getrusage would include the parent's peak."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def serve(
    work: Work, *, warm_up: int = 1, world: Communicator | None = None, memory: Callable[[], float] = peak_mb
) -> None:
    """Run as a contestant: do a unit of ``work`` for each line on stdin; rank 0 answers with a line of JSON.

    ``memory`` returns the peak memory in MB.
    """
    world = world or SerialCommunicator()
    for _ in range(warm_up):
        work()
    if world.rank == 0:
        print("{}", flush=True)
    while _is_asked_for(world):
        start = time.perf_counter()
        tokens = work()
        world.any(False)  # wait until all ranks have finished
        answer = {"seconds": time.perf_counter() - start, "tokens": tokens, "peak_mb": world.allreduce(memory())}
        if world.rank == 0:
            print(json.dumps(answer), flush=True)


def _is_asked_for(world: Communicator) -> bool:
    """Return whether another line has come; ranks wait without keeping a core busy, unlike in a barrier."""
    with world.waiting_for_rank_0():
        came = world.rank == 0 and bool(sys.stdin.readline())
    return world.any(came)


def compete(contestants: list[Contestant], rounds: int) -> None:
    """Run all contestants in each round, in reverse in every other round; name and drop peers that cannot start."""
    for contestant in list(contestants):
        try:
            contestant.start()
        except RuntimeError as error:
            if contestant is contestants[0]:
                raise
            print(f"left out: {error}")
            contestants.remove(contestant)
    for number in range(rounds):
        for contestant in contestants if number % 2 else reversed(contestants):
            contestant.run()
    for contestant in contestants:
        contestant.stop()


def report(title: str, contestants: Sequence[Contestant], **facts: Any) -> None:
    """Print a table, then a line of JSON for each row; ratios are to the first contestant."""
    first = contestants[0]
    columns = ["", "ms, median (least to greatest)", "tokens/s", "ours is … times as fast", "peak MB"]
    print(f"\n### {title}\n\n| {' | '.join(columns)} |\n{'|-' * len(columns)}|")
    for c in contestants:
        print(
            f"| {c.name} | {1e3 * c.median:.1f} ({1e3 * min(c.seconds):.1f} to {1e3 * max(c.seconds):.1f})"
            f" | {c.tokens / c.median:,.0f} | {c.median / first.median:.2f} | {c.peak_mb:,.0f} |"
        )
    print()
    for c in contestants:
        row = {"bench": title, "row": c.name, "median_s": c.median, "seconds": c.seconds, "tokens": c.tokens,
               "peak_mb": c.peak_mb, "ratio": c.median / first.median, **facts}  # fmt: skip
        print(json.dumps(row, ensure_ascii=False))
    sys.stdout.flush()


def force_avx2() -> None:
    """Let every contestant compute with AVX2 and without AVX-512, as if the processor had nothing better."""
    better = {"X86_V4"} | {name for name in __cpu_dispatch__ if name.startswith("AVX512")}
    os.environ |= {
        "NPY_DISABLE_CPU_FEATURES": " ".join(sorted(name for name in better if __cpu_features__.get(name))),
        "OPENBLAS_CORETYPE": "Haswell",
        "MINITRANSFORMER_CFLAGS": "-march=x86-64-v3",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "CT2_FORCE_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    }


def add_instruction_set(parser: argparse.ArgumentParser) -> None:
    """Add the option that forces AVX2."""
    parser.add_argument("--avx2", action="store_true", help="let all contestants do without AVX-512")


def describe_machine(*packages: str, avx2: bool = False) -> None:
    """Print processor, instruction sets, cores, versions and commit beside the figures; force AVX2 if requested."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    has = next((line.split(":")[1].split() for line in lines if line.startswith(("flags", "Features"))), [])
    flags = " ".join(flag for flag in FLAGS if flag in has) + (", but all are forced to AVX2" if avx2 else "")
    if avx2:
        force_avx2()
    name_processor_to_openblas(os.environ)  # as our commands do
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", *packages))
    cores = f"{available_cores()} cores; Python {platform.python_version()}, {versions}; {code_version()}"
    print(f"{model} ({flags}), {cores}")
