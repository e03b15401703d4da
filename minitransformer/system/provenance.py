"""The provenance of results: the commit of the code, and short hashes of configurations and data."""

from __future__ import annotations

import hashlib
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def code_version() -> str:
    """Return the git commit of this source tree, followed by "+" if files have changed, or the installed version."""
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


def short_hash(text: str) -> str:
    """Return a hash of a text, such as a configuration: BLAKE2b of five bytes, as ten hexadecimal digits."""
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
