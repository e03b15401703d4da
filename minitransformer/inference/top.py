"""The likeliest next tokens of every hypothesis, without a pass over the vocabulary for each thing one asks of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from autograd import namespace, to_device, to_host
from autograd.array import Array, device_of
from autograd.ops.normalisation import log_normaliser

FloatArray = np.ndarray[Any, np.dtype[np.float64]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

BLOCK = 64  # columns: a maximum for each such block is found at the speed of memory


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
    """The ``n`` greatest of each row with their columns, greatest first, of equals the first columns; on the host.

    The n greatest numbers lie in the n blocks with the greatest maxima, so only these are searched.
    """
    n_blocks = x.shape[1] // BLOCK
    if n_blocks <= 2 * n:
        return _top_of_all(x, n)
    whole = n_blocks * BLOCK
    maxima = to_host(x[:, :whole].reshape(len(x), n_blocks, BLOCK).max(2))
    blocks = np.sort(np.argpartition(maxima, n_blocks - n, axis=1)[:, n_blocks - n :], axis=1)
    in_blocks = (blocks[:, :, None] * BLOCK + np.arange(BLOCK)).reshape(len(x), n * BLOCK)
    rest = np.broadcast_to(np.arange(whole, x.shape[1]), (len(x), x.shape[1] - whole))
    searched = np.concatenate([in_blocks, rest], axis=1)
    values, places = _top_of_all(namespace(x).take_along_axis(x, to_device(searched, device_of(x)), axis=1), n)
    columns = take(searched, places)
    least = values[:, -1:]  # an equal number may stand in a block that was not searched, further left
    tied = np.flatnonzero(((maxima >= least).sum(1) > n) & (least[:, 0] > -np.inf))
    if len(tied):
        values[tied], columns[tied] = _top_of_all(x[to_device(tied, device_of(x))], n)
    return values, columns


def _top_of_all(x: Array, n: int) -> tuple[FloatArray, IntArray]:
    """``top`` by a partition of whole rows."""
    xp, n_columns = namespace(x), x.shape[1]
    n = min(n, n_columns)
    columns = xp.argpartition(x, n_columns - n, axis=1)[:, n_columns - n :]
    values = xp.take_along_axis(x, columns, axis=1)
    least = values.min(axis=1, keepdims=True)
    n_equal_or_greater = (x >= least).sum(axis=1, keepdims=True)
    tied = xp.flatnonzero((n_equal_or_greater > n) & (least > -xp.inf))
    if len(tied):  # the partition has chosen among equals as it liked
        columns[tied] = xp.argsort(-x[tied], axis=1, kind="stable")[:, :n]
        values = xp.take_along_axis(x, columns, axis=1)
    values, columns = to_host(values), to_host(columns)
    order = np.lexsort((columns, -values))
    return take(values, order).astype(np.float64), take(columns, order)


def take(x: Any, columns: IntArray) -> Any:
    """The elements of each row of x in these columns."""
    return np.take_along_axis(x, columns, axis=1)
