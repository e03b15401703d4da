"""The benchmark and the tests for GPUs start in a checkout that is not installed, on a machine that lacks packages."""

import json
import os
import re
import subprocess
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRESENT = (  # on a machine for experiments, with CuPy and PyTorch
    "numpy", "mpi4py", "sentencepiece", "sacrebleu", "safetensors", "rich", "threadpoolctl", "requests", "pytest",
    "hypothesis", "platformdirs", "psutil",
)  # fmt: skip


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a new environment with these packages and what they require, and nothing else."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, symlinks=True)
    (site,) = directory.glob("lib/python*/site-packages")
    for name in required(PRESENT):
        found = distribution(name)
        for entry in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / entry).exists():
                (site / entry).symlink_to(Path(str(found.locate_file(entry))))
    return directory / "bin" / "python"


def required(names: tuple[str, ...]) -> set[str]:
    """Return the installed distributions of these names, and those that they require."""
    found, left = set[str](), [*names]
    while left:
        name = left.pop()
        try:
            requirements = distribution(name).requires or []
        except PackageNotFoundError:  # of another system or version of Python
            continue
        if name not in found:
            found.add(name)
            left += [re.split(r"[^\w.-]", line)[0] for line in requirements if "extra" not in line]
    return found


def run_in(cwd: Path, *command: Path | str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_the_benchmark_starts_from_any_directory(python: Path, tmp_path: Path) -> None:
    done = run_in(tmp_path, python, ROOT / "benchmarks" / "gpu.py", "--help")
    assert done.returncode == 0, done.stderr
    assert "all if none is named" in done.stdout


def test_a_stage_names_the_package_that_it_lacks(python: Path, tmp_path: Path) -> None:
    arguments = ("contests", "--device", "cpu", "--out", str(tmp_path / "gpu.json"))
    done = run_in(tmp_path, python, ROOT / "benchmarks" / "gpu.py", *arguments)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    failed = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))["failed"]
    assert failed == {"contests, all of it": "torch is not installed: pip install torch"}


@pytest.mark.slow
def test_the_preflight_stops_without_bfloat16_and_names_its_package(python: Path, tmp_path: Path) -> None:
    arguments = ("preflight", "numerics", "--device", "cpu", "--out", str(tmp_path / "gpu.json"))
    done = run_in(tmp_path, python, ROOT / "benchmarks" / "gpu.py", *arguments)
    assert done.returncode == 1
    content = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert list(content["stages"]) == ["preflight"]
    assert all("pip install ml_dtypes" in error for error in content["failed"].values())


def test_all_stages_can_be_imported(python: Path) -> None:
    names = "gpu, gpu_ours, gpu_peers, minitransformer.training.run"
    done = run_in(ROOT / "benchmarks", python, "-c", f"import {names}")
    assert done.returncode == 0, done.stderr


def test_the_tests_that_need_a_gpu_are_collected(python: Path) -> None:
    done = run_in(ROOT, python, "-m", "pytest", "-m", "gpu", "--collect-only", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    assert "tests/gpu/test_gpu.py::test_ten_updates_equal_numpy[kernels]" in done.stdout
    assert "error" not in done.stdout.splitlines()[-1]
