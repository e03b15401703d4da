"""The n greatest numbers of each row, or log-probabilities of logits, in one kernel launch."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, device_of, namespace, to_device
from autograd.kernels.cuda.driver import launch
from autograd.ops.top_k import log_softmax_top, top

SOURCE = "top_k.cu"
KERNELS = {"float32": "top_k_float", "float64": "top_k_double"}  # by dtype
LOG_SOFTMAX = "log_softmax_top"
MOST_THREADS = 1024


def _is_supported(x: Array, *, n: int) -> bool:
    return str(x.dtype) in KERNELS and x.ndim == 2 and x.shape[1] > 0 and x.flags.c_contiguous


@top.kernel("cuda", supports=_is_supported)
def top_in_one_block(x: Array, *, n: int) -> tuple[Array, Array]:
    """Compute the reference's result; a block computes a row."""
    xp, (n_rows, width) = namespace(x), x.shape
    n = min(n, width)
    values, columns = xp.empty((n_rows, n), x.dtype), xp.empty((n_rows, n), np.int64)
    if n_rows and n:
        numbers = np.int64(width), np.int32(n)
        launch(SOURCE, KERNELS[str(x.dtype)], n_rows, _count_threads(width), x, values, columns, *numbers)
    return values, columns


def _count_threads(width: int) -> int:
    return min(MOST_THREADS, -(-width // 32) * 32)


def _is_float32(logits: Array, forbidden: Array, rule: Array | None = None, *, n: int) -> bool:
    del forbidden, rule
    return logits.dtype == np.float32 and _is_supported(logits, n=n)


@log_softmax_top.kernel("cuda", supports=_is_float32)
def log_softmax_top_in_one_block(
    logits: Array, forbidden: Array, rule: Array | None = None, *, n: int
) -> tuple[Array, Array]:
    """Compute the reference's result, and leave the logits as they are; a block reads a row twice."""
    xp, (n_rows, width) = namespace(logits), logits.shape
    n, forbidden = min(n, width), xp.ascontiguousarray(to_device(forbidden, device_of(logits)))
    log_p, columns = xp.empty((n_rows, n), np.float64), xp.empty((n_rows, n), np.int64)
    if n_rows and n:
        arrays = logits, forbidden, rule, log_p, columns
        numbers = np.int64(width), np.int64(width if len(forbidden) > 1 else 0), np.int32(n)
        rows_of_rule = np.int32(1 if rule is None else n_rows // len(rule))
        launch(SOURCE, LOG_SOFTMAX, n_rows, _count_threads(width), *arrays, *numbers, rows_of_rule)
    return log_p, columns
