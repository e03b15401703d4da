"""A model on disk: its configuration beside its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.config import ConfigError, ModelConfig
from minitransformer.files import CheckpointError, read_arrays, read_json, write_arrays, write_text

CONFIG_FILE = "model.json"
WEIGHTS_FILE = "model.safetensors"


def save_model_files(directory: Path, config: ModelConfig, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write ``model.json`` and ``model.safetensors``."""
    write_text(directory / CONFIG_FILE, config.to_json())
    write_arrays(directory / WEIGHTS_FILE, weights)


def load_model_files(directory: Path) -> tuple[ModelConfig, dict[str, np.ndarray[Any, Any]]]:
    """Read what ``save_model_files`` wrote.  Raises: CheckpointError."""
    if not (directory / WEIGHTS_FILE).exists():
        raise CheckpointError(
            f"{directory}: there is no model here (no {WEIGHTS_FILE}); train one with minitransformer-train,"
            " or name the directory of one with --run"
        )
    try:
        config = ModelConfig.from_mapping(read_json(directory / CONFIG_FILE))
    except (ConfigError, TypeError) as error:
        raise CheckpointError(f"{directory / CONFIG_FILE}: not the configuration of a model: {error}") from error
    return config, read_arrays(directory / WEIGHTS_FILE)
