"""The stand-in for CuPy against CuPy itself, where it is installed: names, and arguments that have names.

CuPy can be imported without a GPU.  It is imported in another process, because tests put the stand-in in its place.
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
def test_cupy_has_every_name_of_its_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cupy", "cupy.cuda.nccl"):  # so that what is there now comes back
        monkeypatch.setitem(sys.modules, name, None)
    names = {*names_in(fake_cuda.stand_in_for_cupy()), *WITHOUT_STAND_IN}
    assert {
        "copyto",
        "ndarray.get",
        "cuda.Stream.begin_capture",
        "cuda.runtime.eventQuery",
        "lib.stride_tricks.as_strided",
    } <= names
    asked = json.dumps([sorted(names), ARGUMENTS])
    done = subprocess.run([sys.executable, "-c", LOOK_UP], input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
