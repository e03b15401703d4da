"""Models that PyTorch programs store as a state dict: arrays by name, settings in JSON, words in text files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minitransformer.convert.parts import ConversionError
from minitransformer.convert.vocabulary import Array, Vocabulary
from minitransformer.system.files import read_arrays, read_json

WEIGHTS = "model.safetensors"


class StateDict:
    """The arrays of a safetensors file in float32; each is removed when it is taken."""

    def __init__(self, path: Path) -> None:
        self.path, self._left = path, read_arrays(path)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._left))

    def rename(self, old: str, new: str) -> None:
        """Give an array another name."""
        self._left[new] = self._left.pop(old)

    def split(self, old: str, new: list[str]) -> None:
        """Replace an array by equal slices of its rows.  Raises: ConversionError if they cannot be equal."""
        array = self._left.pop(old)
        if not array.ndim or len(array) % len(new):
            raise ConversionError(f"{self.path}: {old} of shape {array.shape} has no {len(new)} equal parts")
        self._left.update(zip(new, np.split(array, len(new)), strict=True))

    def take(self, name: str) -> Array:
        """Return an array.  Raises: ConversionError if there is none of this name."""
        if name not in self._left:
            raise ConversionError(f"{self.path}: it has no array {name}; is it the complete state dict of the model?")
        return self._left.pop(name).astype(np.float32)

    def linear(self, ours: str, theirs: str) -> dict[str, Array]:
        """Return weight and bias of a linear map, or gain and bias of a layer norm, under our names."""
        weight = "gain" if ours.endswith(".norm") else "weight"
        return {f"{ours}.{weight}": self.take(f"{theirs}.weight").T, f"{ours}.bias": self.take(f"{theirs}.bias")}

    def sizes(self, name: str, n_heads: int) -> dict[str, int]:
        """Return d_model, d_ff, n_heads, d_k and d_v.

        Args:
            name: the weight (d_ff, d_model) of the first linear map of a feed-forward network.

        Raises: ConversionError if the heads do not divide d_model.
        """
        weight = self._left.get(name)
        if weight is None or weight.ndim != 2:
            raise ConversionError(f"{self.path}: it has no matrix {name}; is it the complete state dict of the model?")
        d_ff, d_model = weight.shape
        if n_heads < 1 or d_model % n_heads:
            raise ConversionError(f"{self.path}: {n_heads} heads do not divide {d_model} features; correct the setting")
        return {
            "d_model": d_model,
            "d_ff": d_ff,
            "n_heads": n_heads,
            "d_k": d_model // n_heads,
            "d_v": d_model // n_heads,
        }

    def count_layers(self, stack: str) -> int:
        """Return the number of layers of a stack."""
        found = (re.match(rf"{stack}\.layers\.(\d+)\.", name) for name in self._left)
        return 1 + max((int(match[1]) for match in found if match), default=-1)

    def require_none_left(self, ignored: str) -> None:
        """Raise ConversionError if arrays are left whose names do not match the pattern ``ignored``."""
        left = sorted(name for name in self._left if not re.fullmatch(ignored, name))
        if left:
            raise ConversionError(
                f"{self.path}: it has {len(left)} arrays that this Transformer does not have: {', '.join(left[:3])}"
            )


class TrainingSettings:
    """The settings in a JSON file, of which each must have its type; a dot leads into an object: "model.encoder"."""

    def __init__(self, path: Path) -> None:
        self.path, self._fields = path, read_json(path)

    def of(self, name: str, kind: type, default: Any = None) -> Any:
        """Return a setting.  Raises: ConversionError if it is of another type, or missing without a default."""
        value = self._fields
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        value = default if value is None else value
        value = float(value) if kind is float and type(value) is int else value
        if type(value) is not kind:
            raise ConversionError(
                f"{self.path}: expected the setting {name}, of type {kind.__name__}, which the weights do not tell;"
                f" got {value!r:.80}"
            )
        return value

    def common(self, kind: type, *names: str) -> Any:
        """Return the value that several settings have.  Raises: ConversionError if they differ."""
        values = [self.of(name, kind) for name in names]
        if any(value != values[0] for value in values):
            raise ConversionError(f"{self.path}: {' and '.join(names)} must be equal in our models; got {values}")
        return values[0]

    def refuse(self, allowed: Mapping[str, Any]) -> None:
        """Raise ConversionError if a setting that is there has another value than the one allowed."""
        for name, value in allowed.items():
            if (found := self.of(name, type(value), value)) != value:
                raise ConversionError(f"{self.path}: {name} = {found!r} is not supported; only {value!r}")


def read_lines(path: Path) -> list[str]:
    """Return the lines of a vocabulary; only line feeds end them.  Raises: ConversionError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConversionError(f"{path}: the vocabulary cannot be read ({error}); copy it beside the weights") from error


def vocabulary_settings(source: Vocabulary, target: Vocabulary, weights: Mapping[str, Array]) -> dict[str, Any]:
    """Return the settings of ``ModelConfig`` that follow from the vocabularies and from ``embeddings``."""
    tied = "target" if "target_embedding.weight" in weights else "all"
    return {
        "vocabulary_size": len(target.words),
        "source_vocabulary_size": len(source.words) if len(source.words) != len(target.words) else None,
        "softmax_bias": "softmax_bias" in weights,
        "tied": "none" if "projection.weight" in weights else tied,
    }


def embeddings(
    source: Vocabulary, target: Vocabulary, of_source: Array, of_target: Array, output: Array
) -> dict[str, Array]:
    """Return the embeddings and the projection under our names; equal ones are one matrix, if our model has it so."""
    weights = {"source_embedding.weight": source.matrix(of_source)}
    is_output = np.array_equal(of_target, output)
    is_joint = is_output and source == target and np.array_equal(of_source, of_target)
    if not is_joint:
        weights["target_embedding.weight"] = target.matrix(of_target)
    if not is_output:
        weights["projection.weight"] = target.matrix(output)
    bias = target.bias(None)
    return weights if bias is None else {**weights, "softmax_bias": bias}
