"""Embedding whose gradient is added to its destination, in the same order in every run."""

from __future__ import annotations

import numpy as np

from autograd.array import Array, namespace
from autograd.kernels.cuda.driver import STORAGE, launch
from autograd.ops.embedding import embedding, embedding_with_positions
from autograd.precision import as_gradient_of
from autograd.tensor import Backward, PendingGradient

SOURCE, SORT = "embedding.cu", "sort_ids"
THREADS = 256


def kernel_name(dtype: object) -> str:
    """Return the name of the kernel for gradients of this dtype."""
    return f"add_rows_{STORAGE[str(dtype)]}"


def _is_supported(table: Array, ids: Array) -> bool:
    return str(table.dtype) in STORAGE and ids.dtype == np.int64 and table.ndim == 2


@embedding.kernel("cuda", supports=_is_supported, takes_bfloat16=True)
def embedding_with_sorted_gradient(table: Array, ids: Array) -> tuple[Array, Backward]:
    """Compute the reference's result with a fixed order of addition; the reference's atomic additions run in any order.

    Saves: what the reference saves.
    """
    return table[ids], lambda dy: (as_gradient_of(table, RowsToAdd(table, ids.reshape(-1), dy)), None)


# Of bfloat16 arguments, the operations that it calls convert the rows of the table only, not the whole table.
embedding_with_positions.kernel("cuda", takes_bfloat16=True)(embedding_with_positions.reference)


class RowsToAdd(PendingGradient):
    """A pending float32 gradient of a table.

    It is zero, except that row t of ``rows`` (float32 or bfloat16) is added to row ids[t], for every t.
    """

    def __init__(self, table: Array, ids: Array, rows: Array) -> None:
        self.shape, self.ids = table.shape, ids
        self.like = namespace(table).empty(0, np.float32)
        self.rows = rows if str(rows.dtype) in STORAGE else rows.astype(np.float32)

    def add_to(self, out: Array) -> None:
        """Implement ``PendingGradient``."""
        xp, n = namespace(out), len(self.ids)
        ids, sorted_ids, order = xp.ascontiguousarray(self.ids), xp.empty(n, np.int64), xp.empty(n, np.int64)
        if n:
            launch(SOURCE, SORT, -(-n // THREADS), THREADS, ids, sorted_ids, order, np.int32(n))
            launch(
                SOURCE, kernel_name(self.rows.dtype), n, THREADS, xp.ascontiguousarray(self.rows), sorted_ids, order,
                out, np.int64(n), np.int32(self.shape[1]),
            )  # fmt: skip
