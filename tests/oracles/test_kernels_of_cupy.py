"""CuPy's own elementwise kernels, compiled by NVRTC without a GPU: every ufunc that the stand-in for CuPy offers.

CuPy compiles a kernel when it is first called, and asks the device for its architecture.  So the source is taken from
the functions with which CuPy generates it, which need no device.  Reductions, indexing, sorts and matrix products are
not covered.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_cuda
import pytest

from autograd.kernels.cuda.library import paths_of

IS_INSTALLED = importlib.util.find_spec("cupy") is not None and any(paths_of("nvrtc"))
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


@pytest.mark.slow
@pytest.mark.skipif(not IS_INSTALLED, reason='CuPy is not installed: pip install -e ".[oracles]"')
def test_every_ufunc_that_we_use_compiles_for_the_dtypes_that_we_use(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cupy", "cupy.cuda.nccl"):  # so that what is there now comes back
        monkeypatch.setitem(sys.modules, name, None)
    stand_in: Any = fake_cuda.stand_in_for_cupy()
    errors = compiled([*(name for name in vars(stand_in) if name.islower()), *OPERATORS], "90")
    assert {"exp", "log", "maximum", "sqrt", "tanh", "where", "elementwise_copy", *OPERATORS} <= errors.keys()
    assert [(name, of) for name, by_dtype in errors.items() for of, error in by_dtype.items() if error] == []
    for name, by_dtype in errors.items():
        needed = {"int64", "uint64"} if name in OF_INTEGERS else {"float32", "float64"}
        needed |= {"bfloat16"} if name in WITH_BFLOAT16 else set()
        assert needed <= by_dtype.keys(), name


@pytest.mark.skipif(not IS_INSTALLED, reason='CuPy is not installed: pip install -e ".[oracles]"')
def test_a_source_that_does_not_compile_is_found() -> None:
    assert "error" in compiled(["add"], "not an architecture")["add"]["float32"]
