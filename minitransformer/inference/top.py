"""The likeliest next tokens of every hypothesis, without a pass over the vocabulary for each thing one asks of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from autograd import namespace, to_device, to_host
from autograd.array import Array, device_of
from autograd.ops.normalisation import log_normaliser

FloatArray = np.ndarray[Any, np.dtype[np.float64]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

DEPTH = 32  # columns in a class: their maxima are found at the speed of memory


def likeliest(logits: Array, n: int, forbidden: Any) -> tuple[FloatArray, IntArray]:
    """The ``n`` greatest log-probabilities of each row with their columns, greatest first; on the host.

    ``forbidden`` says what may not be chosen, by writing −∞ into the logits; it is called when the rows' sums over the
    whole vocabulary have been taken.
    """
    greatest, log_total = log_normaliser(logits)
    forbidden(logits)
    values, columns = top(logits, n)
    return values - to_host(greatest).astype(np.float64) - to_host(log_total).astype(np.float64), columns


def top(x: Array, n: int) -> tuple[FloatArray, IntArray]:
    """The ``n`` greatest of each row with their columns, greatest first, of equals the first columns; on the host."""
    n = min(n, x.shape[1])
    values, columns, n_reaching = _top_in_any_order(x, n)
    tied = np.flatnonzero((n_reaching > n) & (values.min(1) > -np.inf))
    if len(tied):  # the partition has chosen among equals as it liked
        rows = to_host(x[to_device(tied, device_of(x))])
        columns[tied] = np.argsort(-rows, axis=1, kind="stable")[:, :n]
        values[tied] = take(rows, columns[tied])
    order = np.lexsort((columns, -values))
    return take(values, order).astype(np.float64), take(columns, order)


def _top_in_any_order(x: Array, n: int) -> tuple[Any, IntArray, IntArray]:
    """The ``n`` greatest, their columns, and for each row a number greater than n if others equal the n-th greatest."""
    maxima, searched = _candidates(x, n)
    numbers = to_host(x[namespace(x).arange(len(x))[:, None], to_device(searched, device_of(x))])
    best = np.argpartition(numbers, numbers.shape[1] - n, axis=1)[:, numbers.shape[1] - n :]
    values = take(numbers, best)
    least = values.min(1, keepdims=True)
    return values, take(searched, best), np.maximum((maxima >= least).sum(1), (numbers >= least).sum(1))


def _candidates(x: Array, n: int) -> tuple[Any, IntArray]:
    """Columns among which are the ``n`` greatest of each row, and the maxima of all classes of columns.

    Columns c, c + C, c + 2 C … of the first ``DEPTH`` · C are a class: the n greatest numbers lie in the n classes with
    the greatest maxima, or behind all classes.
    """
    n_rows, n_columns = x.shape
    n_classes = n_columns // DEPTH
    if n_classes <= n:
        return np.empty((n_rows, 0)), np.broadcast_to(np.arange(n_columns), x.shape)
    in_classes = n_classes * DEPTH
    maxima = to_host(x[:, :in_classes].reshape(n_rows, DEPTH, n_classes).max(1))
    classes = np.argpartition(maxima, n_classes - n, axis=1)[:, n_classes - n :]
    members = (classes[:, None, :] + n_classes * np.arange(DEPTH)[:, None]).reshape(n_rows, n * DEPTH)
    behind = np.broadcast_to(np.arange(in_classes, n_columns), (n_rows, n_columns - in_classes))
    return maxima, np.concatenate([members, behind], axis=1)


def take(x: Any, columns: IntArray) -> Any:
    """The elements of each row of x in these columns."""
    return np.take_along_axis(x, columns, axis=1)
