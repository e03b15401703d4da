"""Dry runs, without a GPU, of what needs one: the benchmark, and the tests of the GPU."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cuda_on_cpu
import pytest
from waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])}
STAGES = ["preflight", "numerics", "sameness", "ours", "classes", "contests", "decoding", "multi30k"]
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler (g++)"),
]


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


def command(results: Path, *stages: str, seconds: float = 3_000) -> list[str]:
    return ["benchmarks/gpu.py", *stages, "--device", "cpu", "--seconds", str(seconds), "--out", str(results)]


def rows_of(results: Path) -> list[dict[str, Any]]:
    return list(json.loads(results.read_text(encoding="utf-8"))["rows"])


def items_of(results: Path) -> list[tuple[str, ...]]:
    """What has a result, in order."""
    return [
        (row["stage"], row["what"], str(row.get("batch tokens")), str(row.get("peer")))
        for row in rows_of(results)
        if "what" in row and "begun" not in row
    ]


@needs_torch
def test_every_stage_of_the_benchmark_ends_well_in_order_and_none_is_run_twice(tmp_path: Path) -> None:
    results = tmp_path / "gpu.json"
    done = run_python(*command(results))
    content = json.loads(results.read_text(encoding="utf-8"))
    assert content["failed"] == {}
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(content["stages"]) == STAGES
    assert {stage for stage, ended in content["stages"].items() if ended == "well"} == {*STAGES} - {"multi30k"}
    assert content["stages"]["multi30k"].startswith("skipped")
    contests = [row["contestants"] for row in content["rows"] if "contestants" in row]
    assert [len(contestants) for contestants in contests] == [1] * 4 + [2] * 6  # ours alone, then pairs
    assert min(one["tokens/s"] for contestants in contests for one in contestants) > 0
    decoded = [row["same translations"] for row in content["rows"] if row["stage"] == "decoding" and "beam" in row]
    assert decoded == [1, 3]
    items = items_of(results)
    again = run_python(*command(results))
    assert again.returncode == 0, again.stdout
    assert items_of(results) == items


def test_a_stage_without_time_is_recorded_and_the_next_one_too(tmp_path: Path) -> None:
    results = tmp_path / "gpu.json"
    done = run_python(*command(results, "sameness", "numerics", seconds=0.1))
    assert done.returncode == 1
    stages = json.loads(results.read_text(encoding="utf-8"))["stages"]
    assert list(stages) == ["sameness", "numerics"]
    assert all("its time was over" in ended for ended in stages.values())


def test_a_preflight_that_fails_ends_the_call(tmp_path: Path) -> None:
    results = tmp_path / "gpu.json"
    done = run_python(*command(results, "preflight", "numerics", seconds=0.1))
    assert done.returncode == 1
    assert "must work before anything else is measured" in done.stdout
    assert list(json.loads(results.read_text(encoding="utf-8"))["stages"]) == ["preflight"]


def child_of(process: subprocess.Popen[bytes]) -> int:
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()[0])


@pytest.mark.parametrize("killed", ["runner", "stage"])
def test_what_is_killed_goes_on_with_what_has_no_result(tmp_path: Path, killed: str) -> None:
    results = tmp_path / "gpu.json"
    process = subprocess.Popen([sys.executable, *command(results, "ours")], cwd=ROOT, env=ENVIRONMENT)
    wait_until(lambda: results.exists() and len(items_of(results)) >= 1)
    stage = child_of(process)
    os.kill(process.pid if killed == "runner" else stage, signal.SIGKILL)
    if killed == "runner":
        process.wait()
        wait_until(lambda: not Path(f"/proc/{stage}").exists())
    first = items_of(results)
    if killed == "runner":
        assert run_python(*command(results, "ours")).returncode == 0
    else:
        assert process.wait() == 0
    items = items_of(results)
    assert items[: len(first)] == first
    assert len(items) == len(set(items)) > len(first)
    assert json.loads(results.read_text(encoding="utf-8"))["stages"] == {"ours": "well"}


def test_the_tests_that_need_a_gpu_pass_on_its_stand_in() -> None:
    """But for products of the base model's size, which are work for a GPU."""
    done = run_python(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "gpu_stand_in",
        "-m",
        "gpu",
        "tests/gpu",
        "tests/autograd/cuda",
        "--deselect",
        "tests/gpu/test_gpu_products.py::test_products_of_the_model",
    )
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]
