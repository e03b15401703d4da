"""Weights in fewer bytes: float16, or int8 with scales, as model files store them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from minitransformer.system.errors import UserError
from minitransformer.system.files import CorruptFileError

Storage: TypeAlias = Literal["float32", "float16", "int8"]
Weights: TypeAlias = "Mapping[str, np.ndarray[Any, Any]]"

SCALES = ".scales"  # ending of the name of a weight's scales
_LEVELS = 127  # of int8, on either side of 0


class StorageError(UserError, ValueError):
    """An error: a weight cannot be stored in float16 or int8."""


def stored(weights: Weights, storage: Storage) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays that store the weights: matrices in ``storage``, biases and norms in float32.

    In int8, W ≈ s Q with integers Q and scales s = max |W| / 127.  The scales are a float32 array, NAME.scales.
    A linear map has one scale for each output column, as in ``pack_weight``; a table (of embeddings or positions) has
    one for each row.  Shapes: Q (R, C), s (1, C) or (R, 1).
    The error of a weight w is at most s / 2 in int8, and the greater of 2⁻¹¹ |w| and 2⁻²⁵ in float16.
    Raises: StorageError for a weight that is not finite, or too large for float16.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, weight in weights.items():
        if weight.ndim < 2 or storage == "float32":
            arrays[name] = weight.astype(np.float32)
        elif storage == "float16":
            with np.errstate(over="ignore"):
                arrays[name] = weight.astype(np.float16)
            _require_finite(name, arrays[name], storage)
        else:
            arrays[name], arrays[name + SCALES] = _quantise(name, weight)
    return arrays


def _quantise(name: str, weight: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the integers and the scales of a matrix; a column or row of zeros has the scale 1."""
    is_linear = name.startswith(("encoder.", "decoder."))  # (in, out); all other matrices are tables
    scales = np.abs(weight).max(0 if is_linear else 1, keepdims=True).astype(np.float32) / _LEVELS
    _require_finite(name, scales, "int8")
    scales[scales == 0] = 1
    return np.rint(weight / scales).astype(np.int8), scales


def _require_finite(name: str, array: np.ndarray[Any, Any], storage: Storage) -> None:
    if not np.isfinite(array).all():
        raise StorageError(
            f"{name}: has a weight that is not finite in {storage}; store the model in float32, and look whether its"
            " training diverged"
        )


def restored(arrays: Weights, path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the weights from a result of ``stored``: float16 and int8 become float32, other arrays stay as they are.

    Raises: CorruptFileError if an int8 array lacks its scales; the message names ``path``, the arrays' file.
    """
    weights = dict(arrays)
    for name, array in arrays.items():
        if array.dtype == np.int8:
            scales = weights.pop(name + SCALES, None)
            if scales is None or not _scales_fit(scales, array):
                raise CorruptFileError(
                    f"{path}: {name} is of type I8, for which {name + SCALES} must hold one F32 for each row or column;"
                    f" found {'nothing' if scales is None else f'{scales.dtype} {scales.shape}'}"
                )
            weights[name] = array * scales
        elif array.dtype == np.float16:
            weights[name] = array.astype(np.float32)
    return weights


def _scales_fit(scales: np.ndarray[Any, Any], array: np.ndarray[Any, Any]) -> bool:
    n_rows, n_columns = array.shape if array.ndim == 2 else (0, 0)
    return scales.dtype == np.float32 and scales.shape in ((1, n_columns), (n_rows, 1))
