"""The tables of positions of CTranslate2 models: ours, if they are sinusoids, and learned ones if not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitransformer.config import ModelConfig
from minitransformer.config.model import PositionLayout
from minitransformer.convert.positions import sines_first
from minitransformer.model.positions import sinusoids

Array = np.ndarray[Any, Any]

N_STORED = 2_048  # rows of a stored table of sinusoids, as in CTranslate2's own converter of Marian models
_MOST_FIRST_POSITIONS = 4  # fairseq's first position is 2, OpenNMT-tf's is 1, all others' is 0
_ROUNDING = {"float16": 5e-4}  # of values up to 1; float32 otherwise
_ROUNDING_OF_ANGLES = 2e-7  # relative, of positions × frequencies in float32


@dataclass(frozen=True)
class Sinusoids:
    """A table of sinusoids: its layout, its first position, and whether its columns are sorted.

    Sorted columns are those of the layout "interleaved", with all sines before all cosines.
    """

    layout: PositionLayout
    first_position: int
    is_sorted: bool = False


COMPUTED = Sinusoids("halves", 1)  # which CTranslate2 computes itself, if a model has no table


def recognise_sinusoids(table: Array, stored_type: str) -> Sinusoids | None:
    """Return the sinusoids that a table (N, D) contains, up to rounding; None if it contains others, or is learned.

    Sorted columns come from Marian models in Hugging Face's transformers.  (Marian itself has the frequencies of
    "halves".)
    Source: CTranslate2 4.8.5, ``_make_sinusoidal_position_encodings`` of ``converters/marian.py``.
    """
    n, d_model = table.shape
    if d_model % 2:
        return None
    candidates: tuple[tuple[PositionLayout, bool], ...] = (
        ("interleaved", False), ("halves", False), ("interleaved", True),
    )  # fmt: skip
    for layout, is_sorted in candidates:
        expected = sinusoids(n + _MOST_FIRST_POSITIONS, d_model, layout)
        if is_sorted:
            expected = expected[:, sines_first(d_model)]
        for first in range(_MOST_FIRST_POSITIONS):
            tolerance = _ROUNDING.get(stored_type, 1e-5) + _ROUNDING_OF_ANGLES * np.arange(first, first + n)[:, None]
            if (np.abs(table - expected[first : first + n]) <= tolerance).all():
                return Sinusoids(layout, first, is_sorted)
    return None


def table_of(positions: Sinusoids, n: int, d_model: int) -> Array:
    """Return the first n rows (n, D) of a table of sinusoids."""
    rows = sinusoids(n + positions.first_position, d_model, positions.layout)[positions.first_position :]
    return (rows[:, sines_first(d_model)] if positions.is_sorted else rows).astype(np.float32)


StoredTables = tuple[Array, Array] | None  # of the encoder and the decoder; None if CTranslate2 computes them


def _learned_tables(config: ModelConfig, weights: Mapping[str, Array]) -> StoredTables:
    tables = (weights["source_positions.weight"], weights["target_positions.weight"])
    return tables[0][config.first_position :], tables[1][config.first_position :]


def _sinusoids(config: ModelConfig, weights: Mapping[str, Array]) -> StoredTables:
    positions = Sinusoids(config.positions, config.first_position)
    if positions == COMPUTED:
        return None
    table = table_of(positions, N_STORED, config.d_model)
    return table, table


STORED_TABLES: dict[str, Callable[[ModelConfig, Mapping[str, Array]], StoredTables]] = {  # for each layout of positions
    "interleaved": _sinusoids, "halves": _sinusoids, "learned": _learned_tables,
}  # fmt: skip
