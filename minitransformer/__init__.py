"""The Transformer of "Attention Is All You Need", from scratch."""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("minitransformer.clone"):
    from minitransformer.clone import SisterFinder, require_sisters

    require_sisters()
    sys.meta_path.insert(0, SisterFinder())

if TYPE_CHECKING:
    from minitransformer.config import DataConfig, ModelConfig, RunConfig, TrainingConfig, presets
    from minitransformer.inference.translator import Translator
    from minitransformer.model.batch import Batch
    from minitransformer.model.transformer import Transformer
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

_MODULES = {
    "Batch": "minitransformer.model.batch",
    "Transformer": "minitransformer.model.transformer",
    "Translator": "minitransformer.inference.translator",
    "fine_tuning": "minitransformer.training.pretrained",
    "train": "minitransformer.training.run",
}  # the module of each name; of others the package config


def __getattr__(name: str) -> Any:
    """Import a name on first use, because a command sets variables for NumPy before NumPy is imported."""
    if name not in __all__:
        suggestion = import_module("minitransformer.config.checks").suggestion(name, __all__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; {suggestion}", name=name)
    return getattr(import_module(_MODULES.get(name, "minitransformer.config")), name)
