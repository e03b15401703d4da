"""The Transformer of "Attention Is All You Need", from scratch."""

from importlib.util import find_spec
from pathlib import Path


def _require_sister_packages() -> None:
    """Other distributions share the names of our packages: refuse to run on a mixture."""
    here = Path(__file__).resolve().parent.parent
    for name in ("autograd", "parallel", "cli"):
        spec = find_spec(name)
        found = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
        if found != here:
            raise ImportError(
                f"minitransformer lies in {here}, but the package {name!r} that Python finds lies in {found}."
                " Another distribution of that name is in the way: install minitransformer in a virtual environment"
                " of its own (make does)"
            )


_require_sister_packages()

from minitransformer import presets  # noqa: E402
from minitransformer.config import ModelConfig  # noqa: E402
from minitransformer.inference.translator import Translator  # noqa: E402
from minitransformer.model.batch import Batch  # noqa: E402
from minitransformer.model.transformer import Transformer  # noqa: E402

__all__ = ["Batch", "ModelConfig", "Transformer", "Translator", "presets"]
