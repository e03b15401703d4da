"""A model on disk: its configuration, its weights, and the checksums of both."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.config import ConfigError, ModelConfig
from minitransformer.model.storage import restored
from minitransformer.model.symbols import END
from minitransformer.system.checksums import (
    check_all_files,
    check_files,
    has_checksums,
    remove_checksums,
    write_checksums,
)
from minitransformer.system.files import (
    CheckpointError,
    CorruptFileError,
    read_arrays,
    read_json,
    write_arrays,
    write_text,
)

CONFIG_FILE = "model.json"
WEIGHTS_FILE = "model.safetensors"
MODEL_FILES = (CONFIG_FILE, WEIGHTS_FILE)
CHECKPOINTS = "checkpoints"  # the folder of a run that holds its checkpoints
BUNDLE_FILE = "bundle.json"  # the list of all files of a bundle, instead of checksums.json


def require_no_bundle(directory: Path) -> None:
    """Raise CheckpointError if a directory is a bundle."""
    if has_checksums(directory, BUNDLE_FILE):
        raise CheckpointError(
            f"{directory}: is a bundle, whose files never change; choose another directory, or change the model from"
            " which the bundle was made, and make it again"
        )


def save_model_files(directory: Path, config: ModelConfig, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write ``model.json``, ``model.safetensors`` and ``checksums.json``.  Raises: CheckpointError.

    The old checksums are removed first.  Writing the configuration syncs the directory, so that a crash cannot leave
    old checksums beside new weights.
    """
    require_no_bundle(directory)
    try:
        remove_checksums(directory)
        write_model_files(directory, config, weights)
        write_checksums(directory, MODEL_FILES)
    except OSError as error:
        raise CheckpointError(
            f"{directory}: cannot be written ({error}); free some space or choose another directory"
        ) from error


def write_model_files(directory: Path, config: ModelConfig, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write ``model.json`` and ``model.safetensors`` into a directory without checksums."""
    write_text(directory / CONFIG_FILE, config.to_json())
    write_arrays(directory / WEIGHTS_FILE, weights)


def load_model_files(directory: Path) -> tuple[ModelConfig, dict[str, np.ndarray[Any, Any]]]:
    """Return the configuration and the weights that ``save_model_files`` wrote.

    If the directory has checksums, check both files against them while reading.  In a bundle, check all files.
    Weights in float16 or int8 become float32.
    Raises: CheckpointError; its subclass CorruptFileError if a file is missing, corrupt or was replaced.
    """
    is_bundle = has_checksums(directory, BUNDLE_FILE)
    if not (is_bundle or has_checksums(directory)):
        require_weights(directory)
        return _read_model_files(directory)
    with ThreadPoolExecutor() as executor:
        checking = (
            executor.submit(check_all_files, directory, MODEL_FILES, BUNDLE_FILE)
            if is_bundle
            else executor.submit(check_files, directory, MODEL_FILES)
        )
        reading = executor.submit(_read_model_files, directory)
        checking.result()
        return reading.result()


def require_weights(directory: Path) -> None:
    """Raise CorruptFileError if a directory has no file of weights."""
    if not (directory / WEIGHTS_FILE).exists():
        is_begun = (directory / CHECKPOINTS).exists()
        raise CorruptFileError(
            f"{directory}: there is no model here (no {WEIGHTS_FILE}); "
            + ("start its training again, which goes on" if is_begun else "train one")
            + ", or give the directory of a trained model"
        )


def model_directory(run: Path) -> Path:
    """Return the directory of a run's model: the run's own; before the first validation, that of the newest checkpoint.

    Return ``run`` if there is no model.
    """
    newest = max((run / CHECKPOINTS).glob(f"step-*/{WEIGHTS_FILE}"), default=None)
    return run if newest is None or any((run / name).exists() for name in MODEL_FILES) else newest.parent


def load_model_config(directory: Path) -> ModelConfig:
    """Return the configuration of a model without its weights.  Raises: CorruptFileError."""
    try:
        return ModelConfig.from_mapping(read_json(directory / CONFIG_FILE))
    except (ConfigError, TypeError) as error:
        raise CorruptFileError(f"{directory / CONFIG_FILE}: not the configuration of a model: {error}") from error


def _read_model_files(directory: Path) -> tuple[ModelConfig, dict[str, np.ndarray[Any, Any]]]:
    path = directory / WEIGHTS_FILE
    return load_model_config(directory), restored(read_arrays(path), path)


def require_enough_weights(directory: Path, config: ModelConfig, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Raise CorruptFileError if weights are too few or of integers; call this before memory is allocated."""
    n_least, n_here = _least_parameters(config), sum(array.size for array in weights.values())
    has_words = min(config.vocabulary_size, config.n_source_words) > END
    if not (has_words and n_least <= n_here) or any(w.dtype.kind != "f" for w in weights.values()):
        raise CorruptFileError(
            f"{directory}: {CONFIG_FILE} describes a model of at least {n_least:,} floating-point parameters, and"
            f" {WEIGHTS_FILE} holds {n_here:,} numbers: they do not belong together, or one is corrupt"
        )


def _least_parameters(config: ModelConfig) -> int:
    """Return a lower bound of a model's number of parameters; 0 for a user's class (``implementation``)."""
    if config.implementation:
        return 0
    attention = 2 * config.d_model * config.n_heads * (config.d_k + config.d_v)
    feed_forward = 2 * config.d_model * config.d_ff
    layers = config.n_layers * (attention + feed_forward) + config.decoder_depth * (2 * attention + feed_forward)
    positions = 2 * config.max_positions * config.d_model if config.positions == "learned" else 0
    return layers + positions + max(config.vocabulary_size, config.n_source_words) * config.d_model
