"""The stand-in for CuPy against CuPy itself, where it is installed: names, named arguments, and elementwise kernels.

CuPy can be imported without a GPU.  It is imported in another process, because tests put the stand-in in its place.
It compiles a kernel when it is first called, and asks the device for its architecture.  So the source is taken from
the functions with which CuPy generates it, which need no device.  Reductions, indexing, sorts and matrix products are
not covered.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import fake_cuda
import pytest

from autograd.kernels.cuda.library import paths_of

ROOT = Path(__file__).parents[2]
IS_INSTALLED = importlib.util.find_spec("cupy") is not None
NOT_OF_CUPY = {  # imports and helpers of the stand-in
    "annotations", "Any", "Callable", "Iterator", "SimpleNamespace",
    "cuda.Event.let_pass", "cuda.Memory.used", "cuda.MemoryPool.take_back",
}  # fmt: skip
WITHOUT_STAND_IN = {"cuda.function.Module.get_function", "cuda.function.Module.load"}
ARGUMENTS = {
    "copyto": ["where"],
    "cuda.Graph.launch": ["stream"],
    "cuda.MemoryPool": ["allocator"],
    "cuda.Stream": ["non_blocking"],
    "cuda.using_allocator": ["allocator"],
    "ndarray.get": ["stream", "out", "blocking"],
    "ndarray.set": ["stream"],
}
LOOK_UP = """
import importlib, inspect, json, operator, sys, warnings
warnings.simplefilter("ignore")  # of a missing driver and a missing NCCL
names, arguments = json.load(sys.stdin)
cupy = importlib.import_module("cupy")

def has(name):
    try:
        return bool(operator.attrgetter(name)(cupy) is not None or name == "newaxis")
    except AttributeError:
        return False

def signature(name):
    found = operator.attrgetter(name)(cupy)
    try:
        return str(inspect.signature(found))
    except ValueError:  # compiled: the first line of its description
        return found.__doc__.strip().splitlines()[0]

lacking = [name for name in names if not has(name)]
lacking += [f"{name}({x}=)" for name, of_name in arguments.items() for x in of_name if x not in signature(name)]
lacking += [] if hasattr(importlib.import_module("cupy.cuda.nccl"), "available") else ["cuda.nccl.available"]
print(json.dumps(lacking))
"""


def names_in(found: Any, prefix: str = "") -> Iterator[str]:
    """Public names of a module, of a class, and of what belongs to them."""
    for name, value in vars(found).items():
        path = f"{prefix}{name}"
        if name.startswith("_") or path in NOT_OF_CUPY or isinstance(value, ModuleType):
            continue
        if isinstance(value, SimpleNamespace):
            yield from names_in(value, f"{path}.")
        else:
            yield path
            if inspect.isclass(value) and value.__module__ in ("cupy", "fake_cuda", "fake_streams"):
                yield from names_in(value, f"{path}.")


needs_cupy = pytest.mark.skipif(not IS_INSTALLED, reason='CuPy is not installed: pip install "cupy-cuda13x"')
needs_cupy_and_nvrtc = pytest.mark.skipif(
    not (IS_INSTALLED and any(paths_of("nvrtc"))), reason='CuPy is not installed: pip install -e ".[oracles]"'
)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("cupy", "cupy.cuda.nccl"):  # so that what is there now comes back
        monkeypatch.setitem(sys.modules, name, None)
    return fake_cuda.stand_in_for_cupy()


@needs_cupy
def test_the_extra_requires_the_nccl_that_cupy_wants() -> None:
    spec = importlib.util.find_spec("cupy")
    assert spec is not None
    (folder,) = spec.submodule_search_locations or ()
    wheel = json.loads((Path(folder) / ".data" / "_wheel.json").read_text(encoding="utf-8"))
    major = wheel["cuda"].partition(".")[0]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    required = [line.partition(";")[0] for line in extras[f"cuda{major}"]]
    assert f"nvidia-nccl-cu{major}>={wheel['nccl']['min_pypi_version']}" in required


@needs_cupy
def test_cupy_has_every_name_of_its_stand_in(stand_in: Any) -> None:
    names = {*names_in(stand_in), *WITHOUT_STAND_IN}
    assert {"copyto", "ndarray.get", "cuda.Stream.begin_capture", "cuda.runtime.eventQuery"} <= names
    assert "lib.stride_tricks.as_strided" in names
    asked = json.dumps([sorted(names), ARGUMENTS])
    done = subprocess.run([sys.executable, "-c", LOOK_UP], input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


PROGRAM = Path(__file__).parents[1] / "support" / "compiled_by_cupy.py"
OPERATORS = [
    "bitwise_and", "bitwise_or", "bitwise_xor", "equal", "floor_divide", "greater", "greater_equal", "invert",
    "left_shift", "less", "less_equal", "negative", "not_equal", "power", "remainder", "right_shift", "true_divide",
]  # fmt: skip
OF_INTEGERS = {"bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"}
WITH_BFLOAT16 = {"add", "elementwise_copy"}  # all that the stand-in allows with it, besides conversions


def compiled(names: list[str], architecture: str) -> dict[str, dict[str, str]]:
    """Return NVRTC's errors, "" for none, by ufunc and dtype, for those of the names that are ufuncs of CuPy."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), architecture, *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    errors: dict[str, dict[str, str]] = json.loads(done.stdout)
    return errors


@needs_cupy_and_nvrtc
def test_every_ufunc_that_we_use_compiles_for_the_dtypes_that_we_use(stand_in: Any) -> None:
    errors = compiled([*(name for name in vars(stand_in) if name.islower()), *OPERATORS], "90")
    assert {"exp", "log", "maximum", "sqrt", "tanh", "where", "elementwise_copy", *OPERATORS} <= errors.keys()
    assert [(name, of) for name, by_dtype in errors.items() for of, error in by_dtype.items() if error] == []
    for name, by_dtype in errors.items():
        needed = {"int64", "uint64"} if name in OF_INTEGERS else {"float32", "float64"}
        needed |= {"bfloat16"} if name in WITH_BFLOAT16 else set()
        assert needed <= by_dtype.keys(), name


@needs_cupy_and_nvrtc
def test_a_source_that_does_not_compile_is_found() -> None:
    assert "error" in compiled(["add"], "not an architecture")["add"]["float32"]
