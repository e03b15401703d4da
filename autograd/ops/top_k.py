"""The n greatest numbers of each row, and the n greatest log-probabilities of a projection."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, BoolArray, device_of, namespace, to_device
from autograd.op import Dispatch
from autograd.ops.linear import linear
from autograd.ops.softmax import log_normaliser


@Dispatch
def linear_top_k(
    x: Array, weight: Array, bias: Array | None, *, n: int, forbidden: Array | BoolArray
) -> tuple[Array, Array]:
    """Return the ``n`` greatest log softmax(x W + b) of each row in columns that are not forbidden, and the columns.

    The softmax is over all columns, forbidden ones included.  If fewer than n columns are allowed, the rest is −∞.
    Shapes: x (T, I), weight (I, W), bias (W,) or None, forbidden (T, W), or (1, W) for all rows, on any device.
    Returns two (T, n), or (T, W) if W is less than n, float64 and int64, greatest first, ties by column.
    """
    logits, _ = linear.of_arrays(x, weight, bias)
    greatest, log_total = log_normaliser(logits)
    namespace(logits).copyto(logits, -np.inf, where=to_device(forbidden, device_of(logits)))
    values, columns = top(logits, n=n)
    return values.astype(np.float64) - greatest.astype(np.float64) - log_total.astype(np.float64), columns


@Dispatch
def top(x: Array, *, n: int) -> tuple[Array, Array]:
    """Return the ``n`` greatest numbers of each row and their columns, greatest first, ties by column.

    NaN counts as −∞; the column of a −∞ is undefined.  On a GPU this does not wait for the device, unlike CuPy's sorts
    and partitions.
    Shapes: x (T, W).  Returns two (T, n), or (T, W) if W is less than n: dtype of x, and int64.
    """
    xp, rows, rest = namespace(x), namespace(x).arange(len(x)), x.copy()
    xp.copyto(rest, -np.inf, where=xp.isnan(x))
    values, columns = [], []
    for _ in range(min(n, x.shape[1])):
        column = rest.argmax(axis=1)
        values.append(rest[rows, column])
        columns.append(column)
        rest[rows, column] = -np.inf
    return xp.stack(values, axis=1), xp.stack(columns, axis=1)
