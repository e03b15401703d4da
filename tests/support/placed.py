"""Matrices on a device, amid numbers that nobody may read or overwrite."""

from typing import Any

import numpy as np
import pytest

from autograd import to_device, to_host

TYPES = [("float32", "float32"), ("bfloat16", "bfloat16"), ("bfloat16", "float32")]  # of factors, and of a product
TOLERANCE = {"float32": 2e-6, "bfloat16": 4e-3}
MARGIN = 8  # rows and columns around every matrix


def rounded(x: Any, dtype: str) -> Any:
    """Numbers that a dtype can hold, in float64."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 needs ml_dtypes (pip install ml_dtypes)")
    return np.asarray(x).astype(np.dtype(dtype)).astype(np.float64)


def draw(*shape: int, dtype: str = "float32") -> Any:
    return rounded(np.random.default_rng(sum(shape)).standard_normal(shape), dtype)


class Placed:
    """A matrix, or a stack of them in one array, each amid NaN: what is read beside it spoils sums."""

    def __init__(self, values: Any, dtype: str = "float32", *, transposed: bool = False) -> None:
        values = values.swapaxes(-1, -2) if transposed else values
        *stack, rows, columns = values.shape
        surroundings = np.full((*stack, rows + 2 * MARGIN, columns + 2 * MARGIN), np.nan).astype(np.dtype(dtype))
        self.inside = ..., slice(MARGIN, MARGIN + rows), slice(MARGIN, MARGIN + columns)
        surroundings[self.inside] = values
        self.surroundings = to_device(surroundings, "cuda")
        inside = self.surroundings[self.inside]
        self.array = inside.swapaxes(-1, -2) if transposed else inside

    @property
    def matrices(self) -> list[Any]:
        return [self.array[i] for i in range(len(self.array))]

    def values(self) -> Any:
        """What is in the matrices, in float64; beside them is what was there."""
        surroundings = to_host(self.surroundings).astype(np.float64)
        values = surroundings[self.inside].copy()
        surroundings[self.inside] = np.nan
        assert np.isnan(surroundings).all(), "a product wrote beside its result"
        return values


def nothing(*shape: int, dtype: str = "float32") -> Placed:
    return Placed(np.full(shape, np.nan), dtype)
