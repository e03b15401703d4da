"""Import of packages that this project's extras install; an error names the command that installs a missing package."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from minitransformer.system.errors import UserError

CLONE = Path(__file__).resolve().parents[2]


class MissingExtraError(UserError):
    """An error: a package of one of this project's extras cannot be imported."""


def import_extra(extra: str, module: str) -> Any:
    """Import a module of a package in this project's extra ``extra``.  Raises: MissingExtraError if it fails."""
    try:
        return import_module(module)
    except Exception as error:  # a package that is too old may raise any error
        raise MissingExtraError(
            f'the extra "{extra}" is missing or too old ({error}): install it with {_command(extra)}'
        ) from error


def _command(extra: str) -> str:
    """Return the command that installs an extra into this environment: from the clone, or its packages by name."""
    if (CLONE / "pyproject.toml").exists():
        return f'pip install -e "{CLONE}[{extra}]"'
    split = (line.partition(";") for line in requires("minitransformer") or ())
    packages = " ".join(f'"{package}"' for package, _, marker in split if f"extra == '{extra}'" in marker)
    if "pipx" in Path(sys.prefix).parts:
        return f"pipx inject minitransformer {packages}"
    pip = "pip install" if find_spec("pip") else f"uv pip install -p {sys.prefix}"  # uv tool install brings no pip
    return f"{pip} {packages}"
