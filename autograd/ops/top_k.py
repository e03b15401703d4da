"""The greatest numbers of each row, and the likeliest classes of a softmax; what is found lies on the host.

Search asks three things of the logits of a vocabulary: the greatest of each row, the sum of exponentials, and which are
the n greatest.  The last is answered through the maxima of classes of columns, which are found at the speed of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from autograd.array import Array, device_of, namespace, to_device, to_host
from autograd.op import Dispatch
from autograd.ops.linear import linear
from autograd.ops.softmax import log_normaliser

FloatArray = np.ndarray[Any, np.dtype[np.float64]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

DEPTH = 32  # columns in a class


class Rows(Protocol):
    """Rows of numbers, whose columns are divided into classes, but for some that are in none."""

    @property
    def maxima(self) -> Any:
        """The greatest number of every class: (rows, classes)."""

    def members(self, classes: IntArray) -> tuple[IntArray, Any]:
        """Columns and numbers of n classes of each row, (rows, n), and of what is in no class: two (rows, ·)."""

    def whole(self, rows: IntArray) -> Any:
        """All numbers of some rows, in the order of their columns: (rows, W)."""


@Dispatch
def linear_top_k(
    x: Array, weight: Array, bias: Array | None, *, n: int, never: Sequence[int]
) -> tuple[FloatArray, IntArray]:
    """The ``n`` greatest of log softmax(x W + b) in each row but for the classes ``never``, and which they are.

    Shapes: x (T, I), weight (I, W), bias (W,) or None.  Returns two (T, n), greatest first, of equals the first.
    """
    logits, _ = linear.of_arrays(x, weight, bias)

    def forbid(logits: Array) -> None:
        logits[:, list(never)] = -namespace(logits).inf

    return top_k(logits, n, forbid)


def top_k(logits: Array, n: int, forbid: Any) -> tuple[FloatArray, IntArray]:
    """The ``n`` greatest log-probabilities of each row with their columns, greatest first.

    ``forbid`` says what may not be chosen, by writing −∞ into the logits; it is called when the rows' sums over all
    columns have been taken.
    """
    greatest, log_total = log_normaliser(logits)
    forbid(logits)
    values, columns = top(logits, n)
    return values - to_host(greatest).astype(np.float64) - to_host(log_total).astype(np.float64), columns


def top(x: Array, n: int) -> tuple[FloatArray, IntArray]:
    """The ``n`` greatest of each row with their columns, greatest first, of equals the first columns."""
    n = min(n, x.shape[1])
    n_classes = x.shape[1] // DEPTH
    return top_of_rows(_RowsInMemory(x, n_classes if n_classes > n else 0), n)


def top_of_rows(rows: Rows, n: int) -> tuple[FloatArray, IntArray]:
    """``top`` of rows with more than ``n`` classes, or none at all.

    The n greatest lie in the n classes with the greatest maxima, or in no class.
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
    if len(tied):  # the partitions have chosen among equals as they liked
        whole = rows.whole(tied)
        columns[tied] = np.argsort(-whole, axis=1, kind="stable")[:, :n]
        values[tied] = take(whole, columns[tied])
    order = np.lexsort((columns, -values))
    return take(values, order).astype(np.float64), take(columns, order)


class _RowsInMemory:
    """An array (rows, W), on any device: columns c, c + C, c + 2 C … of the first ``DEPTH`` · C are a class."""

    def __init__(self, x: Array, n_classes: int) -> None:
        self.x, self.n_classes, self.in_classes = x, n_classes, n_classes * DEPTH
        of_classes = x[:, : self.in_classes].reshape(len(x), DEPTH, n_classes)
        self.maxima = to_host(of_classes.max(1)) if n_classes else np.empty((len(x), 0), np.int64)

    def members(self, classes: IntArray) -> tuple[IntArray, Any]:
        """See ``Rows``."""
        (n_rows, n_columns), n = self.x.shape, classes.shape[1]
        members = (classes[:, None, :] + self.n_classes * np.arange(DEPTH)[:, None]).reshape(n_rows, n * DEPTH)
        behind = np.broadcast_to(np.arange(self.in_classes, n_columns), (n_rows, n_columns - self.in_classes))
        columns = np.concatenate([members, behind], axis=1)
        each = namespace(self.x).arange(n_rows)[:, None]
        return columns, to_host(self.x[each, to_device(columns, device_of(self.x))])

    def whole(self, rows: IntArray) -> Any:
        """See ``Rows``."""
        return to_host(self.x[to_device(rows, device_of(self.x))])


def take(x: Any, columns: IntArray) -> Any:
    """The elements of each row of x in these columns."""
    return np.take_along_axis(x, columns, axis=1)
