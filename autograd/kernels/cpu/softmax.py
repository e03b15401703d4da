"""The denominator of softmax, in runs of rows that fit in the cache."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.runs import runs
from autograd.ops.softmax import log_normaliser

RUN = 65_536  # elements: x and its exponentials take 512 KiB of float32


@log_normaliser.kernel("cpu")
def log_normaliser_in_runs(x: Array) -> tuple[Array, Array]:
    """Compute the reference's result, with a temporary of the size of a run."""
    rows = x.reshape(-1, x.shape[-1])
    greatest, log_total = np.empty((2, len(rows), 1), x.dtype)
    for run in runs(rows, RUN):
        z = rows[run]
        np.max(z, axis=1, keepdims=True, out=greatest[run])
        shifted = z - greatest[run]
        log_total[run] = np.log(np.exp(shifted, out=shifted).sum(1, keepdims=True))
    return greatest.reshape(*x.shape[:-1], 1), log_total.reshape(*x.shape[:-1], 1)
