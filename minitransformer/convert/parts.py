"""What every conversion reads or makes: a model of ours as configuration, weights and tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.files import load_model_files, save_model_files
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError

Storage = Literal["float32", "float16", "int8"]


class ConversionError(UserError):
    """An error: a model cannot be expressed in the other format, or a file is not what its format says."""


@dataclass(frozen=True)
class Parts:
    """A model of ours: all that a directory from which ``Translator.load`` reads contains.

    Shapes: weights, float32, under the names of ``Transformer.named_parameters``.
    """

    config: ModelConfig
    weights: Mapping[str, np.ndarray[Any, Any]]
    tokenizer: Tokenizer

    @classmethod
    def load(cls, directory: Path) -> Parts:
        """Read a run, or any other directory of a trained model.  Raises: CheckpointError."""
        config, weights = load_model_files(directory)
        return cls(config, weights, Tokenizer.load(directory))

    def save(self, directory: Path) -> None:
        """Write a directory that ``Translator.load`` reads.  Raises: CheckpointError."""
        save_model_files(directory, self.config, self.weights)
        self.tokenizer.save(directory)

    def require_fitting(self) -> Parts:
        """Return these parts.  Raises: WeightsError if names or shapes of the weights do not fit the configuration."""
        Transformer(self.config, seed=None).set_weights(self.weights)
        return self
