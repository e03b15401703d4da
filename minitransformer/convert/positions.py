"""The order of the features of the residual stream, which some programs' position encodings determine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

# Parameters with one value, or one column, for each feature of the residual stream; and those with one row for each.
_LAST_AXIS = re.compile(
    r"(source_embedding|target_embedding|projection|source_positions|target_positions)\.weight"
    r"|.*norm\.(gain|bias)|.*\.output\.(weight|bias)"
)
_FIRST_AXIS = re.compile(r".*\.(query|key|value|hidden)\.weight")


def sines_first(d_model: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the indices of the sines, then those of the cosines, in "interleaved" position encodings.

    With its features in this order, a model adds [sin(pos / 10000^(2i/D)) …, cos(pos / 10000^(2i/D)) …].  These are
    not the encodings of the layout "halves", whose frequencies differ.
    """
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def sines_between(d_model: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the inverse of ``sines_first``."""
    return np.argsort(sines_first(d_model))


def with_features(
    weights: Mapping[str, np.ndarray[Any, Any]], order: np.ndarray[Any, np.dtype[np.int64]]
) -> dict[str, np.ndarray[Any, Any]]:
    """Return weights that compute the same, but for position encodings, with the features in another order.

    Feature i of the new residual stream is feature ``order[i]`` of the old one.  What reads the residual stream gets
    its rows in this order, what writes to it its columns, and layer norm its gains and biases: no number changes.
    """
    return {
        name: array[..., order]
        if _LAST_AXIS.fullmatch(name)
        else array[order]
        if _FIRST_AXIS.fullmatch(name)
        else array
        for name, array in weights.items()
    }
