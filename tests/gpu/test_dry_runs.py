"""Dry runs, without a GPU, of the benchmark and the tests of the GPU: on the stand-ins, and in a bare environment."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import cuda_on_cpu
import pytest
from waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
STAGES = ["preflight", "numerics", "sameness", "ours", "classes", "contests", "decoding", "multi30k"]
PRESENT = (  # on a machine for experiments, with CuPy and PyTorch
    "numpy", "mpi4py", "sentencepiece", "sacrebleu", "safetensors", "rich", "threadpoolctl", "requests", "pytest",
    "hypothesis", "platformdirs", "psutil",
)  # fmt: skip
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
needs_compiler = pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler (g++)")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "gpu.json"


def run(*command: Path | str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=cwd, env=others | environment, capture_output=True, text=True, check=False)


def benchmark(
    results: Path, *stages: str, seconds: float = 3_000, python: Path | str = sys.executable
) -> list[Path | str]:
    arguments = "--device", "cpu", "--seconds", str(seconds), "--out", results
    return [python, ROOT / "benchmarks" / "gpu.py", *stages, *arguments]


def items_of(results: Path) -> list[tuple[str, ...]]:
    """What has a result, in order."""
    return [
        (row["stage"], row["what"], str(row.get("batch tokens")), str(row.get("peer")))
        for row in json.loads(results.read_text(encoding="utf-8"))["rows"]
        if "what" in row and "begun" not in row
    ]


# On the stand-ins.


@pytest.mark.slow
@needs_compiler
@needs_torch
def test_every_stage_of_the_benchmark_ends_well_in_order_and_none_is_run_twice(results: Path) -> None:
    done = run(*benchmark(results))
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
    again = run(*benchmark(results))
    assert again.returncode == 0, again.stdout
    assert items_of(results) == items


@pytest.mark.slow
@needs_compiler
def test_a_stage_without_time_is_recorded_and_the_next_one_too_unless_the_preflight_fails(results: Path) -> None:
    assert run(*benchmark(results, "sameness", "numerics", seconds=0.1)).returncode == 1
    stages = json.loads(results.read_text(encoding="utf-8"))["stages"]
    assert list(stages) == ["sameness", "numerics"]
    assert all("its time was over" in ended for ended in stages.values())
    results.unlink()
    done = run(*benchmark(results, "preflight", "numerics", seconds=0.1))
    assert done.returncode == 1
    assert "must work before anything else is measured" in done.stdout
    assert list(json.loads(results.read_text(encoding="utf-8"))["stages"]) == ["preflight"]


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("killed", ["runner", "stage"])
def test_what_is_killed_goes_on_with_what_has_no_result(results: Path, killed: str) -> None:
    process = subprocess.Popen(benchmark(results, "ours"))
    wait_until(lambda: results.exists() and len(items_of(results)) >= 1)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8")
    stage = int(children.split()[0])
    os.kill(process.pid if killed == "runner" else stage, signal.SIGKILL)
    if killed == "runner":
        process.wait()
        wait_until(lambda: not Path(f"/proc/{stage}").exists())
    first = items_of(results)
    if killed == "runner":
        assert run(*benchmark(results, "ours")).returncode == 0
    else:
        assert process.wait() == 0
    items = items_of(results)
    assert items[: len(first)] == first
    assert len(items) == len(set(items)) > len(first)
    assert json.loads(results.read_text(encoding="utf-8"))["stages"] == {"ours": "well"}


@pytest.mark.slow
@needs_compiler
def test_the_tests_that_need_a_gpu_pass_on_its_stand_in() -> None:
    """But for products of the base model's size, which are work for a GPU."""
    options = (
        "-q -p no:cacheprovider -p gpu_stand_in -m gpu --deselect tests/gpu/test_gpu.py::test_products_of_the_model"
    )
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    done = run(sys.executable, "-m", "pytest", *options.split(), "tests/gpu", "tests/autograd/cuda", PYTHONPATH=paths)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]


# In a checkout that is not installed, on a machine that lacks packages.


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


def test_the_benchmark_starts_from_any_directory(python: Path, tmp_path: Path) -> None:
    done = run(python, ROOT / "benchmarks" / "gpu.py", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "all if none is named" in done.stdout


def test_a_stage_names_the_package_that_it_lacks(python: Path, results: Path) -> None:
    done = run(*benchmark(results, "contests", python=python), cwd=results.parent)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    failed = json.loads(results.read_text(encoding="utf-8"))["failed"]
    assert failed == {"contests, all of it": "torch is not installed: pip install torch"}


@pytest.mark.slow
def test_the_preflight_stops_without_bfloat16_and_names_its_package(python: Path, results: Path) -> None:
    done = run(*benchmark(results, "preflight", "numerics", python=python), cwd=results.parent)
    assert done.returncode == 1
    content = json.loads(results.read_text(encoding="utf-8"))
    assert list(content["stages"]) == ["preflight"]
    assert all("pip install ml_dtypes" in error for error in content["failed"].values())


def test_all_stages_can_be_imported(python: Path) -> None:
    names = "gpu, gpu_ours, gpu_peers, minitransformer.training.run"
    done = run(python, "-c", f"import {names}", cwd=ROOT / "benchmarks")
    assert done.returncode == 0, done.stderr


def test_the_tests_that_need_a_gpu_are_collected(python: Path) -> None:
    done = run(python, "-m", "pytest", "-m", "gpu", "--collect-only", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    assert "tests/gpu/test_gpu.py::test_ten_updates_equal_numpy[kernels]" in done.stdout
    assert "error" not in done.stdout.splitlines()[-1]
