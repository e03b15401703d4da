"""The check of the CUDA kernels on this GPU; a child process runs it (``check_child``)."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from autograd.array import namespace_of_device
from autograd.kernel_registry import kernels_for
from autograd.kernels.compiler import CompilerError, cache_directory, cached_code, code_of
from autograd.kernels.cuda import cublaslt, nvrtc, register_all
from autograd.precision import lack_of_bfloat16

_log = logging.getLogger(__name__)
CHILD = (sys.executable, "-P", "-m", f"{__package__}.check_child")
SECONDS = 120  # that the child may take to check a kernel in a dtype; it is already compiled
CRASHES = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV")  # faults of a kernel
DRIVER = Path("/proc/driver/nvidia/version")


class CheckError(RuntimeError):
    """An error: the CUDA kernels cannot be checked."""


class CheckResults(NamedTuple):
    """The fault of each check, None if it passed, and its largest relative error by dtype of the results.

    A check is a kernel in a dtype, such as "dropout in float16".
    """

    faults: dict[str, str | None]
    errors: dict[str, dict[str, float]]
    path: Path | None = None
    """The file that keeps the results.  None if a kernel could not be checked: the next process checks again."""

    def dtypes(self, *, right: bool) -> dict[str, list[str]]:
        """Return the dtypes in which each kernel passed, or with ``right`` false those in which it did not."""
        found: dict[str, list[str]] = {}
        for check, fault in self.faults.items():
            name, dtype = check.split(" in ")
            found.setdefault(name, []).extend([dtype] if (fault is None) == right else [])
        return found

    def right(self) -> list[str]:
        """Return the names of the kernels that passed in all dtypes."""
        return [name for name, wrong in self.dtypes(right=False).items() if not wrong]

    def warnings(self) -> list[str]:
        """Return a line for each fault, with the checks that found it."""
        checks: dict[str, list[str]] = {}
        for check, fault in self.faults.items():
            checks.setdefault(fault or "", []).append(check)
        return [f"{', '.join(names)}: {fault}" for fault, names in checks.items() if fault]

    @property
    def remedy(self) -> str:
        if self.path is None:
            return "the next start checks again; look whether the machine and the GPU have enough free memory"
        return f"update the driver and CuPy, or report this; to check again, remove {self.path}"


class _UncheckedError(Exception):
    """An error: a kernel has no final result, because its child hung, lacked memory or was killed."""


def register_checked(child: Sequence[str] = CHILD) -> None:
    """Register the CUDA kernels that pass the check on this GPU, each in its dtypes; log a warning for the others."""
    try:
        results = check_results(child)
    except CheckError as error:
        _log.warning(f"the CUDA kernels could not be checked: {error}; the references run instead, more slowly")
        return
    register_all()
    right, wrong = results.dtypes(right=True), results.dtypes(right=False)
    for name, operation in kernels_for("cuda").items():
        if not right.get(name):
            operation.remove_kernels("cuda")
        elif wrong[name]:
            operation.remove_kernels("cuda", *wrong[name])
    if lack := lack_of_bfloat16():
        _log.info(f"CUDA kernels compute in float32 and float16 only: {lack}")
    for warning in results.warnings():
        _log.warning(f"CUDA kernel {warning}; it is not used there, which is slower: {results.remedy}")


def check_results(child: Sequence[str] = CHILD) -> CheckResults:
    """Return the results for this GPU, driver, libraries and sources: from the cache, or from a check now.

    If several processes call this at once, one checks and the others wait.
    Raises: CheckError if the GPU or a library cannot be used.
    """
    results = CheckResults({}, {})

    def check() -> bytes:
        device = namespace_of_device("cuda").cuda.Device()
        nvrtc.compile_all(f"sm_{device.compute_capability}")
        _check([*child, str(device.id)], results)
        return json.dumps([results.faults, results.errors]).encode()

    try:
        with (cache_directory() / "cuda-check.lock").open("a") as lock:
            with contextlib.suppress(OSError, ImportError):  # without locks all of them check
                fcntl = import_module("fcntl")
                fcntl.flock(lock, fcntl.LOCK_EX)
            path = cached_code("cuda-check", _inputs(), check)
            faults, errors = json.loads(code_of(path))
            return CheckResults(faults, errors, path)
    except _UncheckedError:
        return results
    except (OSError, CompilerError, cublaslt.ProductError) as error:
        raise CheckError(str(error)) from error


def _inputs() -> list[bytes]:
    """Return what identifies a check: GPU, driver, library versions, kernel sources."""
    cupy = namespace_of_device("cuda")
    runtime = cupy.cuda.runtime
    card = runtime.getDeviceProperties(cupy.cuda.Device().id)["name"]
    driver = DRIVER.read_bytes() if DRIVER.exists() else b""
    versions = runtime.driverGetVersion(), cupy.__version__, nvrtc.version(), cublaslt.version()
    sources = [path.read_bytes() for path in sorted(nvrtc.SOURCES.glob("*.*")) if path.suffix in (".cu", ".cuh", ".py")]
    return [card, driver, *(str(version).encode() for version in versions), *sources]


def _check(command: Sequence[str], results: CheckResults) -> None:
    """Run a child and add its reports to ``results``; if a kernel ends the child, another child checks the rest.

    Raises: CheckError if a child reports nothing; _UncheckedError if a kernel gave no final result (all others are
        checked).
    """
    paths = filter(None, [str(Path(__file__).parents[__name__.count(".")]), os.environ.get("PYTHONPATH")])
    environment, is_final, status = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, True, -1
    while status:
        child = subprocess.run(
            [*command, *results.faults], stdin=subprocess.DEVNULL, capture_output=True, env=environment, check=False
        )
        begun, status = None, child.returncode
        reports = [json.loads(line) for line in child.stdout.splitlines() if line.startswith(b"[")]  # libraries print
        for name, *result in reports:
            begun = None if result else name
            if result:
                results.faults[name], results.errors[name] = result
        if status and begun:
            results.faults[begun], is_final = _description(child), is_final and _name_of(-status) in CRASHES
        elif status and not reports:
            raise CheckError(_description(child))
    _log.info(f"{len(results.right())} of {len(results.dtypes(right=True))} CUDA kernels passed their check")
    if not is_final:
        raise _UncheckedError


def _name_of(signal_number: int) -> str | None:
    """Return the name of a signal; None if this system does not have it."""
    return next((each.name for each in signal.Signals if each == signal_number), None)


def _description(child: subprocess.CompletedProcess[bytes]) -> str:
    status, last = child.returncode, child.stderr.decode(errors="replace").strip().rpartition("\n")[2][:500]
    how = f"with status {status}" if status > 0 else f"by signal {-status} ({signal.strsignal(-status)})"
    if _name_of(-status) == "SIGALRM":
        how = f"after the {SECONDS} s that a kernel may take"
    return f"the child process that checks kernels ended {how}{': ' if last else ''}{last}"
