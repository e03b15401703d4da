"""The benchmark and the tests for GPUs start in a checkout that is not installed, on a machine that lacks packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("autograd", "minitransformer", "parallel", "cli")  # as if none of an installation could be imported
ABSENT = ("pooch", "sacremoses", "cupy", "torch")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which modules outside of the checkout are hidden."""
    for name in (*PACKAGES, *ABSENT):
        text = f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')\n"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    return os.environ | {"PYTHONPATH": str(tmp_path)}


def run_python(environment: dict[str, str], cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_the_benchmark_starts_from_any_directory(environment: dict[str, str], tmp_path: Path) -> None:
    done = run_python(environment, tmp_path, str(ROOT / "benchmarks" / "gpu.py"), "--help")
    assert done.returncode == 0, done.stderr
    assert "all if none is named" in done.stdout


def test_a_stage_names_the_package_that_it_lacks(environment: dict[str, str], tmp_path: Path) -> None:
    arguments = ("contests", "--device", "cpu", "--out", str(tmp_path / "gpu.json"))
    done = run_python(environment, tmp_path, str(ROOT / "benchmarks" / "gpu.py"), *arguments)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    failed = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))["failed"]
    assert failed == {"contests, all of it": "torch is not installed: pip install torch"}


def test_the_tests_that_need_a_gpu_are_collected(environment: dict[str, str]) -> None:
    done = run_python(environment, ROOT, "-m", "pytest", "-m", "gpu", "--collect-only", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    assert "tests/gpu/test_gpu.py::test_ten_updates_equal_numpy[kernels]" in done.stdout
    assert "error" not in done.stdout.splitlines()[-1]
