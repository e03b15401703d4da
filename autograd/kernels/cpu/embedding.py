"""Embeddings in one pass over memory; their gradient is added row by row, without a table of zeros."""

from __future__ import annotations

import numpy as np

from autograd.array import Array
from autograd.kernels.cpu.dropout import drawn_mask
from autograd.kernels.cpu.library import Function, is_for_c
from autograd.ops.embedding import check_embedding_with_positions, embedding, embedding_with_positions
from autograd.random import StreamId
from autograd.tensor import Backward, PendingGradient

_embed, _add_rows_to_table = Function("embed"), Function("add_rows_to_table")


def _is_supported(table: Array, ids: Array, **static: object) -> bool:
    """Return whether C can read the table and all ids are rows of it; the reference handles or refuses other ids."""
    are_rows = ids.dtype.kind in "iu" and (not ids.size or (ids.min() >= 0 and ids.max() < len(table)))
    return is_for_c(table) and table.ndim == 2 and are_rows


@embedding.kernel("cpu", supports=_is_supported)
def embedding_with_pending_gradient(table: Array, ids: Array, *, order: Array | None = None) -> tuple[Array, Backward]:
    """Compute the reference's result; the cost of the gradient does not depend on the size of the table.

    Saves: what the reference saves.
    """
    shape = table.shape
    return table[ids], lambda dy: (_pending_rows(shape, ids, dy), None)


@embedding_with_positions.kernel(
    "cpu",
    supports=lambda table, ids, encodings, positions, **static: (
        _is_supported(table, ids) and _is_supported(encodings, positions)
    ),
)
def embedding_with_positions_in_c(
    table: Array,
    ids: Array,
    encodings: Array,
    positions: Array,
    *,
    scale: float,
    rate: float = 0.0,
    stream_id: StreamId | None = None,
    order: Array | None = None,
    order_of_positions: Array | None = None,
) -> tuple[Array, Backward]:
    """Compute the reference's result; its gradients are added row by row.

    Saves: the ids, the positions, and the dropout mask, one byte per element.
    """
    check_embedding_with_positions(table, ids, encodings, positions)
    y = np.empty((len(ids), table.shape[1]), np.float32)
    kept, kept_scale = drawn_mask(y.shape, rate, stream_id) if rate and stream_id else (None, 1.0)
    ids, positions = np.ascontiguousarray(ids, np.int64), np.ascontiguousarray(positions, np.int64)
    _embed(table, ids, encodings, positions, kept, scale, kept_scale, y, *y.shape)
    shape, encodings_shape = table.shape, encodings.shape

    def backward(dy: Array) -> tuple[PendingGradient | None, ...]:
        dtable = _pending_rows(shape, ids, dy, kept, scale * kept_scale)
        return dtable, None, _pending_rows(encodings_shape, positions, dy, kept, kept_scale), None

    return y, backward


def _pending_rows(
    shape: tuple[int, ...], ids: Array, rows: Array, kept: Array | None = None, scale: float = 1.0
) -> PendingGradient:
    """Return the gradient of a table: for each t, scale · kept[t] · rows[t] is added to row ids[t]."""
    rows, ids = np.ascontiguousarray(rows, np.float32), np.ascontiguousarray(ids, np.int64)

    def into(out: Array, add: bool) -> None:
        if not add:
            out[...] = 0
        _add_rows_to_table(out, ids, rows, kept, scale, ids.size, shape[1])

    return PendingGradient(shape, rows, into)
