"""The Transformer of "Attention Is All You Need", from scratch."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any


def _require_sister_packages() -> None:
    """Raise ImportError if our ``autograd`` or ``parallel`` is missing, overwritten or hidden by a module of that name.

    Users' modules and other distributions have these names, too.  PyPI's autograd installs into the same folder and
    overwrites our ``__init__.py``.  The library does not import ``cli``, so a user's own ``cli.py`` does no harm.
    """
    here = Path(__file__).resolve().parent.parent
    for name in ("autograd", "parallel"):
        spec = find_spec(name)
        found = Path(spec.origin).resolve() if spec and spec.origin else None
        if found != here / name / "__init__.py":
            raise ImportError(
                f"minitransformer needs its own package {name!r} from {here}, but Python finds {found or 'none'}:"
                " rename that file or its directory and start Python again; or, if it belongs to an installed package,"
                " install minitransformer in a virtual environment of its own (make demo does)",
                name="minitransformer",
            )
    if not hasattr(import_module("autograd"), "TapeError"):
        raise ImportError(
            "minitransformer needs its own package 'autograd', but another distribution has overwritten"
            f" {here / 'autograd' / '__init__.py'}: reinstall minitransformer in a virtual environment of its own",
            name="minitransformer",
        )


_require_sister_packages()

from minitransformer.config import DataConfig, ModelConfig, RunConfig, TrainingConfig, presets  # noqa: E402
from minitransformer.config.checks import suggestion  # noqa: E402
from minitransformer.inference.translator import Translator  # noqa: E402
from minitransformer.model.batch import Batch  # noqa: E402
from minitransformer.model.transformer import Transformer  # noqa: E402

if TYPE_CHECKING:
    from minitransformer.training.pretrained import fine_tuning
    from minitransformer.training.run import train

__all__ = [
    "Batch",
    "DataConfig",
    "ModelConfig",
    "RunConfig",
    "TrainingConfig",
    "Transformer",
    "Translator",
    "fine_tuning",
    "presets",
    "train",
]

_MODULES = {"fine_tuning": "minitransformer.training.pretrained", "train": "minitransformer.training.run"}


def __getattr__(name: str) -> Any:
    """Import ``train`` and ``fine_tuning`` on first use, because translation does not need them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; {suggestion(name, __all__)}", name=name)
    return getattr(import_module(_MODULES[name]), name)
