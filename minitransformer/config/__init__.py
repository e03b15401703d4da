"""The settings of a training run: data, model, training and directories."""

from minitransformer.config import presets
from minitransformer.config.checks import ConfigError
from minitransformer.config.data import DataConfig, LeafSymbols, TextNormalisation, TokenizerType
from minitransformer.config.model import ModelConfig, Normalisation
from minitransformer.config.run import RunConfig
from minitransformer.config.training import MAX_MICRO_BATCHES, NoiseKind, TrainingConfig

__all__ = [
    "MAX_MICRO_BATCHES",
    "ConfigError",
    "DataConfig",
    "LeafSymbols",
    "ModelConfig",
    "NoiseKind",
    "Normalisation",
    "RunConfig",
    "TextNormalisation",
    "TokenizerType",
    "TrainingConfig",
    "presets",
]
