"""The n greatest numbers of each row, and the n greatest log-probabilities of a projection; results are on the host."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, BoolArray, FloatArray, IntArray, device_of, namespace, to_device, to_host
from autograd.op import Dispatch
from autograd.ops.linear import linear
from autograd.ops.softmax import log_normaliser


@Dispatch
def linear_top_k(
    x: Array, weight: Array, bias: Array | None, *, n: int, forbidden: BoolArray
) -> tuple[FloatArray, IntArray]:
    """Return the ``n`` greatest of log softmax(x W + b) in each row that are not forbidden, and their columns.

    The softmax is over all columns, forbidden ones included.  If a row has less than n others, the rest is −∞.
    Shapes: x (T, I), weight (I, W), bias (W,) or None, forbidden (T, W), or (1, W) for all rows.
    Returns two (T, n), greatest first, ties by column.
    """
    logits, _ = linear.of_arrays(x, weight, bias)
    greatest, log_total = log_normaliser(logits)
    namespace(logits).copyto(logits, -np.inf, where=to_device(forbidden, device_of(logits)))
    values, columns = top(logits, n)
    return values - to_host(greatest).astype(np.float64) - to_host(log_total).astype(np.float64), columns


def top(x: Array, n: int) -> tuple[FloatArray, IntArray]:
    """Return the ``n`` greatest numbers of each row and their columns, greatest first, ties by column.

    Shapes: x (T, W).  Returns two (T, n), or (T, W) if W is less than n.
    """
    n, xp = min(n, x.shape[1]), namespace(x)
    least = -xp.partition(-x, n - 1, axis=1)[:, n - 1 : n]  # the n-th greatest
    found = xp.argwhere(~(x < least))  # NaN included; in order of rows, then of columns
    values, (rows, columns) = to_host(x[found[:, 0], found[:, 1]]), to_host(found).T
    first = np.searchsorted(rows, np.arange(len(x)))
    order = np.lexsort((-values, rows))  # stable, so equal values stay in order of columns
    best = order[first[:, None] + np.arange(n)]
    return values[best].astype(np.float64), columns[best]


def take(x: Array, columns: IntArray) -> Array:
    """Return the elements of each row of x in these columns."""
    return np.take_along_axis(x, columns, axis=1)
