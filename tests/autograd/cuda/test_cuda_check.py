"""CUDA kernels are registered if they pass their check in a child process, here on the stand-ins for a GPU."""

import functools
import importlib.util
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import cuda_kernels
import cuda_on_cpu
import numpy as np
import pytest

from autograd import ops, to_device
from autograd.kernel_registry import at_first_use, kernels_for, register_kernels
from autograd.kernels.compiler import CompilerError
from autograd.kernels.cuda import check_child, cublaslt, nvrtc, register_all
from autograd.kernels.cuda.check import CheckError, check_results, register_checked
from autograd.kernels.cuda.driver import STORAGE
from autograd.precision import rounded, rounds_to_tf32, upcast

ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests" / "support"
pytestmark = pytest.mark.skipif(cuda_on_cpu.COMPILER is None, reason="there is no C++ compiler (g++)")


def child(**faults: str) -> tuple[str, ...]:
    return sys.executable, str(SUPPORT / "checking_child.py"), json.dumps(faults)


SCRIPT = """
import json, os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a program that nohup starts ignores it
for name, what in json.loads(sys.argv[1]).items():
    if name in sys.argv[3:]:
        continue
    print(json.dumps([name]), flush=True)
    if what == "exits":
        sys.exit(3)
    if what.startswith("signal "):
        os.kill(os.getpid(), int(what[7:]))
    print(json.dumps([name, None if what == "right" else what, {}]), flush=True)
"""


def scripted(more: dict[str, str] | None = None, **endings: str) -> tuple[str, ...]:
    """Return a child that starts in milliseconds, and reports or ends as it is told, each kernel in float32."""
    checks = {f"{name} in float32": ending for name, ending in endings.items()} | (more or {})
    return sys.executable, "-I", "-S", "-c", SCRIPT, json.dumps(checks)


NO_CHILD = (sys.executable, "-c", "raise ImportError('no module')")


@pytest.fixture(autouse=True)
def stand_in(products_on_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the GPU, its libraries and the cache directory."""
    monkeypatch.setattr(nvrtc, "version", lambda: "stand-in")
    monkeypatch.setattr(nvrtc, "compile_source", lambda name, architecture: nvrtc.Program(b"stand-in", ""))


def start_parent(faults: dict[str, str], choice: str = "compiled") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SUPPORT / "checking_parent.py"), json.dumps(faults), choice],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def registered_by(parent: subprocess.Popen[str]) -> tuple[list[str], str]:
    """Return the kernels that a parent has registered, and its log."""
    out, log = parent.communicate(timeout=600)
    assert parent.returncode == 0, log
    return json.loads(out.splitlines()[-1]), log


@pytest.mark.slow
def test_every_kernel_passes_its_check_and_is_registered() -> None:
    names, log = registered_by(start_parent({}))
    assert set(names) == cuda_kernels.KERNELS.keys()
    assert log == f"INFO {len(names)} of {len(names)} CUDA kernels passed their check\n"


@pytest.mark.slow
def test_a_fault_is_that_of_its_kernel_and_the_others_are_checked() -> None:
    planted_and_found = {
        "attention": ("writes before", "WrongResultError: it writes before an array of "),
        "dropout": ("is wrong", "WrongResultError: relative error 0.001 in float32, result 0, arguments 1 × 63"),
        "embedding": ("leaves NaN", "WrongResultError: an element of a result is not finite, or not written"),
        "layer_norm": ("", None),
        "linear": ("writes behind", "WrongResultError: it writes behind an array of "),
        "linear_cross_entropy": ("makes CUDA unusable", "RuntimeError: illegal address"),
        "linear_relu": ("raises", "RuntimeError: out of luck"),
        "linear_transposed": ("has a wrong gradient", "WrongResultError: relative error 2 in float32"),
    }
    results = check_results(child(**{name: planted for name, (planted, _) in planted_and_found.items()}))
    assert list(results.dtypes(right=True)) == list(planted_and_found)
    assert results.right() == ["layer_norm"]
    for name, (_, found) in planted_and_found.items():
        fault = results.faults[f"{name} in float32"] or ""
        assert fault.startswith(found or "")
        assert "\n" not in fault
    assert results.errors["layer_norm in float32"]["float32"] < 1e-6
    assert check_results(NO_CHILD) == results  # results are kept, also those of kernels with a fault


@pytest.mark.slow
def test_a_kernel_that_hangs_or_has_no_memory_is_checked_again_at_the_next_start() -> None:
    results = check_results(child(dropout="hangs in float32", embedding="has no memory in float16", layer_norm=""))
    assert results.right() == ["layer_norm"]
    assert str(results.faults["dropout in float32"]).endswith("ended after the 120 s that a kernel may take")
    assert str(results.faults["embedding in float16"]).endswith("ended with status 1: MemoryError: out of memory")
    assert results.path is None


@pytest.mark.slow
def test_a_kernel_that_is_wrong_in_one_dtype_is_used_in_the_others() -> None:
    faults = {
        "dropout": "leaves NaN in float16",
        "layer_norm": "makes CUDA unusable in bfloat16",
        "linear": "leaves NaN in tf32",
    }
    names, log = registered_by(start_parent(faults))
    assert names == list(faults)
    assert "WARNING CUDA kernel dropout in float16, linear in tf32: WrongResultError: an element of a result is" in log
    assert "WARNING CUDA kernel layer_norm in bfloat16: RuntimeError: illegal address; it is not used there" in log
    results = check_results(NO_CHILD)
    assert results.dtypes(right=False) == {"dropout": ["float16"], "layer_norm": ["bfloat16"], "linear": ["tf32"]}
    assert results.dtypes(right=True) == {
        "dropout": ["float32", "bfloat16"],
        "layer_norm": ["float32", "float16"],
        "linear": ["float32", "bfloat16", "float16"],
    }


@pytest.mark.slow
def test_an_old_gpu_has_no_bfloat16_and_a_line_says_so() -> None:
    names, log = registered_by(start_parent({"GPU": "75", "add": "", "dropout": ""}))
    assert names == ["add", "dropout"]
    (line,) = (line for line in log.splitlines() if "only" in line)
    expected = "the GPU has compute capability 7.5, and bfloat16 needs 8.0"
    assert line == f"INFO CUDA kernels compute in float32 and float16 only: {expected}"
    results = check_results(child(GPU="75", add="", dropout=""))
    assert results.dtypes(right=True) == {"add": ["float16"], "dropout": ["float32", "float16"]}


def test_results_stay_until_a_changed_source_or_a_corrupt_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = check_results(scripted(dropout="right"))
    assert check_results(NO_CHILD) == results
    results.path.write_bytes(results.path.read_bytes()[:-1] + b"?")
    assert check_results(scripted(dropout="wrong")).right() == []
    assert check_results(NO_CHILD).right() == []
    for name in ("dropout.cu", "common.cuh", "check_child.py"):
        sources = tmp_path / name
        shutil.copytree(nvrtc.SOURCES, sources)
        with monkeypatch.context() as patched:
            patched.setattr(nvrtc, "SOURCES", sources)
            assert check_results(NO_CHILD).right() == []
            with (sources / name).open("a") as file:
                file.write("\n")
            with pytest.raises(CheckError):
                check_results(NO_CHILD)


CRASHES = [f"signal {number:d}" for number in (signal.SIGABRT, signal.SIGSEGV)]


@pytest.mark.parametrize("ending", [*CRASHES, "exits", *(f"signal {n}" for n in (1, 9, 15))])
def test_a_kernel_is_checked_again_if_its_child_was_ended_but_not_if_it_crashed(ending: str, tmp_path: Path) -> None:
    results = check_results(scripted(dropout="right", embedding=ending, linear="wrong", top="right"))
    assert results.right() == ["dropout", "top"]
    assert results.faults["linear in float32"] == "wrong"
    ended = "with status 3" if ending == "exits" else f"by {ending} ("
    assert f"the child process that checks kernels ended {ended}" in str(results.faults["embedding in float32"])
    if ending in CRASHES:
        assert "to check again, remove " in results.remedy
        assert check_results(NO_CHILD) == results
    else:
        assert "the next start checks again" in results.remedy
        assert list(tmp_path.glob("**/cuda-check-*")) == []
        assert check_results(scripted(dropout="right", embedding="right")).right() == ["dropout", "embedding"]


def test_all_sources_are_compiled_side_by_side_before_a_child_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, side_by_side, run = list[str](), threading.Barrier(2), subprocess.run
    calls = itertools.count()

    def compile_source(name: str, architecture: str) -> nvrtc.Program:
        if next(calls) < 2:
            side_by_side.wait(timeout=60)
        compiled.append(name)
        if name == "adam.cu":
            raise CompilerError("refused: the check of its kernels reports it")
        return nvrtc.Program(b"code", "")

    def start(*arguments: Any, **options: Any) -> Any:
        assert sorted(compiled) == sorted(path.name for path in nvrtc.SOURCES.glob("*.cu"))
        return run(*arguments, **options)

    monkeypatch.setattr(nvrtc, "compile_source", compile_source)
    monkeypatch.setattr(subprocess, "run", start)
    assert check_results(scripted(dropout="right")).right() == ["dropout"]


@pytest.mark.parametrize("of", ["driver", "CuPy", "NVRTC", "cuBLASLt", "GPU"])
def test_results_are_those_of_one_gpu_driver_and_library(of: str, monkeypatch: pytest.MonkeyPatch, cupy: Any) -> None:
    check_results(scripted(dropout="right"))
    check_results(NO_CHILD)
    other = {
        "driver": (cupy.cuda.runtime, "driverGetVersion", lambda: 1),
        "CuPy": (cupy, "__version__", "1"),
        "NVRTC": (nvrtc, "version", lambda: "1"),
        "cuBLASLt": (cublaslt, "version", lambda: 1),
        "GPU": (cupy.cuda.runtime, "getDeviceProperties", lambda number: {"name": b"another"}),
    }
    monkeypatch.setattr(*other[of])
    with pytest.raises(CheckError):
        check_results(NO_CHILD)


@pytest.mark.slow
def test_of_two_processes_one_checks_and_the_other_waits_for_its_results() -> None:
    """A kernel with a fault is not registered, and named in a warning."""
    faults = {"dropout": "is slow", "embedding": "leaves NaN"}
    parents = [start_parent(faults) for _ in range(2)]
    names, logs = zip(*map(registered_by, parents), strict=True)
    assert names == (["dropout"], ["dropout"])
    assert sum(log.count("1 of 2 CUDA kernels passed their check") for log in logs) == 1
    for log in logs:
        (warning,) = (line for line in log.splitlines() if line.startswith("WARNING"))
        checks = "embedding in float32, embedding in bfloat16, embedding in float16"
        assert warning.startswith(f"WARNING CUDA kernel {checks}: WrongResultError: an element of a result is not")
        assert "it is not used there, which is slower: update the driver and CuPy, or report this" in warning


def test_on_a_file_system_without_locks_every_process_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: Any, how: int) -> None:
        raise OSError("no locks")

    monkeypatch.setattr("fcntl.flock", flock)
    assert check_results(scripted(dropout="right")).right() == ["dropout"]


def test_without_a_child_that_checks_nothing_is_registered_or_kept(logged: list[str], tmp_path: Path) -> None:
    register_checked(NO_CHILD)
    assert logged == [
        "warning: the CUDA kernels could not be checked: the child process that checks kernels ended with status 1:"
        " ImportError: no module; the references run instead, more slowly"
    ]
    assert kernels_for("cuda") == {}
    assert list(tmp_path.glob("**/cuda-check-*")) == []
    with pytest.raises(CheckError, match="No such file or directory"):
        check_results(("/nowhere",))


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_the_child_finds_its_module_from_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "autograd.py").write_text("raise ImportError('of the current directory')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(CheckError, match="ended with status 1: .*CuPy cannot be imported"):
        check_results()


def test_without_cublaslt_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def library() -> Any:
        raise cublaslt.ProductError("cuBLASLt is not installed")

    monkeypatch.setattr(cublaslt, "library", library)
    with pytest.raises(CheckError, match="cuBLASLt is not installed"):
        check_results(scripted(dropout="right"))


def test_kernels_that_an_import_has_registered_are_checked_all_the_same(logged: list[str]) -> None:
    with cuda_kernels.registered():
        register_checked(scripted(dropout="right", embedding="is wrong"))
        assert list(kernels_for("cuda")) == ["dropout"]
    assert "CUDA kernel embedding in float32: is wrong; it is not used there" in logged[-1]


def test_products_in_tf32_have_its_error_and_a_greater_one_is_found(
    launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_child, "LENGTHS", (17,))
    monkeypatch.setattr(check_child, "WAVE", 256)
    memory, multiply = Mock(), ops.linear.kernels[0].run
    for dtype, least, most in (("float32", 0, 1e-6), ("tf32", 1e-4, 7e-4)):
        assert least < check_child.largest_errors("linear", dtype, memory)[dtype] < most

    @ops.linear.kernel("cuda")
    def multiply_with_fewer_bits(x: Any, weight: Any, bias: Any) -> Any:
        if rounds_to_tf32():
            x, weight = (upcast(rounded(factor)) for factor in (x, weight))
        return multiply(x, weight, bias)

    assert check_child.largest_errors("linear", "float32", memory)["float32"] < 1e-6
    with pytest.raises(check_child.WrongResultError, match=r"relative error 0.002\d* in tf32, result 0, arguments 17"):
        check_child.largest_errors("linear", "tf32", memory)


def test_in_a_dtype_in_which_a_kernel_is_wrong_another_kernel_or_the_reference_computes(
    launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, ones = np.ones((3, 16), np.float32), to_device(np.ones(16, np.float32), "cuda")

    def kernels(dtype: str) -> list[str]:
        del launched[:]
        ops.layer_norm.of_arrays(to_device(rounded(x, dtype), "cuda"), ones, ones)
        return [name.split("_")[3] for name in launched]

    assert kernels("float16") == [STORAGE["float16"]]
    register_checked(scripted({"layer_norm in float16": "wrong"}, layer_norm="right"))
    assert kernels("float16") == kernels("float32") == [STORAGE["float32"]]
    assert kernels("bfloat16") == [STORAGE["bfloat16"]]
    monkeypatch.setattr(nvrtc, "version", lambda: "another")
    register_checked(scripted({"layer_norm in bfloat16": "right"}, layer_norm="is wrong"))
    assert kernels("float32") == []
    assert ops.layer_norm.may_run("cuda", "bfloat16")
    assert not ops.layer_norm.may_run("cuda", "bfloat16", "float32")


def test_without_a_check_all_kernels_are_registered_by_one_call(logged: list[str]) -> None:
    with cuda_kernels.registered():
        at_first_use("cuda", functools.partial(register_checked, NO_CHILD))
        register_all()
        register_kernels("cuda")
        assert kernels_for("cuda").keys() == cuda_kernels.KERNELS.keys()
    assert logged == []


def test_references_are_chosen_without_a_check(tmp_path: Path) -> None:
    names, log = registered_by(start_parent({"dropout": ""}, "reference"))
    assert (names, log) == ([], "")
    assert list(tmp_path.glob("**/cuda-check*")) == []
