"""Registration of the CUDA kernels that pass their check on this GPU.

The check runs in a child process: an illegal memory access makes CUDA unusable for the whole process that made it.  Its
results are kept in the user's cache directory for each GPU model, driver, library versions and sources of the kernels.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from autograd.array import namespace_of_device
from autograd.kernel_registry import kernels_for
from autograd.kernels.compiler import CompilerError, cache_directory, cached_code, code_of
from autograd.kernels.cuda import cublaslt, nvrtc, register_all

_log = logging.getLogger(__name__)

CHILD = (sys.executable, "-P", "-m", "autograd.kernels.cuda.check")
SECONDS = 60.0  # that the child may take for one kernel, its compilation and its own start included
SECONDS_TO_END = 10.0
OF_OTHERS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)  # sent by users or the system
DRIVER = Path("/proc/driver/nvidia/version")


class CheckError(RuntimeError):
    """An error: the CUDA kernels cannot be checked."""


class CheckResults(NamedTuple):
    """The fault of each kernel, "" if it has none, and the file that keeps these results."""

    faults: dict[str, str]
    path: Path
    is_kept: bool = True
    """False if another process ended a child, for example for lack of memory.  The next start checks again."""

    def right(self) -> list[str]:
        """Return the names of the kernels that passed."""
        return [name for name, fault in self.faults.items() if not fault]

    def warnings(self) -> list[str]:
        """Return a line for each fault, with the kernels that have it."""
        kernels: dict[str, list[str]] = {}
        for name, fault in self.faults.items():
            if fault:
                kernels.setdefault(fault, []).append(name)
        return [f"{', '.join(names)}: {fault}" for fault, names in kernels.items()]

    @property
    def remedy(self) -> str:
        if not self.is_kept:
            return "the next start checks again; look whether the machine has enough free memory"
        return f"update the driver and CuPy, or report this; to check again, remove {self.path}"


def register_checked(child: Sequence[str] = CHILD, seconds: float = SECONDS) -> None:
    """Register the CUDA kernels that are right on the current GPU, and log a warning for each other one.

    If some are registered already, nothing is checked or changed.
    """
    if kernels_for("cuda"):
        return
    try:
        results = check_results(child, seconds)
    except CheckError as error:
        _log.warning(f"the CUDA kernels could not be checked: {error}; the references run instead, more slowly")
        return
    register_all()
    right = results.right()
    for name, operation in kernels_for("cuda").items():
        if name not in right:
            operation.remove_kernels("cuda")
    for warning in results.warnings():
        _log.warning(f"CUDA kernel {warning}; the reference runs instead, more slowly: {results.remedy}")


def check_results(child: Sequence[str] = CHILD, seconds: float = SECONDS) -> CheckResults:
    """Return the results of the check on the current GPU; from the cache if they are there.

    If several processes call this at once, one checks and the others wait.  Nothing is kept if another process ended a
    child: the kernel that it was checking may be right.

    Args:
        child: the command of the child process; the GPU and the kernels already checked are appended.
        seconds: the time that a kernel may take.

    Raises: CheckError if the GPU or a library cannot be used.
    """
    try:
        with _locked(cache_directory() / "cuda-check.lock"):
            ended: set[str] = set()
            path = cached_code("cuda-check", _inputs(), lambda: json.dumps(_check(child, seconds, ended)).encode())
            results = CheckResults(json.loads(code_of(path)), path, is_kept=not ended)
            if ended:
                path.unlink()
            return results
    except (OSError, CompilerError, cublaslt.ProductError) as error:
        raise CheckError(str(error)) from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock; a file system without locks lets all of them check."""
    with path.open("a") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _inputs() -> list[bytes]:
    """Return everything on which the results depend."""
    cupy = namespace_of_device("cuda")
    runtime = cupy.cuda.runtime
    card = runtime.getDeviceProperties(cupy.cuda.Device().id)["name"]
    driver = DRIVER.read_bytes() if DRIVER.exists() else b""
    versions = runtime.driverGetVersion(), cupy.__version__, nvrtc.version(), cublaslt.version()
    sources = [path.read_bytes() for path in sorted(nvrtc.SOURCES.glob("*.*")) if path.suffix in (".cu", ".cuh", ".py")]
    return [card, driver, *(str(version).encode() for version in versions), *sources]


def _check(child: Sequence[str], seconds: float, ended: set[str]) -> dict[str, str]:
    """Return the fault of each kernel, "" if it has none.

    If the child ends or hangs, this is the fault of the kernel that it was checking.  A new child checks the others.
    If another process ended it, the kernel's name is added to ``ended``.

    Raises: CheckError if a child ends before it has checked a kernel.
    """
    start, faults, gpu = time.perf_counter(), dict[str, str](), namespace_of_device("cuda").cuda.Device().id
    obstacle = "unknown"
    while obstacle:
        n_before = len(faults)
        obstacle = _run_child([*child, str(gpu), *faults], seconds, faults, ended)
        if obstacle and len(faults) == n_before:
            raise CheckError(obstacle)
    n_right = len(faults) - sum(map(bool, faults.values()))
    _log.info(f"{n_right} of {len(faults)} CUDA kernels passed their check, {time.perf_counter() - start:.1f} s")
    return faults


def _run_child(command: Sequence[str], seconds: float, faults: dict[str, str], ended: set[str]) -> str:
    """Let a child check kernels, and add what it reports to ``faults``, and a kernel without a result to ``ended``.

    Return why it did not check all of them; "" if it did.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=_environment()
        )
        assert process.stdout is not None
        name, obstacle = "", ""
        try:
            for report in _reports(process.stdout, seconds):
                if not report:
                    return ""
                name = report[0] if len(report) == 1 else ""
                if len(report) == 2:
                    faults[report[0]] = report[1]
            obstacle = _how_it_ended(process, errors)
            if name and process.returncode is not None and -process.returncode in OF_OTHERS:
                ended.add(name)
        except _HangError:
            obstacle = f"the child process that checks kernels was ended after {seconds:.0f} s"
        finally:
            process.kill()
            process.stdout.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_TO_END)
        if name:
            faults[name] = obstacle
        return obstacle


class _HangError(Exception):
    """An error: the child reports nothing."""


def _reports(stdout: IO[bytes], seconds: float) -> Iterator[list[str]]:
    """Yield the child's reports until it closes its output.  Raises: _HangError if it is silent for too long."""
    poller, rest = select.poll(), b""
    poller.register(stdout, select.POLLIN)
    while poller.poll(1_000 * seconds):
        read = os.read(stdout.fileno(), 1 << 16)
        if not read:
            return
        *lines, rest = (rest + read).split(b"\n")
        yield from (json.loads(line) for line in lines if line.startswith(b"["))
    raise _HangError


def _how_it_ended(process: subprocess.Popen[Any], errors: IO[bytes]) -> str:
    """Describe the end of a child that closed its output: its signal or status, and the last line of its stderr."""
    try:
        status = process.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        return "the child process that checks kernels does not end"
    how = f"with status {status}" if status >= 0 else f"by signal {-status} ({signal.strsignal(-status)})"
    errors.seek(0)
    lines = errors.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"the child process that checks kernels ended {how}{f': {last[:500]}' if last else ''}"


def _environment() -> dict[str, str]:
    """Return the environment of the child, in which it finds this package."""
    paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
