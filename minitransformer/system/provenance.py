"""The provenance of results: the commit of the code, the processor and libraries, short hashes of configurations."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from threadpoolctl import threadpool_info

PROCESSOR = Path("/proc/cpuinfo")


def code_version() -> str:
    """Return the git commit of this source tree, with "+" if files have changed; else the version or "unknown"."""
    here = Path(__file__).resolve().parents[2]
    try:
        if not (here / ".git").exists():
            return version("minitransformer")
        commit = _git(here, "rev-parse", "--short=10", "HEAD")
        return commit + ("+" if _git(here, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError, PackageNotFoundError):
        return "unknown"


def _git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def processor() -> str:
    """Return the processor's model, and a hash of its instruction sets if the system names them."""
    fields: dict[str, str] = {}
    with suppress(OSError):
        for line in PROCESSOR.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    model = fields.get("model name") or platform.processor() or platform.machine()
    instructions = fields.get("flags") or fields.get("Features")
    return f"{model}, instruction sets {short_hash(instructions)}" if instructions else model


def blas_libraries() -> str | None:
    """Return the BLAS libraries in use, with the processors that they are made for; None if none is recognised."""
    found = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return " and ".join(_library_name(library) for library in found) or None


def _library_name(library: dict[str, str]) -> str:
    architecture = library.get("architecture")
    return f"{library['internal_api']} {library['version']}" + (f" for {architecture}" if architecture else "")


def short_hash(text: str) -> str:
    """Return a hash of a text, such as a configuration: BLAKE2b of five bytes, as ten hexadecimal digits."""
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
