"""The likeliest classes of a projection, asked for while its results are in the cache.

The logits of a vocabulary, if they come panel after panel, are written to memory in narrow stripes, and read again for
their maxima and for their exponentials.  Here they stay in tiles, as small products give them, and each chunk of them
is asked for both before the next one is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.panels import COLUMNS, MatrixInPanels, groups_of_rows
from autograd.ops.softmax import log_normaliser
from autograd.ops.top_k import DEPTH, FloatArray, IntArray, linear_top_k, top_of_rows

ROWS_IN_CACHE = 128  # of them a block of DEPTH panels has 512 KiB; of fewer rows several blocks are one chunk
ROOM = 40.0  # nats that a number may exceed the shift of its exponential by: sums are far from infinite then


def _has_classes_enough(x: Array, weight: Array, bias: Array | None, *, n: int, never: Sequence[int]) -> bool:
    del bias, never
    return isinstance(weight, MatrixInPanels) and len(x) > 0 and weight.n_panels // DEPTH * COLUMNS > n


@linear_top_k.kernel("cpu", supports=_has_classes_enough)
def linear_top_k_in_tiles(
    x: Array, weight: MatrixInPanels, bias: Array | None, *, n: int, never: Sequence[int]
) -> tuple[FloatArray, IntArray]:
    """See ``linear_top_k``; the weight is in panels."""
    found = []
    for groups in groups_of_rows(x):
        tiles = _Tiles(groups, weight, bias, never)
        values, columns = top_of_rows(tiles, n)
        found.append((values - tiles.log_normaliser, columns))
    of_values, of_columns = zip(*found, strict=True)
    return np.concatenate(of_values), np.concatenate(of_columns)


class _Tiles:
    """Groups of rows (G, h, I) times a matrix in panels, as ``Rows`` are looked for: G · h of them.

    The columns that have the same place in ``DEPTH`` panels in a row, a block, are a class; the last block is filled up
    with −∞.  Columns behind the last whole panel are in no class.
    Shapes: numbers (blocks · DEPTH, G · h, COLUMNS), rest (G · h, W mod COLUMNS), log_normaliser (G · h, 1).
    """

    def __init__(self, groups: Array, weight: MatrixInPanels, bias: Array | None, never: Sequence[int]) -> None:
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
        """The maxima of the classes of some blocks, which have been computed; returns those of their rows, (…, 1)."""
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
        """See ``Rows``."""
        return self._maxima.swapaxes(0, 1).reshape(self.n_rows, -1)

    def members(self, classes: IntArray) -> tuple[IntArray, Any]:
        """See ``Rows``."""
        block, column = (number[:, :, None] for number in np.divmod(classes, COLUMNS))
        panels = block * DEPTH + np.arange(DEPTH)
        numbers = self.numbers[panels, np.arange(self.n_rows)[:, None, None], column]
        first = self.n_panels * COLUMNS
        behind = np.broadcast_to(np.arange(first, first + self.rest.shape[1]), self.rest.shape)
        columns = np.minimum(panels * COLUMNS + column, first - 1)  # of what fills up the last block: an impossible one
        return (
            np.concatenate([columns.reshape(self.n_rows, -1), behind], axis=1),
            np.concatenate([numbers.reshape(self.n_rows, -1), self.rest], axis=1),
        )

    def whole(self, rows: IntArray) -> Any:
        """See ``Rows``."""
        in_panels = self.numbers[: self.n_panels, rows].swapaxes(0, 1).reshape(len(rows), -1)
        return np.concatenate([in_panels, self.rest[rows]], axis=1)


class _SumsOfExponentials:
    """Σ exp(numbers − shift) of each row, for numbers that come in chunks; the shift follows what turns out too great.

    Source: Milakov & Gimelshein 2018, Online normalizer calculation for softmax, algorithm 3.
    Shapes: shift and total (rows, COLUMNS), for the speed of whole tiles; every column of the shift is the same.
    """

    def __init__(self) -> None:
        self.shift: Any = None
        self.total: Any = 0.0

    def add(self, chunk: Array, greatest: Array) -> None:
        """Add numbers (P, rows, COLUMNS), of which the greatest of each row (rows, 1) are known."""
        if self.shift is None:
            self.shift = np.repeat(greatest, COLUMNS, axis=1)
        elif (greatest > self.shift[:, :1] + ROOM).any():
            raised = np.maximum(self.shift, greatest)
            self.total *= np.exp(self.shift - raised)
            self.shift = raised
        exponentials = chunk - self.shift
        np.exp(exponentials, out=exponentials)
        self.total += exponentials.sum(0)

    def log_normaliser_with(self, rest: Array) -> FloatArray:
        """Of each row, (rows, 1), log Σ exp of what was added and of more numbers (rows, ·), in float64."""
        summed = np.log(self.total.sum(-1, keepdims=True, dtype=np.float64)) + self.shift[:, :1]
        if rest.shape[1]:
            summed = np.logaddexp(summed, np.add(*log_normaliser(rest), dtype=np.float64))
        return np.asarray(summed)
