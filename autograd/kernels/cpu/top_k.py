"""The k greatest log-probabilities of a projection, found while its logits are in the cache.

A projection by panels would write the logits to memory in narrow columns, and read them again for their maxima and
their exponentials.  Here the logits stay in tiles, the results of the small products.  Maxima and exponentials of each
chunk of tiles are computed before the next chunk is multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autograd.array import Array, FloatArray, IntArray
from autograd.kernels.cpu.panels import COLUMNS, PackedWeight, groups_of_rows
from autograd.ops.softmax import log_normaliser
from autograd.ops.top_k import DEPTH, linear_top_k, top_of_rows

ROWS_IN_CACHE = 128  # then a block of DEPTH panels has 512 KiB; with fewer rows a chunk has several blocks
MARGIN = 40.0  # nats by which a number may exceed the shift of its exponential: sums stay far from infinity


def _has_classes_enough(x: Array, weight: Array, bias: Array | None, *, n: int, never: Sequence[int]) -> bool:
    del bias, never
    return isinstance(weight, PackedWeight) and len(x) > 0 and weight.n_panels // DEPTH * COLUMNS > n


@linear_top_k.kernel("cpu", supports=_has_classes_enough)
def linear_top_k_in_tiles(
    x: Array, weight: PackedWeight, bias: Array | None, *, n: int, never: Sequence[int]
) -> tuple[FloatArray, IntArray]:
    """Compute ``linear_top_k`` for a weight in panels."""
    found = []
    for groups in groups_of_rows(x):
        tiles = _Tiles(groups, weight, bias, never)
        values, columns = top_of_rows(tiles, n)
        found.append((values - tiles.log_normaliser, columns))
    of_values, of_columns = zip(*found, strict=True)
    return np.concatenate(of_values), np.concatenate(of_columns)


class _Tiles:
    """Products of groups of rows (G, h, I) with a matrix in panels, as ``Rows``: G · h rows.

    ``DEPTH`` successive panels are a block.  The columns with the same index in the panels of a block are a column
    group.  The last block is filled up with −∞; columns after the last full panel are in no group.
    Shapes: numbers (blocks · DEPTH, G · h, COLUMNS), rest (G · h, W mod COLUMNS), log_normaliser (G · h, 1).
    """

    def __init__(self, groups: Array, weight: PackedWeight, bias: Array | None, never: Sequence[int]) -> None:
        n_groups, height, _ = groups.shape
        self.n_panels, self.n_rows, dtype = weight.n_panels, n_groups * height, np.result_type(groups, weight)
        n_blocks = -(-self.n_panels // DEPTH)
        tiles = np.empty((n_blocks * DEPTH, n_groups, height, COLUMNS), dtype)
        tiles[self.n_panels :] = -np.inf
        self.numbers = tiles.reshape(-1, self.n_rows, COLUMNS)
        self._maxima = np.empty((n_blocks, self.n_rows, COLUMNS), dtype)
        sums = _SumsOfExponentials()
        per_chunk = DEPTH * max(1, ROWS_IN_CACHE // self.n_rows)
        for start in range(0, self.n_panels, per_chunk):
            panels = slice(start, min(start + per_chunk, self.n_panels))
            weight.multiply_panels(groups, panels, tiles[panels])
            if bias is not None:
                self.numbers[panels] += bias[start * COLUMNS : panels.stop * COLUMNS].reshape(-1, 1, COLUMNS)
            sums.add(self.numbers[panels], self._find_maxima(slice(start // DEPTH, (start + per_chunk) // DEPTH)))
        self.rest = groups.reshape(self.n_rows, -1) @ np.asarray(weight)[:, self.n_panels * COLUMNS :]
        if bias is not None:
            self.rest += bias[self.n_panels * COLUMNS :]
        self.log_normaliser = sums.log_normaliser_with(self.rest)
        self._forbid(never)

    def _find_maxima(self, blocks: slice) -> Any:
        """Set the maxima of all column groups of these computed blocks; return the maximum of each row, (…, 1)."""
        of_blocks = self.numbers[blocks.start * DEPTH : blocks.stop * DEPTH]
        found = of_blocks.reshape(-1, DEPTH, self.n_rows, COLUMNS).max(1, out=self._maxima[blocks])
        return found.max(0).max(-1, keepdims=True)

    def _forbid(self, columns: Sequence[int]) -> None:
        for panel, column in (divmod(column, COLUMNS) for column in columns):
            if panel < self.n_panels:
                self.numbers[panel, :, column] = -np.inf
                self._find_maxima(slice(panel // DEPTH, panel // DEPTH + 1))
            else:
                self.rest[:, column] = -np.inf

    @property
    def maxima(self) -> Any:
        """Implement ``Rows``."""
        return self._maxima.swapaxes(0, 1).reshape(self.n_rows, -1)

    def members(self, classes: IntArray) -> tuple[IntArray, Any]:
        """Implement ``Rows``."""
        block, column = (number[:, :, None] for number in np.divmod(classes, COLUMNS))
        panels = block * DEPTH + np.arange(DEPTH)
        numbers = self.numbers[panels, np.arange(self.n_rows)[:, None, None], column]
        first = self.n_panels * COLUMNS
        behind = np.broadcast_to(np.arange(first, first + self.rest.shape[1]), self.rest.shape)
        columns = np.minimum(panels * COLUMNS + column, first - 1)  # padding (−∞): any valid column
        return (
            np.concatenate([columns.reshape(self.n_rows, -1), behind], axis=1),
            np.concatenate([numbers.reshape(self.n_rows, -1), self.rest], axis=1),
        )

    def whole(self, rows: IntArray) -> Any:
        """Implement ``Rows``."""
        in_panels = self.numbers[: self.n_panels, rows].swapaxes(0, 1).reshape(len(rows), -1)
        return np.concatenate([in_panels, self.rest[rows]], axis=1)


class _SumsOfExponentials:
    """Running Σ exp(numbers − shift) of each row over chunks of numbers; the shift grows when numbers exceed it.

    Source: Milakov & Gimelshein 2018, Online normalizer calculation for softmax, algorithm 3.
    Shapes: shift and total (rows, COLUMNS), because whole tiles are faster; all columns of the shift are equal.
    """

    def __init__(self) -> None:
        self.shift: Any = None
        self.total: Any = 0.0

    def add(self, chunk: Array, greatest: Array) -> None:
        """Add numbers (P, rows, COLUMNS), given the maximum of each row (rows, 1)."""
        if self.shift is None:
            self.shift = np.repeat(greatest, COLUMNS, axis=1)
        elif (greatest > self.shift[:, :1] + MARGIN).any():
            raised = np.maximum(self.shift, greatest)
            self.total *= np.exp(self.shift - raised)
            self.shift = raised
        exponentials = chunk - self.shift
        np.exp(exponentials, out=exponentials)
        self.total += exponentials.sum(0)

    def log_normaliser_with(self, rest: Array) -> FloatArray:
        """Return log Σ exp over all added numbers and ``rest`` (rows, ·), for each row: (rows, 1) in float64."""
        summed = np.log(self.total.sum(-1, keepdims=True, dtype=np.float64)) + self.shift[:, :1]
        if rest.shape[1]:
            summed = np.logaddexp(summed, np.add(*log_normaliser(rest), dtype=np.float64))
        return np.asarray(summed)
