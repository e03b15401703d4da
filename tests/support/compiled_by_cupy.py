"""Compile ufuncs of CuPy by NVRTC, without a GPU; print the errors, by ufunc and dtype, as JSON.

    python compiled_by_cupy.py ARCHITECTURE NAME …

Names that are no ufuncs of CuPy are left out.
"""

import importlib
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

warnings.simplefilter("ignore")  # of a missing driver
cupy = importlib.import_module("cupy")
core, kernel = importlib.import_module("cupy._core.core"), importlib.import_module("cupy._core._kernel")
compiler = importlib.import_module("cupy.cuda.compiler")
nvrtc = importlib.import_module("cupy_backends.cuda.libs.nvrtc")

DTYPES = ("bool", "int32", "int64", "uint32", "uint64", "float32", "float64", "bfloat16")
HEADERS = [str(path) for entry in sys.path for path in Path(entry).glob("nvidia/*/include")]  # of nvidia-cuda-runtime
ARRAY, INDEXER = 1, 2  # kinds of arguments


def source_of(ufunc: Any, operation: Any) -> str:
    """Return what ``_get_ufunc_kernel`` in CuPy's _kernel.pyx generates for contiguous arrays of the exact dtypes."""
    inputs = [f"in{i}" for i in range(len(operation.in_types))]
    outputs = [f"out{i}" for i in range(len(operation.out_types))]
    dtypes = [np.dtype(dtype).type for dtype in (*operation.in_types, *operation.out_types)]
    body = [f"const {x}_type {x}(_raw_{x}[_ind.get()]);" for x in inputs]
    body += [f"{y}_type {y};" for y in outputs]
    body += [f"{operation.routine};", *(f"_raw_{y}[_ind.get()] = {y};" for y in outputs)]
    types = tuple((f"{x}_type", dtype) for x, dtype in zip([*inputs, *outputs], dtypes, strict=True))
    arguments = [kernel._ArgInfo(ARRAY, cupy.ndarray, dtype, 1, True, True) for dtype in dtypes]
    arguments.append(kernel._ArgInfo(INDEXER, object, None, 1, True, True))
    source = kernel._get_elementwise_kernel_code(
        tuple(arguments),
        kernel._TypeMap(types),
        ufunc._params,
        "\n".join(body),
        f"cupy_{ufunc.name}",
        ufunc._preamble,
        ufunc._loop_prep,
    )
    return re.sub(r"^\s*(const )?T &.*$", "", source, flags=re.MULTILINE)  # references of an ElementwiseKernel


def as_cupy_compiles(source: str) -> tuple[str, list[str]]:
    """Return the source with CuPy's headers, and its options."""
    found: list[tuple[str, list[str]]] = []

    def instead(source: str, options: Any, **others: Any) -> None:
        found.append((source, list(options)))

    compiler._compile_module_with_cache = instead
    core.compile_with_cache(source, (), "90", None)
    includes = "".join(f"#include <{header}>\n" for header in core._cupy_header_list)
    return includes + found[0][0], found[0][1]


def error_of(source: str, architecture: str) -> str:
    text, options = as_cupy_compiles(source)
    program = nvrtc.createProgram(text, "ufunc.cu", (), ())
    try:
        nvrtc.compileProgram(
            program, [*options, *(f"-I{path}" for path in HEADERS), f"--gpu-architecture=sm_{architecture}"]
        )
    except nvrtc.NVRTCError as error:
        return f"error: {error}: {nvrtc.getProgramLog(program)[:1_000]}"
    finally:
        nvrtc.destroyProgram(program)
    return ""


def ufunc_named(name: str) -> Any:
    private = {"elementwise_copy": "cupy._core.core.elementwise_copy", "where": "cupy._sorting.search._where_ufunc"}
    module, _, attribute = private.get(name, f"cupy.{name}").rpartition(".")
    found = getattr(importlib.import_module(module), attribute, None)
    return found if isinstance(found, kernel.ufunc) else None


if __name__ == "__main__":
    architecture, *names = sys.argv[1:]
    ufuncs = {name: ufunc for name in [*names, "elementwise_copy"] if (ufunc := ufunc_named(name)) is not None}
    errors = {
        name: {
            str(np.dtype(operation.in_types[-1])): error_of(source_of(ufunc, operation), architecture)
            for operation in ufunc._ops.ops
            if operation.error_func is None  # else CuPy refuses these types, as NumPy does
            and {str(np.dtype(dtype)) for dtype in operation.in_types} <= set(DTYPES)
        }
        for name, ufunc in ufuncs.items()
    }
    print(json.dumps(errors))
