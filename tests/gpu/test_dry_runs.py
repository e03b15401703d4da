"""Dry runs, without a GPU, of what needs one: the benchmark, and the tests of the GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cuda_on_cpu
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler (g++)"),
]


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_every_stage_of_the_benchmark_ends_well(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    done = run_python("benchmarks/gpu.py", "--device", "cpu", "--seconds", "3000", "--out", str(results))
    rows: list[dict[str, Any]] = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert [row for row in rows if "error" in row] == []
    assert done.returncode == 0, done.stdout + done.stderr
    ended = {row["stage"]: row["ended"] for row in rows if "ended" in row}
    assert ended == dict.fromkeys(
        ["questions", "ceilings", "numerics", "sameness", "parity", "timing", "classes", "kernels"], "well"
    )
    speeds = [row["tokens/s"] for row in rows if "tokens/s" in row]
    assert len(speeds) == 5 + 6
    assert min(speeds) > 0


def test_a_stage_that_fails_is_recorded_and_the_next_one_runs(tmp_path: Path) -> None:
    """There is no model of that name in a dry run, and no time for anything."""
    results = tmp_path / "results.jsonl"
    done = run_python("benchmarks/gpu.py", "sameness", "numerics", "--models", "big", "--seconds", "0.1",
                      "--device", "cpu", "--out", str(results))  # fmt: skip
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert done.returncode == 1
    assert [row["stage"] for row in rows if "ended" in row] == ["sameness", "numerics"]
    assert all("stopped" in row["ended"] or "no time" in row["ended"] for row in rows if "ended" in row)


def test_the_tests_that_need_a_gpu_pass_on_its_stand_in() -> None:
    """But for products of the base model's size, which are work for a GPU."""
    done = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "gpu_stand_in", "-m", "gpu", "tests/gpu",
                      "tests/autograd/cuda", "--deselect", "tests/gpu/test_gpu_products.py::test_products_of_the_model",
                      )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]
