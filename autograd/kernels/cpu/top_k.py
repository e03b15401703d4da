"""The n greatest log-probabilities of a projection with a packed weight, without its logits in memory."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, BoolArray, FloatArray, IntArray
from autograd.blas import n_product_threads
from autograd.kernels.cpu.library import Function
from autograd.kernels.cpu.linear import empty_rounded
from autograd.ops.linear import check_linear
from autograd.ops.top_k import forbidden_columns, linear_top_k
from autograd.packed_weight import PackedWeight

CHUNK = 128  # columns, as in top_k.c
PARTS = 4  # per thread: small parts, so that an interrupted thread delays the others little

_linear_top_k = Function("linear_top_k")


@linear_top_k.kernel("cpu", supports=lambda x, weight, bias, **static: isinstance(weight, PackedWeight))
def linear_top_k_in_c(
    x: Array, weight: PackedWeight, bias: Array | None, *, n: int, forbidden: BoolArray, rule: BoolArray | None = None
) -> tuple[FloatArray, IntArray]:
    """Compute the reference's result; the columns are divided among threads."""
    check_linear("linear_top_k", x, weight, bias)
    (n_rows, n_terms), n_columns, n_threads = x.shape, weight.shape[1], n_product_threads()
    n_parts = PARTS * n_threads if n_threads > 1 else 1
    n = min(n, n_columns)
    mask = np.ascontiguousarray(forbidden_columns(forbidden, rule, n_rows)).view(np.uint8)
    values, part_columns = np.empty((n_parts, n_rows, n), np.float32), np.empty((n_parts, n_rows, n), np.int64)
    greatest, total = np.empty((2, -(-n_columns // CHUNK), n_rows), np.float32)
    log_p, columns = np.empty((n_rows, n)), np.empty((n_rows, n), np.int64)
    _linear_top_k(
        np.ascontiguousarray(x, np.float32),
        empty_rounded(x, weight),
        weight.panels,
        weight.words,
        weight.scales,
        bias,
        mask,
        n_columns if len(mask) > 1 else 0,
        values,
        part_columns,
        greatest,
        total,
        log_p,
        columns,
        n_rows,
        n_terms,
        n_columns,
        n,
        n_parts,
        n_threads,
    )
    return log_p, columns
