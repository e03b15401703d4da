"""The checks and names that a clone needs; no wheel has this file, because its packages are all in ``minitransformer``.

``minitransformer.autograd`` and ``minitransformer.parallel`` are the names that users import.  In a clone they are
other names of the packages beside ``minitransformer``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

SISTERS = ("autograd", "parallel")


def require_sisters() -> None:
    """Raise ImportError if Python is too old, or if another module hides our ``autograd`` or ``parallel``.

    Users' modules and other distributions have these names, too.  The library does not import ``cli``, so a user's own
    ``cli.py`` does no harm.
    """
    if sys.version_info < (3, 11):  # noqa: UP036  (a clone can be imported without being installed)
        raise ImportError(
            f"minitransformer needs Python 3.11 or newer; this is {sys.version.split()[0]}, {sys.executable}: install"
            " it in a virtual environment of a newer one (in a clone: make demo PYTHON=python3.12)",
            name="minitransformer",
        )
    here = Path(__file__).resolve().parent.parent
    for name in SISTERS:
        spec = find_spec(name)
        found = Path(spec.origin).resolve() if spec and spec.origin else None
        if found != here / name / "__init__.py":
            raise ImportError(
                f"minitransformer needs its own package {name!r} from {here}, but Python finds {found or 'none'}:"
                " rename that file or its directory and start Python again; or, if it belongs to an installed package,"
                " install minitransformer in a virtual environment of its own (make demo does)",
                name="minitransformer",
            )


class SisterFinder(MetaPathFinder, Loader):
    """An importer of ``minitransformer.autograd.NAME``: it returns the module ``autograd.NAME``, not a second one."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return a spec if ``name`` is ``minitransformer.autograd`` or ``….parallel``, or a module in it, else None."""
        package, _, module = name.partition(".")
        is_ours = package == "minitransformer" and module.partition(".")[0] in SISTERS
        return ModuleSpec(name, self) if is_ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import and return the module ``autograd.NAME`` for this name; store its spec, which Python then replaces."""
        module = import_module(spec.name.removeprefix("minitransformer."))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec again; the module has run already."""
        module.__spec__ = module.__spec__.loader_state if module.__spec__ else None
