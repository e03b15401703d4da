"""The n greatest numbers of each row, and the n greatest log-probabilities of a softmax; results are on the host.

Search needs three things from the logits of a vocabulary: the maximum of each row, the sum of exponentials, and the n
greatest logits.  To find the n greatest, take the maximum of each column group, which costs one pass over memory, then
search only the best n groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from autograd.array import Array, FloatArray, IntArray, device_of, namespace, to_device, to_host
from autograd.op import Dispatch
from autograd.ops.linear import linear
from autograd.ops.softmax import log_normaliser

DEPTH = 32  # columns in a group


class Rows(Protocol):
    """Rows of numbers whose columns are divided into groups; some last columns may be in no group."""

    @property
    def maxima(self) -> Any:
        """Maximum of each column group: (rows, groups)."""

    def members(self, classes: IntArray) -> tuple[IntArray, Any]:
        """Return the columns and numbers of n groups of each row, and of the columns in no group: two (rows, ·).

        Shapes: classes (rows, n), the indices of the groups.
        """

    def whole(self, rows: IntArray) -> Any:
        """Return all numbers of some rows, in the order of their columns: (rows, W)."""


@Dispatch
def linear_top_k(
    x: Array, weight: Array, bias: Array | None, *, n: int, never: Sequence[int]
) -> tuple[FloatArray, IntArray]:
    """Return the ``n`` greatest of log softmax(x W + b) in each row, and their columns; columns ``never`` are excluded.

    Shapes: x (T, I), weight (I, W), bias (W,) or None.  Returns two (T, n), greatest first, ties by column.
    """
    logits, _ = linear.of_arrays(x, weight, bias)

    def forbid(logits: Array) -> None:
        logits[:, list(never)] = -namespace(logits).inf

    return top_k(logits, n, forbid)


def top_k(logits: Array, n: int, forbid: Any) -> tuple[FloatArray, IntArray]:
    """Return the ``n`` greatest log-probabilities of each row and their columns, greatest first.

    ``forbid`` writes −∞ into logits that must not be chosen.  It is called after the softmax denominators have been
    computed over all columns.
    """
    greatest, log_total = log_normaliser(logits)
    forbid(logits)
    values, columns = top(logits, n)
    return values - to_host(greatest).astype(np.float64) - to_host(log_total).astype(np.float64), columns


def top(x: Array, n: int) -> tuple[FloatArray, IntArray]:
    """Return the ``n`` greatest numbers of each row and their columns, greatest first, ties by column."""
    n = min(n, x.shape[1])
    n_classes = x.shape[1] // DEPTH
    return top_of_rows(_RowsInMemory(x, n_classes if n_classes > n else 0), n)


def top_of_rows(rows: Rows, n: int) -> tuple[FloatArray, IntArray]:
    """Return ``top`` of rows with more than ``n`` column groups, or without groups.

    The n greatest are in the n groups with the greatest maxima, or in no group.
    """
    maxima = rows.maxima
    n_classes = maxima.shape[1]
    classes = np.argpartition(maxima, n_classes - n, axis=1)[:, n_classes - n :] if n_classes else maxima
    columns, numbers = rows.members(classes)
    best = np.argpartition(numbers, numbers.shape[1] - n, axis=1)[:, numbers.shape[1] - n :]
    values, columns = take(numbers, best), take(columns, best)
    least = values.min(1, keepdims=True)
    n_reaching = np.maximum((maxima >= least).sum(1), (numbers >= least).sum(1))
    tied = np.flatnonzero((n_reaching > n) & (least[:, 0] > -np.inf))
    if len(tied):  # argpartition chooses among equal numbers arbitrarily
        whole = rows.whole(tied)
        columns[tied] = np.argsort(-whole, axis=1, kind="stable")[:, :n]
        values[tied] = take(whole, columns[tied])
    order = np.lexsort((columns, -values))
    return take(values, order).astype(np.float64), take(columns, order)


class _RowsInMemory:
    """An array (rows, W) on any device.  Columns c, c + C, c + 2 C … of the first ``DEPTH`` · C form group c of C."""

    def __init__(self, x: Array, n_classes: int) -> None:
        self.x, self.n_classes, self.in_classes = x, n_classes, n_classes * DEPTH
        of_classes = x[:, : self.in_classes].reshape(len(x), DEPTH, n_classes)
        self.maxima = to_host(of_classes.max(1)) if n_classes else np.empty((len(x), 0), np.int64)

    def members(self, classes: IntArray) -> tuple[IntArray, Any]:
        """Implement ``Rows``."""
        (n_rows, n_columns), n = self.x.shape, classes.shape[1]
        members = (classes[:, None, :] + self.n_classes * np.arange(DEPTH)[:, None]).reshape(n_rows, n * DEPTH)
        behind = np.broadcast_to(np.arange(self.in_classes, n_columns), (n_rows, n_columns - self.in_classes))
        columns = np.concatenate([members, behind], axis=1)
        each = namespace(self.x).arange(n_rows)[:, None]
        return columns, to_host(self.x[each, to_device(columns, device_of(self.x))])

    def whole(self, rows: IntArray) -> Any:
        """Implement ``Rows``."""
        return to_host(self.x[to_device(rows, device_of(self.x))])


def take(x: Any, columns: IntArray) -> Any:
    """Return the elements of each row of x in these columns."""
    return np.take_along_axis(x, columns, axis=1)
