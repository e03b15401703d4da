"""The n greatest numbers of each row, and the n greatest log-probabilities of logits and of a projection."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, BoolArray, device_of, namespace, to_device
from autograd.op import Dispatch
from autograd.ops.linear import linear_logits
from autograd.ops.softmax import log_normaliser


@Dispatch
def linear_top_k(
    x: Array, weight: Array, bias: Array | None, *, n: int, forbidden: Array | BoolArray, rule: Array | None = None
) -> tuple[Array, Array]:
    """Return the ``n`` greatest log softmax(x W + b) of each row in columns that are not forbidden, and the columns.

    Shapes: x (T, I), weight (I, W), bias (W,) or None; for the rest see ``log_softmax_top``.
    """
    found: tuple[Array, Array] = log_softmax_top(linear_logits(x, weight, bias), forbidden, rule, n=n)
    return found


@Dispatch
def log_softmax_top(
    logits: Array, forbidden: Array | BoolArray, rule: Array | None = None, *, n: int
) -> tuple[Array, Array]:
    """Return the ``n`` greatest log softmax(logits) of each row in columns that are not forbidden, and the columns.

    The softmax is over all columns, forbidden ones included.  If fewer than n columns are allowed, the rest is −∞.
    The logits may be overwritten.
    Shapes: logits (T, W); forbidden (T, W), or (1, W) for all rows, on any device; with a ``rule`` (B,) bool, forbidden
    is (2, W), and T / B rows each follow one of its rows: the second one where the rule is true.
    Returns two (T, n), or (T, W) if W is less than n, float64 and int64, greatest first, ties by column.
    """
    greatest, log_total = log_normaliser(logits)
    values, columns = top(without(logits, forbidden, rule), n=n)
    return values.astype(np.float64) - greatest.astype(np.float64) - log_total.astype(np.float64), columns


def without(x: Array, forbidden: Array, rule: Array | None) -> Array:
    """Set the forbidden numbers of x (T, W) to −∞; return x.  For the other arguments see ``log_softmax_top``."""
    xp, forbidden = namespace(x), forbidden_columns(to_device(forbidden, device_of(x)), rule, len(x))
    xp.copyto(x, -np.inf, where=forbidden)
    return x


def forbidden_columns(forbidden: Array, rule: Array | None, n_rows: int) -> Array:
    """Return the forbidden columns of each row, or (1, W) for all rows; see ``log_softmax_top``."""
    if rule is None:
        return forbidden
    if namespace(rule) is np and not rule.any():  # on a GPU, reading this would wait
        return forbidden[:1]
    return forbidden[namespace(rule).repeat(rule.astype(np.int64), n_rows // len(rule))]


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
