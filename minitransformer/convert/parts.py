"""A model of ours in memory: the type that every reader returns and every writer receives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.config.model import CHOICES
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.files import BUNDLE_FILE, load_model_files, save_model_files
from minitransformer.model.transformer import Transformer
from minitransformer.system.errors import UserError
from minitransformer.system.files import read_json

T = TypeVar("T")


class ConversionError(UserError):
    """An error: a model cannot be expressed in the other format, or a file is not what its format says."""


_TRAINING_ONLY = ("label_smoothing_over",)  # choices that change no output of a trained model
OUR_CHOICES = {  # model.json has the word of each choice
    "positions": ("interleaved", "halves", "learned"), "norm": ("post", "pre"), "tied": ("all", "target", "none"),
    "start": ("symbol", "zero", "end"), "normalisation": ("gnmt", "length"),
    "activation": ("relu", "swish", "gelu", "gelu_tanh"),
}  # fmt: skip
SEARCH_ONLY: dict[str, Mapping[Any, Any]] = {
    "normalisation": dict.fromkeys(OUR_CHOICES["normalisation"])
}  # formats without this setting lack nothing


def looked_up(place: str, setting: str, value: Any, table: Mapping[Any, T]) -> T:
    """Return what a table has for the value of a setting.

    Raises: ConversionError if it has none; the message names ``place``, a file or a format.
    """
    if value not in table:
        raise ConversionError(f"{place}: {setting} = {value!r} is not supported; only {', '.join(map(repr, table))}")
    return table[value]


def expressed(place: str, config: ModelConfig, tables: Mapping[str, Mapping[Any, Any]]) -> dict[str, Any]:
    """Return what a format has for each choice of a configuration, from one table for each setting.

    Raises: ConversionError if a setting has no table, or if its table lacks the value.
    """
    settings = [name for name in CHOICES if name not in _TRAINING_ONLY]
    return {name: looked_up(place, f"model.{name}", getattr(config, name), tables.get(name, {})) for name in settings}


def require_empty(directory: Path) -> None:
    """Raise ConversionError unless a directory is absent, or is empty and can be replaced."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConversionError(f"{directory}: exists and is not an empty directory; choose another, or remove it")
    if directory.exists() and (directory.samefile(Path.cwd()) or directory.is_mount()):
        raise ConversionError(
            f"{directory}: is the current directory or a mount point, and cannot be replaced; choose a directory in it"
        )


def require_finite(path: Path, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of weights.  Raises: ConversionError naming file and array if a number is infinite or NaN."""
    if n_bad := array.size - np.count_nonzero(np.isfinite(array)):
        raise ConversionError(
            f"{path}: {name} has values that are not finite (NaN or infinite: {n_bad:,} of {array.size:,}); the model"
            " has diverged: take another checkpoint"
        )
    return array


@dataclass(frozen=True)
class Parts:
    """A model of ours: all that a directory from which ``Translator.load`` reads contains.

    Shapes: weights, float32, under the names of ``Transformer.named_parameters``.
    ``run`` is the directory from which a model of ours was read, and ``licence`` the licence of the model, if stated; a
    bundle records both.
    """

    config: ModelConfig
    weights: Mapping[str, np.ndarray[Any, Any]]
    tokenizer: Tokenizer
    run: Path | None = None
    licence: str | None = None

    @classmethod
    def load(cls, directory: Path) -> Parts:
        """Read a run, a bundle, or any other directory of a trained model.  Raises: CheckpointError."""
        config, weights = load_model_files(directory)
        bundle = directory / BUNDLE_FILE
        licence = read_json(bundle).get("licence") if bundle.exists() else None
        return cls(config, weights, Tokenizer.load(directory), directory, licence)

    def save(self, directory: Path) -> None:
        """Write a directory that ``Translator.load`` reads.  Raises: CheckpointError, ConversionError."""
        self.require_known_choices()
        save_model_files(directory, self.config, self.weights)
        self.tokenizer.save(directory)

    def require_known_choices(self) -> None:
        """Raise ConversionError if a choice of the configuration is none of those that our format has."""
        expressed("our format", self.config, {name: dict.fromkeys(words) for name, words in OUR_CHOICES.items()})

    def require_fitting(self) -> Parts:
        """Return these parts.  Raises: WeightsError if names or shapes of the weights do not fit the configuration."""
        Transformer(self.config, seed=None).set_weights(self.weights)
        return self
