"""The files of raw text or trees that a configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minitransformer.config import DataConfig
from minitransformer.data.survey import fingerprint_of_file


def text_files(config: DataConfig) -> dict[str, Path]:
    """Return the paths of all files of raw text or trees, by their names in the configuration."""
    names = (
        *config.train_source, *config.train_target, *config.validation_source, *config.validation_target,
        *config.train_trees, *config.validation_trees,
    )  # fmt: skip
    return {name: config.raw / name for name in names}


def changed_files(config: DataConfig, fingerprints: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    """Return the text files whose fingerprints have changed; a file that was removed does not count as changed."""
    return [
        path
        for name, path in text_files(config).items()
        if path.exists() and name in fingerprints and fingerprint_of_file(path) != fingerprints[name]
    ]
